//! A lease in use: renewed, lost or given back.

use std::time::Duration;

use redquorum::protocol::{ExtendRejected, InstanceSet, Instant, LeaseTerms, Round};

use super::{Purpose, RoundInFlight};
use crate::faults::Trigger;
use crate::instance::Script;
use crate::mutants::Mutant;
use crate::scenario::{DRIFT_PPM, Kind, MS};
use crate::world::{World, tell};

const FAR: Instant = Instant::from_nanos(u64::MAX / 2);

impl World {
    /// Faults that wait for a won round or for the end of its lease.
    pub(super) fn after_win(&mut self, c: usize) {
        self.wins = self.wins.saturating_add(1);
        let count = self.wins;
        let Some(held) = &self.clients[c].held else { return };
        let left = u64::try_from(held.lease.remaining(self.client_now(c)).as_nanos()).unwrap_or(0);
        let end = self.clients[c].clock.true_span(left);
        self.pull(Trigger::BeforeExpiry, count, None, Some(c), end.saturating_sub(2 * MS).max(1));
        self.pull(Trigger::AfterExpiry, count, None, Some(c), end);
        self.pull(Trigger::Win, count, None, Some(c), 0);
    }

    /// Renews what is due, and lets go of what is lost or no longer wanted.
    pub(super) fn tend_lease(&mut self, c: usize) {
        let now = self.client_now(c);
        let rolling = self.scenario.kind == Kind::RollingRestart && !self.calm;
        let Some(held) = &mut self.clients[c].held else { return };
        if rolling {
            (held.renews, held.until) = (true, FAR);
        }
        let lost = !held.lease.is_valid(now);
        if lost && self.scenario.is(Mutant::ReviveLost) && held.renews && !self.calm {
            let due = now >= held.renew_at;
            held.renew_at = now.saturating_add(held.lease.terms().ttl() / 10);
            let pause = self.scenario.ttl_ms * MS / 10;
            self.wake(c, pause);
            return if due {
                self.begin_extend(c);
            };
        }
        if lost || now >= held.until {
            if lost {
                self.stats.losses += 1;
                self.note_loss(c);
            }
            return self.release_now(c);
        }
        if held.renews && now >= held.renew_at {
            held.renew_at = now.saturating_add(held.lease.terms().ttl() / 10);
            self.begin_extend(c);
        }
        let Some(held) = &self.clients[c].held else { return };
        let next = if held.renews { held.renew_at.min(held.until) } else { held.until };
        let next = next.min(held.lease.valid_until());
        self.wake_at(c, next);
    }

    fn begin_extend(&mut self, c: usize) {
        let now = self.client_now(c);
        let quorum = self.scenario.quorum;
        let longer = self.rng.percent(40);
        let max = Duration::from_millis(self.scenario.terms_of(c).max_ttl_ms);
        let drift = if self.is(Mutant::NoDrift) { 0 } else { DRIFT_PPM };
        let mutant = self.scenario.mutant;
        let Some(held) = &mut self.clients[c].held else { return };
        let (ticket, token) = (held.ticket.clone(), held.lease.token());
        let mut terms = held.lease.terms();
        if longer {
            terms = LeaseTerms::new(max.max(terms.ttl()), drift).expect("terms");
        }
        let round = match mutant {
            Some(Mutant::ExtendShortens) => {
                terms = LeaseTerms::new(terms.ttl() / 2, drift).unwrap_or(terms);
                Ok(Round::extend(quorum, terms, held.lease.valid_until(), now))
            }
            Some(Mutant::ReviveLost) if !held.lease.is_valid(now) => Ok(Round::extend(quorum, terms, FAR, now)),
            _ => held.lease.begin_extend(quorum, terms, now),
        };
        let round = match round {
            Ok(round) => round,
            Err(ExtendRejected::Lost | ExtendRejected::WouldShorten) => return,
        };
        let id = self.fresh_id();
        tell!(self, "client {c} extends round {}", ticket.id);
        ticket.resent.set(true);
        let in_flight = RoundInFlight {
            id,
            purpose: Purpose::Extend,
            round,
            started_at: now,
            terms,
            token,
            ticket,
            decided: false,
        };
        self.launch(c, in_flight, Script::Extend, None);
    }

    pub(super) fn on_extend_decided(&mut self, c: usize, at: usize, won: bool) {
        let now = self.client_now(c);
        let in_flight = &self.clients[c].rounds_in_flight[at];
        let (ticket, terms, token) = (in_flight.ticket.clone(), in_flight.terms, in_flight.token);
        let (mut round, decided_at) = self.deciding_round(c, at, in_flight.round.clone(), now);
        let targets = round.must_release();
        let Some(held) = self.clients[c].held.as_mut().filter(|held| held.ticket.id == ticket.id) else { return };
        let before = (held.lease.is_valid(now), held.lease.valid_until());
        if won {
            if held.lease.settle(&mut round, decided_at) {
                held.renew_at = now.saturating_add(terms.ttl() / 3);
                self.stats.extends += 1;
            }
            tell!(self, "client {c} EXTENDED round {}", ticket.id);
            self.check_extended(c, before.0, before.1);
        } else if self.is(Mutant::FailedExtendDeletes) {
            self.release_in_background(c, &ticket, token, targets, terms);
        }
        if !self.clients[c].held.as_ref().is_none_or(|held| held.leaving) {
            self.tend_lease(c);
        }
    }

    /// P7: stops relying on the lease, then sends the release.
    pub(super) fn release_now(&mut self, c: usize) {
        let relies = self.is(Mutant::RelyWhileReleasing);
        let Some(mut held) = self.clients[c].held.take() else { return };
        let (ticket, token, terms) = (held.ticket.clone(), held.lease.token(), held.lease.terms());
        let mut targets = held.lease.release_targets();
        if self.is(Mutant::ReleaseSomeOnly) {
            targets = InstanceSet::first(self.scenario.quorum.votes());
        }
        if relies && !held.leaving {
            held.leaving = true;
            self.clients[c].held = Some(held);
        }
        tell!(self, "client {c} releases round {}", ticket.id);
        let open = |in_flight: &RoundInFlight| {
            in_flight.ticket.id == ticket.id && in_flight.round.replies().iter().any(Option::is_none)
        };
        if self.clients[c].rounds_in_flight.iter().any(open) {
            ticket.late_extend.set(true);
        }
        self.stats.releases += 1;
        self.clients[c].over.push(ticket.clone());
        self.let_go_in_background(c, &ticket, token, targets, terms);
        if !relies {
            let pause = self.rng.below(self.scenario.ttl_ms * MS / 3);
            self.wake(c, pause);
        }
    }

    /// The planted bug ends: the release was answered.
    pub(super) fn stop_relying(&mut self, c: usize, ticket: u32) {
        if self.clients[c].held.as_ref().is_some_and(|held| held.leaving && held.ticket.id == ticket) {
            self.clients[c].held = None;
            let pause = self.rng.below(self.scenario.ttl_ms * MS / 3);
            self.wake(c, pause);
        }
    }
}
