//! What a client does with a new connection before it asks it for votes (P15), and when an
//! instance says that it is not admitted or shows a clock that was stepped (P17).

use std::rc::Rc;
use std::sync::Arc;

use redquorum::protocol::{
    AdmissionFollowUp, AdmissionRecord, AdmissionState, AdmissionTerms, ClockWatch, FirstLook, Instant, ProcessFacts,
    RawReply, RecordAction, RecordOrigin, Reply, SeenRecords, decide_record, never_used,
};

use crate::admission::RecordWrite;
use crate::instance::{Answer, Request, Script};
use crate::mutants::Mutant;
use crate::scenario::DRIFT_PPM;
use crate::world::{Event, Sender, World, tell};

/// A fresh look at all instances, to open them together.
#[derive(Debug, Default)]
pub(crate) struct Opening {
    id: u32,
    looks: Vec<Option<FirstLook>>,
}

impl World {
    fn ask(&mut self, c: usize, i: usize, sender: Sender, script: Script, note: Option<RecordWrite>) {
        let request = Rc::new(Request { script, note, ..Request::clone(&self.blank) });
        let _ = self.send(c, i, sender, &request, None);
    }

    /// A connection was made, its instance does not know its record any more, or `doubts` says that
    /// the record must not stand.
    pub(crate) fn begin_admission(&mut self, c: usize, i: usize, doubts: bool) {
        let (now, timeout) = (self.now, self.scenario.timeout);
        let link = self.link_mut(c, i);
        link.doubts_again |= doubts;
        let busy = link.asked_at.is_some_and(|asked| asked + timeout > now);
        if busy || !self.scenario.admission() {
            return;
        }
        let own_now = self.client_now(c);
        let link = self.link_mut(c, i);
        let doubts = std::mem::take(&mut link.doubts_again);
        if let Some(standing) = &mut link.standing {
            let doubtful_by_ms = standing.doubtful_by_ms(own_now);
            standing.begin_follow_up(if doubts {
                AdmissionFollowUp::Quarantine
            } else {
                AdmissionFollowUp::RereadRecord
            });
            if doubts {
                link.doubted = Some(standing.record().clone());
                link.seen.suspect(standing.record(), doubtful_by_ms);
            }
        }
        link.asked_at = Some(now);
        link.facts = None;
        let epoch = link.epoch;
        if link.standing.is_none() {
            self.schedule(3 * timeout, Event::SetupDeadline { c, i, epoch });
        }
        let sent = self.client_now(c);
        self.ask(c, i, Sender::Setup(sent), Script::Facts, None);
    }

    /// Any flush: of all clients only those that are told can know of a copy that has come back.
    pub(crate) fn on_flushed(&mut self, c: usize, i: usize) {
        if let Some(standing) = &mut self.link_mut(c, i).standing {
            standing.suspend_votes();
        }
        self.begin_admission(c, i, true);
    }

    pub(crate) fn on_setup_deadline(&mut self, c: usize, i: usize, epoch: u32) {
        let link = self.link(c, i);
        if link.up && link.epoch == epoch && link.standing.is_none() {
            self.break_link(c, i);
        }
    }

    pub(crate) fn on_setup_answer(&mut self, c: usize, i: usize, sent: Instant, answer: &Answer, server_us: u64) {
        match answer {
            Answer::Facts(facts) => {
                self.link_mut(c, i).facts = Some(ProcessFacts::clone(facts));
                self.read_record(c, i);
            }
            Answer::Record { record, .. } => self.on_record(c, i, sent, record.clone(), server_us),
            _ => {}
        }
    }

    fn read_record(&mut self, c: usize, i: usize) {
        let sent = self.client_now(c);
        self.ask(c, i, Sender::Setup(sent), Script::Read, None);
    }

