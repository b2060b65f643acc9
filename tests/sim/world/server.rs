//! One instance as a process: it runs scripts, dies, comes back with less than it had.

use std::rc::Rc;
use std::sync::Arc;

use redquorum::protocol::{AdmissionRecord, FencingToken, ProcessFacts, ProcessIdentity, RecordOrigin};

use super::plain::{Between, OpenWrite};
use super::{Call, Event, START, World, draw_clock, tell};
use crate::clock::Clock;
use crate::faults::{FaultKind, Trigger};
use crate::instance::{Answer, Script, Store};
use crate::mutants::Mutant;
use crate::rng::Rng;
use crate::scenario::{MS, Scenario, Start};

#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) up: bool,
    /// Counts the processes at this address.
    pub(crate) incarnation: u32,
    pub(crate) clock: Clock,
    pub(crate) store: Store,
    /// What a restart from disk, a promoted replica or a resynchronisation brings back.
    snapshot: Store,
    /// What it had when the run began.
    first: Store,
    /// The process and its replication history.
    pub(crate) identity: ProcessIdentity,
    /// When the process was started, by its own clock.
    pub(crate) started_ms: u64,
    pub(crate) was_replica: bool,
    /// When its clock was last stepped forward, in true time.
    pub(crate) stepped_at: u64,
    /// Whether its clock was ever set back: keys that were over but not deleted yet live again.
    pub(crate) was_set_back: bool,
    /// It has forgotten something in this run.
    pub(crate) lost_data: bool,
    /// When an older copy of its data came back, in true time.
    pub(crate) restored_at: u64,
    /// Somebody has set its tokens by hand.
    pub(crate) poisoned: bool,
    /// It claims to have stored a token that no clock can have made, whatever it is asked for.
    pub(crate) lies: bool,
    /// It has removed tokens, and tombstones with them, that were older than they are kept for.
    pub(crate) forgot_tokens: bool,
    /// The plain acquires that it has carried out in part.
    pub(super) open_writes: Vec<OpenWrite>,
}

impl Server {
    pub(crate) fn new(rng: &mut Rng, scenario: &Scenario) -> Self {
        let mutant = scenario.mutant.filter(|mutant| *mutant != Mutant::OffDropsFencing || !scenario.admission());
        let mut store = Store { mutant, ..Store::default() };
        let mut clock = draw_clock(rng, 5_000, scenario.worst_clocks.then_some(true));
        if !scenario.far_wall_clocks {
            clock.offset_ns = -(START.cast_signed() * clock.rate_ppm / 1_000_000);
        }
        clock.offset_ns += (scenario.era_us * 1000).cast_signed();
        let now_ms = clock.at(START) / MS;
        let identity = draw_identity(rng);
        let up_ms = match scenario.start {
            Start::Fresh => rng.below(scenario.max_ttl_ms / 2),
            _ => scenario.max_ttl_ms * 3,
        };
        if scenario.start == Start::Admitted {
            let origin = rng.pick(&[RecordOrigin::Blank, RecordOrigin::Waits, RecordOrigin::Opened]);
            let (identity, terms) = (identity.clone(), scenario.terms_of(0));
            let (vote_from_ms, order) = (now_ms - 1, now_ms - 1);
            store.record =
                Some(Arc::new(AdmissionRecord { identity, vote_from_ms, terms, origin, order, cluster: None }));
        }
        Self {
            up: true,
            incarnation: 1,
            clock,
            snapshot: store.clone(),
            first: store.clone(),
            store,
            identity,
            started_ms: now_ms.saturating_sub(up_ms),
            was_replica: false,
            stepped_at: 0,
            was_set_back: false,
            lost_data: false,
            restored_at: 0,
            poisoned: false,
            lies: false,
            forgot_tokens: false,
            open_writes: Vec::new(),
        }
    }

    /// INFO and TIME: whole seconds, each cut off.
    fn facts(&self, now_ms: u64) -> Answer {
        Answer::Facts(Rc::new(ProcessFacts {
            identity: self.identity.clone(),
            is_master: true,
            was_replica: self.was_replica,
            was_flushed: false, // as after CONFIG RESETSTAT: the rules must do without
            uptime_s: (now_ms / 1000).saturating_sub(self.started_ms / 1000),
            now_ms,
        }))
    }

    /// Whether a mark of a release may be gone.
    pub(crate) const fn has_lost_marks(&self) -> bool {
        self.lost_data || self.poisoned || self.forgot_tokens
    }

    /// Whether it may vote and has not forgotten that it may.
    pub(crate) fn stands(&self, now_ms: u64) -> bool {
        self.up
            && self
                .store
                .record
                .as_ref()
                .is_some_and(|record| record.identity == self.identity && record.vote_from_ms <= now_ms)
    }
}

impl World {
    pub(crate) fn server_ms(&self, i: usize) -> u64 {
        self.servers[i].clock.at(self.now) / MS
    }

