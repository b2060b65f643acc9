//! The verdict of a round: production's, or that of a planted bug.

use redquorum::protocol::{Cause, InstanceId, InstanceSet, Instant, Reply, Round, Verdict};

use super::{Client, Purpose, RoundInFlight};
use crate::mutants::Mutant;
use crate::world::World;

const FAR: Instant = Instant::from_nanos(u64::MAX / 2);

impl World {
    /// Looks at a flight after each reply and acts once when it is decided.
    pub(super) fn decide(&mut self, c: usize, in_flight: u32) {
        let Some(at) = self.in_flight_index(c, in_flight) else { return };
        self.lose_if_gone(c, at);
        if self.clients[c].rounds_in_flight[at].decided {
            return;
        }
        let verdict = self.verdict(c, at);
        if verdict == Verdict::Pending {
            return;
        }
        self.clients[c].rounds_in_flight[at].decided = true;
        let won = verdict == Verdict::Won;
        match self.clients[c].rounds_in_flight[at].purpose {
            Purpose::Acquire { .. } if won => self.on_acquired(c, at),
            Purpose::Acquire { .. } => self.on_not_acquired(c, at),
            Purpose::Extend => self.on_extend_decided(c, at, won),
        }
    }

    /// P20: so many instances did not have the lease any more that no quorum kept it.
    fn lose_if_gone(&mut self, c: usize, at: usize) {
        let in_flight = &self.clients[c].rounds_in_flight[at];
        let id = in_flight.ticket.id;
        let extends = in_flight.purpose == Purpose::Extend;
        let Client { rounds_in_flight, held, .. } = &mut self.clients[c];
        let round = &rounds_in_flight[at].round;
        let held = held.as_mut().filter(|held| extends && held.ticket.id == id && !held.leaving);
        let is_gone = held.is_some_and(|held| {
            held.lease.note_replies(round);
            held.lease.no_quorum_has_key()
        });
        if is_gone {
            self.stats.losses += 1;
            self.note_loss(c);
            self.release_now(c);
        }
    }

    fn verdict(&mut self, c: usize, at: usize) -> Verdict {
        let now = self.client_now(c);
        let mutant = self.scenario.mutant;
        let connected = (0..self.servers.len()).filter(|i| self.link(c, *i).up).count();
        let RoundInFlight { round, purpose, .. } = &mut self.clients[c].rounds_in_flight[at];
        let grants = round.granted().len();
        let open = round.replies().iter().filter(|answer| answer.is_none()).count();
        let unknown = |answer: &redquorum::protocol::TimedReply| matches!(answer.reply, Reply::Unknown(_));
        let unknowns = round.replies().iter().flatten().filter(|answer| unknown(answer)).count();
        let late = round.win_deadline().is_some_and(|end| now >= end);
        let forced = match mutant {
            Some(Mutant::HalfQuorum) => !late && grants >= round.quorum().instances() / 2,
            Some(Mutant::CountConnected) => !late && grants > connected / 2 && grants > 0,
            Some(Mutant::UnknownIsGrant) => !late && grants + unknowns >= round.quorum().votes(),
            Some(Mutant::LateWin) => grants >= round.quorum().votes(),
            Some(Mutant::NoContinuity) if *purpose == Purpose::Extend => grants >= round.quorum().votes(),
            Some(Mutant::WaitForAll) if open > 0 => return Verdict::Pending,
            _ => false,
        };
        if forced { Verdict::Won } else { round.verdict(now) }
    }

    /// The round that goes into the lease. Planted bugs make up one that production would accept.
    pub(super) fn deciding_round(&self, c: usize, at: usize, mut round: Round, now: Instant) -> (Round, Instant) {
        let in_flight = &self.clients[c].rounds_in_flight[at];
        let started_at = match self.scenario.mutant {
            Some(Mutant::ValidityFromReply) => now,
            Some(Mutant::ReviveLost) => return (round, Instant::ZERO), // when the lease was valid
            Some(
                Mutant::HalfQuorum
                | Mutant::CountConnected
                | Mutant::UnknownIsGrant
                | Mutant::LateWin
                | Mutant::NoContinuity,
            ) if round.verdict(now) != Verdict::Won => in_flight.started_at,
            _ => return (round, now),
        };
        let quorum = round.quorum();
        let mut forged = match in_flight.purpose {
            Purpose::Acquire { .. } => Round::acquire(quorum, in_flight.terms, started_at),
            Purpose::Extend => Round::extend(quorum, in_flight.terms, FAR, started_at),
        };
        for id in InstanceId::all(quorum.instances()) {
            forged.on_reply(id, Reply::Granted, started_at);
        }
        (forged, started_at)
    }

    /// No more waiting: what has not answered is unknown.
    pub(crate) fn on_deadline(&mut self, c: usize, in_flight: u32) {
        let Some(at) = self.in_flight_index(c, in_flight) else { return };
        let now = self.client_now(c);
        let open: InstanceSet = {
            let answers = self.clients[c].rounds_in_flight[at].round.replies();
            InstanceId::all(answers.len()).filter(|id| answers[id.index()].is_none()).collect()
        };
        for id in open.iter() {
            self.clients[c].rounds_in_flight[at].round.on_reply(id, Reply::Unknown(Cause::TimedOut), now);
        }
        self.decide(c, in_flight);
        if let Some(at) = self.in_flight_index(c, in_flight) {
            let in_flight = self.clients[c].rounds_in_flight.swap_remove(at);
            if in_flight.purpose == Purpose::Extend && in_flight.round.must_release() != in_flight.round.granted() {
                in_flight.ticket.late_extend.set(true);
            }
        }
        for id in open.iter() {
            self.note_silence(c, id.index());
        }
    }

    /// The connection is gone: nothing more will be answered over it.
    pub(crate) fn lose_answers(&mut self, c: usize, id: InstanceId, cause: &Cause) {
        let now = self.client_now(c);
        let waiting = |in_flight: &RoundInFlight| in_flight.round.replies()[id.index()].is_none();
        let rounds_in_flight: Vec<u32> =
            self.clients[c].rounds_in_flight.iter().filter(|f| waiting(f)).map(|f| f.id).collect();
        for id_in_flight in rounds_in_flight {
            if let Some(at) = self.in_flight_index(c, id_in_flight) {
                let in_flight = &mut self.clients[c].rounds_in_flight[at];
                if in_flight.purpose == Purpose::Extend {
                    in_flight.ticket.late_extend.set(true); // what was sent may still arrive
                }
                in_flight.round.on_reply(id, Reply::Unknown(cause.clone()), now);
                self.decide(c, id_in_flight);
            }
        }
    }
}