    /// Applies the rule to the record that was read, and reads again what was written.
    fn on_record(&mut self, c: usize, i: usize, sent: Instant, found: Option<Arc<AdmissionRecord>>, server_us: u64) {
        let Some(facts) = self.link(c, i).facts.clone() else { return };
        let facts = facts.at(server_us / 1000); // as production reads it, with the record
        let ours = match self.scenario.mutant {
            Some(Mutant::MaxTtlDiffers) if c == 0 => AdmissionTerms::of_max_ttl(self.scenario.max_ttl_ms / 4),
            Some(Mutant::QuarantineByMaxTtl) => AdmissionTerms::of_max_ttl(self.scenario.terms_of(c).max_ttl_ms),
            _ => self.scenario.terms_of(c),
        };
        let known = found.as_ref().map(|record| {
            let mut record = AdmissionRecord::clone(record);
            if self.is(Mutant::AnyIdentity) {
                record.identity = facts.identity.clone();
            }
            if self.is(Mutant::MaxTtlDiffers) || self.is(Mutant::QuarantineByMaxTtl) {
                record.terms = ours;
            }
            record.to_wire()
        });
        let wire = known.as_ref().map(String::as_bytes);
        let seen = self.seen(c, i, found.as_deref());
        let link = self.link_mut(c, i);
        if let Some(record) = found.as_deref().filter(|record| record.identity == facts.identity) {
            link.seen.note(record);
        }
        let order = link.seen.next_order(&facts.identity);
        let note = match decide_record(&facts, wire, ours, None, &seen) {
            Ok(RecordAction::Keep(_)) => return self.stand(c, i, sent, found, server_us),
            Ok(RecordAction::Raise(record)) => RecordWrite::following(record, found),
            Ok(RecordAction::Write { origin }) => {
                let (identity, vote_from_ms) = (facts.identity.clone(), self.vote_from(&facts, found.as_deref()));
                let order = if vote_from_ms.is_some() { order.max(facts.now_ms) } else { order };
                RecordWrite { found, identity, terms: ours, origin, vote_from_ms, order }
            }
            Err(_) => return,
        };
        self.ask(c, i, Sender::Write, Script::Admit, Some(note));
        self.stats.quarantines += 1;
        self.read_record(c, i);
    }

    /// What is remembered of the instance's records when this one is found.
    fn seen(&self, c: usize, i: usize, found: Option<&AdmissionRecord>) -> SeenRecords {
        let link = self.link(c, i);
        if found.is_none() && self.opens_by_records_alone() {
            return SeenRecords::default();
        }
        if !self.is(Mutant::OldRecordVotes) {
            return link.seen.clone();
        }
        let mut seen = SeenRecords::default(); // only that the very record is doubted
        link.doubted
            .as_deref()
            .filter(|doubted| found == Some(*doubted))
            .into_iter()
            .for_each(|one| seen.suspect(one, 0));
        seen
    }

    /// What planted bugs know of a process by what it says of its start.
    fn vote_from(&self, facts: &ProcessFacts, found: Option<&AdmissionRecord>) -> Option<u64> {
        let max_ttl_ms = self.scenario.max_ttl_ms;
        let started_ms = facts.now_ms.saturating_sub(facts.uptime_s * 1000);
        let is_young = found.is_none() && !facts.was_replica && facts.now_ms + 2_000 < started_ms + max_ttl_ms;
        let by_start = self.is(Mutant::UptimeAlone) || (self.is(Mutant::WaitsFromTheStart) && is_young);
        by_start.then_some(started_ms + max_ttl_ms)
    }

    fn stand(&mut self, c: usize, i: usize, sent: Instant, record: Option<Arc<AdmissionRecord>>, server_us: u64) {
        let Some(record) = record else { return };
        let (now, true_now) = (self.client_now(c), self.now);
        let blank = record.origin == RecordOrigin::Blank;
        let link = self.link_mut(c, i);
        (link.asked_at, link.facts, link.doubted) = (None, None, None);
        let doubts_again = link.doubts_again;
        match &mut link.standing {
            Some(standing) => standing.replace_record(AdmissionRecord::clone(&record)),
            None => {
                let watch = ClockWatch::begin(DRIFT_PPM, sent, now, server_us);
                link.standing = Some(AdmissionState::new(AdmissionRecord::clone(&record), watch));
                link.sampled_at = true_now;
            }
        }
        self.stats.admissions += 1;
        if doubts_again {
            return self.begin_admission(c, i, true);
        }
        if blank {
            self.begin_opening(c);
        }
    }