    pub(crate) fn serve(&mut self, c: usize, i: usize, epoch: u32, call: &Call) {
        let Call { sender, known, quarantine_over, request, ticket } = call;
        self.copy_now_and_then(i, 10);
        self.note_between(i, Between::Others, Some(c));
        let now_us = self.servers[i].clock.at(self.now) / 1000;
        let now_ms = now_us / 1000;
        let (before, line) = (self.own_ends(i, request), self.line_of_holder(i, request));
        let (reserved, heard_by) = (self.reservations(i, request), self.heard_by(i, request));
        let server = &mut self.servers[i];
        let answer = match request.script {
            Script::Facts => server.facts(now_ms),
            Script::Acquire if server.lies => Answer::Stale { stored: FencingToken::propose(u64::MAX, None) },
            Script::PassOn | Script::Decline => server.store.pass_on(now_us, request, heard_by),
            Script::ForgetTokens | Script::ReadOldTokens | Script::ForgetNamed => {
                let forgotten = server.store.forget_tokens(now_ms, self.scenario.retention_ms, request);
                server.forgot_tokens |= forgotten.1;
                forgotten.0
            }
            _ => server.store.execute(now_us, (known.as_ref(), *quarantine_over), request),
        };
        self.mix(self.now ^ request.token.get() ^ (request.script as u64) << 60 ^ (i as u64) << 52);
        tell!(
            self,
            "instance {i} ({now_ms} ms) {:?} {:03b} of client {c} round {}: {answer:?}",
            request.script,
            request.keys,
            ticket.as_ref().map_or(0, |ticket| ticket.id)
        );
        if let Some(ticket) = ticket {
            self.check_instance(i, request, ticket, &answer);
            self.check_nothing_shortened(i, request, before);
            self.check_line(i, request, &answer, &line);
        }
        self.check_reservations(i, request, &reserved);
        if matches!(answer, Answer::Released { deleted: 1.. }) {
            self.wake_successor(i, request, heard_by);
        }
        self.stats.repairs += u64::from(answer == Answer::Repaired);
        let back = Event::Answer {
            c,
            i,
            epoch,
            sender: *sender,
            named: known.clone(),
            answer: answer.clone(),
            server_us: if *quarantine_over { now_ms * 1000 } else { now_us },
        };
        self.answer(c, i, epoch, back);
        if matches!(answer, Answer::Granted | Answer::Repaired) && !request.script.is_release() {
            self.grants = self.grants.saturating_add(1);
            self.pull(Trigger::Grant, self.grants, Some(i), Some(c), 0);
        }
    }

    /// Its data are saved.
    pub(super) fn copy_now_and_then(&mut self, i: usize, percent: u64) {
        if self.rng.percent(percent) {
            self.servers[i].snapshot = self.servers[i].store.clone();
        }
    }

    /// A fault of an instance.
    pub(crate) fn hit_instance(&mut self, i: usize, what: FaultKind, amount: u8) {
        self.note_between(i, Between::Fault(what), None);
        let old = self.rng.percent(50);
        let server = &mut self.servers[i];
        let mutant = server.store.mutant;
        server.lost_data |= what.loses_data();
        server.poisoned |= what == FaultKind::Poison;
        let snapshot = if old { server.snapshot.clone() } else { server.store.clone() };
        match what {
            FaultKind::Flush => server.store.flush(),
            FaultKind::Restore => self.restore(i),
            FaultKind::Poison => server.store.poison(),
            FaultKind::Lie => server.lies = true,
            FaultKind::CrashEmpty | FaultKind::CrashFromDisk => {
                server.store =
                    if what == FaultKind::CrashEmpty { Store { mutant, ..Store::default() } } else { snapshot };
                server.was_replica = false;
                self.kill(i, amount, None);
            }
            FaultKind::Promote => {
                // Another process, up for long or not, takes over the address.
                server.store = if amount.is_multiple_of(4) { Store { mutant, ..Store::default() } } else { snapshot };
                server.was_replica = true;
                self.kill(i, amount / 8, Some(u64::from(amount) * 3 * self.scenario.max_ttl_ms / 256));
            }
            _ => {
                // It was made a replica and a master again: other data, connections are closed.
                server.store = server.snapshot.clone();
                server.was_replica = true;
                let up_ms = self.server_ms(i).saturating_sub(self.servers[i].started_ms);
                self.kill(i, 0, Some(up_ms));
            }
        }
    }

    /// The process goes on, its data are flushed and an older copy of them comes back. Whoever is
    /// connected is told.
    fn restore(&mut self, i: usize) {
        let oldest = self.rng.percent(50);
        let server = &mut self.servers[i];
        let oldest = oldest && server.incarnation == 1 && server.first.record.is_some();
        server.store = if oldest { server.first.clone() } else { server.snapshot.clone() };
        server.restored_at = self.now;
        let record = server.store.record.clone();
        for c in 0..self.clients.len() {
            let link = self.link_mut(c, i);
            link.knows_better = record.as_ref().is_none_or(|record| !link.seen.accepts(record));
            self.push(c, i);
        }
    }

    /// A process ends; the next one at the address is as old as given when it comes up.
    fn kill(&mut self, i: usize, amount: u8, up_ms: Option<u64>) {
        self.servers[i].up = false;
        self.servers[i].open_writes.clear();
        self.servers[i].identity = draw_identity(&mut self.rng);
        self.peer_died(i);
        let down = u64::from(amount) * self.scenario.ttl_ms * MS / 200;
        self.schedule(down + MS, super::Event::Restart { i, up_ms: up_ms.unwrap_or(0) });
    }

    pub(crate) fn restart(&mut self, i: usize, up_ms: u64) {
        if !self.servers[i].up {
            let now_ms = self.server_ms(i);
            let server = &mut self.servers[i];
            server.up = true;
            server.incarnation += 1;
            server.started_ms = now_ms.saturating_sub(up_ms);
            tell!(self, "instance {i} is up again");
        }
    }

    pub(crate) fn rolling_restart(&mut self, i: usize) {
        tell!(self, "instance {i} is restarted in its turn");
        self.stats.faults[0] += 1;
        self.hit_instance(i, FaultKind::CrashEmpty, 10);
    }
}

fn draw_identity(rng: &mut Rng) -> ProcessIdentity {
    ProcessIdentity::new(&rng.next().to_string(), "history")
}
