//! Plain acquires on their way and on an instance: each command arrives and is carried out at an instant of its own (P28).

use std::rc::Rc;

use redquorum::protocol::may_propose_plainly;

use super::{Call, Event, World, tell};
use crate::faults::{FaultKind, Trigger};
use crate::instance::{Answer, Companion, Request, Script};
use crate::mutants::Mutant;
use crate::plain::{GAPS, PlainWrite};
use crate::scenario::MS;

/// A plain acquire of which an instance has carried out a part.
#[derive(Clone, Debug)]
pub(super) struct OpenWrite {
    id: u32,
    c: usize,
    epoch: u32,
    /// Behind which command.
    gap: usize,
}

/// What can come between two commands of a plain acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Between {
    /// A command or a script of another client.
    Others,
    /// The key that it has set expires.
    Expiry,
    /// The rest is lost with its connection.
    Lost,
    /// The client ends the connection over which the rest comes.
    Ended,
    Fault(FaultKind),
}

impl Between {
    pub(crate) const ALL: [Self; 11] = [
        Self::Others,
        Self::Expiry,
        Self::Lost,
        Self::Ended,
        Self::Fault(FaultKind::CrashEmpty),
        Self::Fault(FaultKind::CrashFromDisk),
        Self::Fault(FaultKind::Flush),
        Self::Fault(FaultKind::Restore),
        Self::Fault(FaultKind::Promote),
        Self::Fault(FaultKind::Resync),
        Self::Fault(FaultKind::Step),
    ];
}

impl World {
    /// Whether an acquire goes as plain commands, as production decides it.
    pub(super) fn may_be_plain(&self, c: usize, i: usize, request: &Request) -> bool {
        let Some(standing) = &self.link(c, i).standing else { return false };
        let now = self.client_now(c);
        let (attached, wall_us) = standing.known_at(now);
        request.script == Script::Acquire
            && request.is_first
            && request.keys.count_ones() == 1
            && request.value.holder_prefix().is_empty()
            && may_propose_plainly(request.token, Some(&attached), wall_us)
    }

    /// Sends the commands: in order, mostly one right behind the other.
    pub(super) fn send_plain(&mut self, c: usize, i: usize, call: &Call) {
        let Some(ticket) = call.ticket.clone() else { return };
        let own = Companion { request: call.request.clone(), ticket };
        let claims: Vec<_> = [own].into_iter().chain(call.request.companion.clone()).collect();
        let (is_last, id) = (self.rng.percent(50), self.fresh_id());
        claims.iter().for_each(|claim| claim.ticket.is_plain.set(true));
        self.stats.plain.shared += u64::from(claims.len() > 1);
        let write = Rc::new(PlainWrite::new(id, claims, is_last, self.scenario.mutant));
        let (epoch, incarnation) = (self.link(c, i).epoch, self.link(c, i).incarnation);
        let delay = self.delay();
        for place in 0..write.commands.len() {
            let Some(at) = self.travel(c, i, delay, true) else {
                let gap = place.checked_sub(1).and_then(|before| write.commands[before].gap());
                return gap.into_iter().for_each(|gap| self.stats.plain.note(Between::Lost, gap));
            };
            write.arriving.set(place + 1);
            let (call, write) = (call.clone(), write.clone());
            self.schedule(at - self.now, Event::Command { c, i, epoch, incarnation, call, write, place });
            self.link_mut(c, i).last_to += self.gap_between_commands();
        }
    }

    /// Dangerous: others come in between.
    fn gap_between_commands(&mut self) -> u64 {
        let (net, ttl) = (self.net(), self.scenario.ttl_ms * MS);
        match self.rng.below(1_000) {
            _ if self.calm => 1_000,
            0..5 if net.tail_permille > 0 => self.rng.below(2 * ttl),
            5..50 if net.slow_percent > 0 => self.rng.below(ttl / 10),
            0..250 => self.rng.below(200_000),
            _ => self.rng.below(5_000),
        }
    }

    /// Ends the connections of before, in front of all that is sent over this one.
    pub(super) fn send_end_of(&mut self, c: usize, i: usize, mut former: Vec<u32>) {
        if self.is(Mutant::LatestFormerEnded) {
            former.drain(..former.len().saturating_sub(1));
        }
        let is_left = self.is(Mutant::FormerNotEnded) || !self.scenario.ends_former || !self.scenario.admission();
        if is_left || former.is_empty() {
            return;
        }
        let (delay, incarnation) = (self.delay(), self.link(c, i).incarnation);
        if let Some(at) = self.travel(c, i, delay, true) {
            self.schedule(at - self.now, Event::EndFormer { c, i, incarnation, former });
        }
    }

    pub(super) fn end_former(&mut self, c: usize, i: usize, former: Vec<u32>) {
        let is_of = |write: &OpenWrite| write.c == c && former.contains(&write.epoch);
        let (cut, open) = std::mem::take(&mut self.servers[i].open_writes).into_iter().partition::<Vec<_>, _>(is_of);
        self.servers[i].open_writes = open;
        cut.iter().for_each(|write| self.stats.plain.note(Between::Ended, write.gap));
        let link = self.link_mut(c, i);
        link.former.retain(|epoch| !former.contains(epoch));
        link.ended.extend(former);
    }

    /// Whether what comes over this connection is still carried out.
    pub(super) fn carries_out(&self, (c, i): (usize, usize), epoch: u32, incarnation: u32) -> bool {
        let server = &self.servers[i];
        server.up && server.incarnation == incarnation && !self.link(c, i).ended.contains(&epoch)
    }

    /// Something comes between the commands of the plain acquires that the instance has carried out in part.
    pub(super) fn note_between(&mut self, i: usize, what: Between, by: Option<usize>) {
        for write in &self.servers[i].open_writes {
            if by != Some(write.c) {
                self.stats.plain.note(what, write.gap);
            }
        }
    }