    /// No instance has ever voted: perhaps nobody has used them. Reads all records again.
    fn begin_opening(&mut self, c: usize) {
        let instances = self.servers.len();
        let is_blank = |i: &usize| {
            let standing = self.link(c, *i).standing.as_ref();
            standing.is_some_and(|standing| standing.record().origin == RecordOrigin::Blank)
        };
        let blank = (0..instances).filter(is_blank).count();
        let reachable = (0..instances).filter(|i| self.link(c, *i).up).count();
        if blank < if self.is(Mutant::OpenReachable) { reachable } else { instances } {
            return;
        }
        let id = self.fresh_id();
        self.clients[c].opening = Opening { id, looks: vec![None; instances] };
        for i in 0..instances {
            self.ask(c, i, Sender::Opening(id), Script::Read, None);
        }
    }

    pub(crate) fn on_opening_answer(&mut self, c: usize, i: usize, id: u32, answer: &Answer, server_us: u64) {
        let Answer::Record { record: Some(record), has_tokens } = answer else { return };
        if id == 0 || self.clients[c].opening.id != id {
            return;
        }
        self.clients[c].opening.looks[i] = Some(FirstLook {
            record: AdmissionRecord::clone(record),
            now_ms: if self.is(Mutant::OpenAfterVoting) { record.vote_from_ms - 1 } else { server_us / 1000 },
            has_tokens: *has_tokens && !self.opens_by_records_alone(),
        });
        let looks: Vec<_> = self.clients[c].opening.looks.iter().flatten().cloned().collect();
        let reachable = (0..self.servers.len()).filter(|i| self.link(c, *i).up).count();
        let all = if self.is(Mutant::OpenReachable) { reachable } else { self.servers.len() };
        if never_used(&looks, all) {
            tell!(self, "client {c} opens all instances");
            let looks = std::mem::take(&mut self.clients[c].opening).looks;
            for (i, look) in looks.into_iter().enumerate() {
                let Some(FirstLook { record, now_ms, .. }) = look else { continue };
                let opened = AdmissionRecord { vote_from_ms: now_ms, origin: RecordOrigin::Opened, ..record.clone() };
                let note = RecordWrite::following(opened, Some(Arc::new(record)));
                self.ask(c, i, Sender::Write, Script::Admit, Some(note));
            }
        }
    }

    fn opens_by_records_alone(&self) -> bool {
        let mutants = [Mutant::OpenAfterVoting, Mutant::OpenBySetBack, Mutant::OpenReachable];
        mutants.into_iter().any(|mutant| self.is(mutant))
    }

    /// P14, P17: what a reply is worth, given what this connection knows of the instance.
    pub(super) fn judge(
        &mut self,
        c: usize,
        i: usize,
        mut raw: RawReply,
        named: Option<&Arc<AdmissionRecord>>,
        sent: Instant,
    ) -> Reply {
        let received = self.client_now(c);
        let is_early = |us: u64| named.is_some_and(|named| us < named.vote_from_ms * 1000);
        let early = raw.instance_us.is_some_and(is_early);
        // The instance and the client both look at the instant: these leave it out on both sides.
        let mutants = [Mutant::NoQuarantine, Mutant::RepairNotAdmitted];
        let untold = self.is(Mutant::NoClockWatch) || (early && mutants.into_iter().any(|mutant| self.is(mutant)));
        raw.instance_us.take_if(|_| untold);
        let link = self.link_mut(c, i);
        let (Some(standing), Some(named)) = (&mut link.standing, named) else { return raw.reply };
        let (reply, remedy) = standing.check_vote(raw, named, sent, received);
        match remedy {
            Some(AdmissionFollowUp::RereadRecord) => self.begin_admission(c, i, false),
            Some(AdmissionFollowUp::Quarantine) => {
                tell!(self, "client {c} sees that the clock of {i} was stepped");
                self.begin_admission(c, i, true);
            }
            None => {}
        }
        reply
    }
}