    pub(super) fn serve_command(
        &mut self,
        (c, i, epoch): (usize, usize, u32),
        call: &Call,
        write: &Rc<PlainWrite>,
        place: usize,
    ) {
        self.copy_now_and_then(i, 2);
        let now_ms = self.server_ms(i);
        let command = write.commands[place];
        self.note_progress((c, i, epoch), write, place);
        let before: Vec<_> = write
            .claims
            .iter()
            .map(|claim| (self.own_ends(i, &claim.request), self.reservations(i, &claim.request)))
            .collect();
        let server = &mut self.servers[i];
        server.store.carry_out(now_ms, write, command, server.lies);
        self.mix(self.now ^ call.request.token.get() ^ (place as u64) << 60 ^ (i as u64) << 52);
        tell!(self, "instance {i} ({now_ms} ms) {command:?} of client {c} write {}", write.id);
        for (claim, (ends, reserved)) in write.claims.iter().zip(before) {
            self.check_command((c, i, epoch), claim, ends, &reserved);
        }
        match command.gap() {
            Some(gap) if place + 1 < write.commands.len() => self.pull_between(write.number.get(), gap, i, c),
            _ => {}
        }
        if place + 1 == write.commands.len() {
            self.answer_plain((c, i, epoch), call, write);
        }
    }

    fn answer_plain(&mut self, (c, i, epoch): (usize, usize, u32), call: &Call, write: &PlainWrite) {
        let seen = write.seen.borrow().clone();
        tell!(self, "instance {i} answers client {c} write {}: {seen:?}", write.id);
        self.stats.plain.answered += 1;
        self.stats.plain.in_doubt += u64::from(seen.raised > 0 && seen.raised < seen.claims);
        let is_granted = seen.is_set && seen.raised == seen.claims;
        self.stats.plain.granted += u64::from(is_granted);
        let (sender, named, answer) = (call.sender, call.known.clone(), Answer::Plain(Rc::new(seen)));
        self.answer(c, i, epoch, Event::Answer { c, i, epoch, sender, named, answer, server_us: 0 });
        if is_granted {
            self.grants = self.grants.saturating_add(1);
            self.pull(Trigger::Grant, self.grants, Some(i), Some(c), 0);
        }
    }

    /// Keeps account of how far an instance is with it.
    fn note_progress(&mut self, (c, i, epoch): (usize, usize, u32), write: &PlainWrite, place: usize) {
        self.note_between(i, Between::Others, Some(c));
        let id = write.id;
        let before = self.servers[i].open_writes.iter().find(|open| open.id == id).map(|open| open.gap);
        let now_ms = self.server_ms(i);
        if let (Some(gap), Some(_)) = (before, write.until_ms.get().take_if(|until_ms| *until_ms < now_ms)) {
            write.until_ms.set(None);
            self.stats.plain.note(Between::Expiry, gap);
        }
        if place == 0 {
            self.plain_writes = self.plain_writes.saturating_add(1);
            write.number.set(self.plain_writes);
        }
        let open = &mut self.servers[i].open_writes;
        open.retain(|open| open.id != id);
        if let Some(gap) = write.commands[place].gap().filter(|_| place + 1 < write.arriving.get()) {
            open.push(OpenWrite { id, c, epoch, gap });
        }
    }

    /// A command of the n-th plain acquire has been carried out: faults may wait for that.
    fn pull_between(&mut self, number: u8, gap: usize, i: usize, c: usize) {
        for index in 0..self.scenario.plan.len() {
            let fault = self.scenario.plan[index];
            if fault.trigger == Trigger::Command && fault.nth + 1 == number && fault.gap() == gap {
                self.strike(index, Some(i), Some(c));
            }
        }
    }

    /// The planted bug: an answer that comes over a former connection is taken for one over this.
    pub(super) fn counts_late_copy(&self, answer: &Answer) -> bool {
        self.is(Mutant::LateCopyCounts) && matches!(answer, Answer::Plain(_))
    }
}

/// What became of plain acquires.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PlainStats {
    pub(crate) answered: u64,
    pub(crate) granted: u64,
    /// Several in one write, and such of which not all tokens were raised.
    pub(crate) shared: u64,
    pub(crate) in_doubt: u64,
    /// What came in between, and behind which command.
    between: [[u64; GAPS]; Between::ALL.len()],
}

impl PlainStats {
    pub(crate) fn note(&mut self, what: Between, gap: usize) {
        if let Some(kind) = Between::ALL.iter().position(|kind| *kind == what) {
            self.between[kind][gap] += 1;
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.answered += other.answered;
        self.granted += other.granted;
        self.shared += other.shared;
        self.in_doubt += other.in_doubt;
        for (mine, theirs) in self.between.iter_mut().flatten().zip(other.between.iter().flatten()) {
            *mine += theirs;
        }
    }

    /// What never came in between, and behind which command.
    pub(crate) fn missing(&self) -> Vec<(Between, usize)> {
        let places = |(what, counts): (Between, [u64; GAPS])| {
            (0..GAPS).filter(move |gap| counts[*gap] == 0).map(move |gap| (what, gap))
        };
        Between::ALL.into_iter().zip(self.between).flat_map(places).collect()
    }

    pub(crate) fn print(&self) {
        let Self { answered, granted, shared, in_doubt, .. } = self;
        println!("plain acquires answered {answered}, granted {granted}, shared writes {shared}, in doubt {in_doubt}");
        let counts = Between::ALL.iter().zip(self.between).map(|(what, counts)| format!("{what:?} {counts:?}"));
        println!("between their commands: {}", counts.collect::<Vec<_>>().join(", "));
    }
}
