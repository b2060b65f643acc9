//! Acquire: a round, one repeat if its token was stale, and a pause before the next try.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use redquorum::protocol::{FencingToken, InstanceSet, Lease, LeaseTerms, RetryDelay, Round, Value, Verdict};
use uuid::Uuid;

use super::{FirstSend, HeldLease, Purpose, RoundInFlight, Ticket};
use crate::instance::Script;
use crate::mutants::Mutant;
use crate::scenario::{DRIFT_PPM, MS};
use crate::world::{World, tell};

impl World {
    pub(crate) fn begin_acquire(&mut self, c: usize) {
        self.check_paid_up(c);
        let Ok(wall_us) = self.proposing_clock(c) else {
            return self.wake(c, self.scenario.ttl_ms * MS / 3); // P12: nobody knows which clock is wrong
        };
        self.forget_old_tokens(c);
        let is_woken = self.clients[c].woken_for.is_some();
        let keys = self.keys_to_ask_for(c);
        let ttl_ms = if self.rng.percent(80) { self.scenario.ttl_ms } else { self.scenario.ttl_ms / 2 };
        // Dangerous: a try of the same holder that ends before what it took over. Such a try may end before
        // a hung instance is given up, so it says nothing of progress.
        let is_short = self.scenario.holder_of(c).is_some() && self.rng.percent(40) && self.probing.is_none();
        let ttl_ms = if is_short { self.scenario.ttl_ms / 8 } else { ttl_ms };
        let ttl_ms = ttl_ms.min(self.scenario.terms_of(c).max_ttl_ms);
        let drift = if self.is(Mutant::NoDrift) { 0 } else { DRIFT_PPM };
        let ttl_ms = if self.is(Mutant::TtlAboveMax) { self.scenario.max_ttl_ms * 2 } else { ttl_ms };
        let terms = LeaseTerms::new(Duration::from_millis(ttl_ms), drift).expect("terms");
        let id = self.fresh_id();
        let value = self.draw_value(c, id);
        let ticket = Ticket {
            id,
            value,
            keys,
            late_extend: Cell::new(false),
            resent: Cell::new(false),
            is_plain: Cell::new(false),
            released: Cell::new(false),
        };
        let token = FencingToken::propose(wall_us, self.clients[c].last_token);
        self.clients[c].last_token = Some(token);
        let purpose = Purpose::Acquire { repeats: 0, before: InstanceSet::default() };
        // P28: who was refused lately, or knows that others want the lock, asks by script at once.
        let first =
            (!is_woken && self.rng.percent(75)).then(|| FirstSend { companion: self.draw_companion(c, keys, terms) });
        self.start_acquire(c, Rc::new(ticket), (token, terms), purpose, first.as_ref());
        if let Some(companion) = first.and_then(|first| first.companion) {
            self.drop_companion(c, &companion, terms);
        }
    }

    pub(super) fn draw_keys(&mut self) -> u8 {
        let all = (1u64 << self.scenario.resources) - 1;
        let mask = 1 + self.rng.below(all);
        u8::try_from(mask).unwrap_or(1)
    }

    /// P1: a value of its own for every round.
    pub(super) fn draw_value(&mut self, c: usize, id: u32) -> Rc<Value> {
        let holder = self.scenario.holder_of(c).unwrap_or_default();
        let fresh = Rc::new(Value::new(holder, Uuid::from_u128((c as u128) << 80 | u128::from(id)), ""));
        if self.is(Mutant::SameValue) {
            return self.clients[c].same_value.get_or_insert(fresh).clone();
        }
        fresh
    }

    fn start_acquire(
        &mut self,
        c: usize,
        ticket: Rc<Ticket>,
        (token, terms): (FencingToken, LeaseTerms),
        purpose: Purpose,
        first: Option<&FirstSend>,
    ) {
        let started_at = self.client_now(c);
        let mut round = Round::acquire(self.scenario.quorum, terms, started_at);
        if !self.is(Mutant::AnyTokenBelieved) {
            round = round.proposing(token, FencingToken::most_believed(token.clock_us()));
        }
        let id = self.fresh_id();
        tell!(self, "client {c} acquires {:03b}, round {}, token {token}", ticket.keys, ticket.id);
        let in_flight = RoundInFlight { id, purpose, round, started_at, terms, token, ticket, decided: false };
        self.launch(c, in_flight, Script::Acquire, first);
    }

    pub(super) fn on_acquired(&mut self, c: usize, at: usize) {
        let now = self.client_now(c);
        let in_flight = &self.clients[c].rounds_in_flight[at];
        let (terms, token, ticket, before) =
            (in_flight.terms, in_flight.token, in_flight.ticket.clone(), in_flight.before());
        let (mut round, decided_at) = self.deciding_round(c, at, in_flight.round.clone(), now);
        debug_assert_eq!(round.verdict(decided_at), Verdict::Won);
        let Some(lease) = Lease::from_won(&mut round, terms, token, decided_at) else { return };
        let lease = lease.add_release_targets(before);
        let until = now.saturating_add(terms.ttl() * u32::try_from(self.rng.below(25)).unwrap_or(0) / 10);
        let renews = self.rng.percent(70);
        // Dangerous: relied on up to the last instant.
        let until = if !renews && self.rng.percent(50) { now.saturating_add(terms.ttl() * 3) } else { until };
        let (until, renews) =
            if self.scenario.drill { (now.saturating_add(terms.ttl() * 3), true) } else { (until, renews) };
        let renew_at = now.saturating_add(terms.ttl() / 3);
        self.end_wait(c, &ticket);
        tell!(self, "client {c} WON {:03b}, round {}, token {token}", ticket.keys, ticket.id);
        let (leaving, is_succeeded, is_covered) = (false, false, true);
        self.clients[c].held =
            Some(HeldLease { lease, ticket, until, renew_at, renews, leaving, is_succeeded, is_covered });
        self.stats.wins += 1;
        self.history.probe_won |= self.probing == Some(c);
        self.check_win(c);
        self.after_win(c);
        if self.clients[c].held.is_some() && self.clients[c].alive {
            self.tend_lease(c);
        }
    }

    pub(super) fn on_not_acquired(&mut self, c: usize, at: usize) {
        let in_flight = &self.clients[c].rounds_in_flight[at];
        let (terms, ticket, purpose) = (in_flight.terms, in_flight.ticket.clone(), in_flight.purpose);
        let round = &in_flight.round;
        let seen = round.highest_seen().filter(|_| self.is(Mutant::AnyTokenBelieved));
        let targets = match self.scenario.mutant {
            Some(Mutant::LateGrantNotReleased) => round.granted(),
            _ => self.targets_after_loss(round, &ticket).union(in_flight.before()),
        };
        // Each repeat is for an instance that the one before had not heard from when it was decided.
        let most = if self.is(Mutant::OneRepeat) { 1 } else { self.servers.len() };
        let repeats = if let Purpose::Acquire { repeats, .. } = purpose { repeats } else { most };
        let again = round.stale_token().filter(|_| repeats < most);
        let expiry = expiry(round);
        let old_token = in_flight.token;
        self.clients[c].last_token = self.clients[c].last_token.max(seen);
        self.history.probe_repeats += usize::from(self.probing == Some(c) && again.is_some());
        if let Some(stored) = again {
            self.stats.stale_repeats += 1;
            let token = if self.is(Mutant::SameTokenAgain) { old_token } else { stored.next_grant() };
            let granted = round_grants(self, c, at);
            ticket.resent.set(true);
            let purpose = Purpose::Acquire { repeats: repeats + 1, before: targets };
            self.start_acquire(c, ticket, (token, terms), purpose, None);
            if self.is(Mutant::KeepOldGrants) {
                self.keep_grants(c, granted);
            }
            return;
        }
        self.announce(c, at);
        self.clients[c].over.push(ticket.clone());
        self.give_back_in_background(c, &ticket, old_token, targets, terms);
        let pause = self.pause_before_retry(expiry);
        self.wake(c, pause);
    }

    fn targets_after_loss(&self, round: &Round, ticket: &Ticket) -> InstanceSet {
        use redquorum::protocol::{InstanceId, Reply};
        // P23: what a holder's try took over is put back by a release alone.
        let may_be_echo = ticket.resent.get() || !ticket.value.holder_prefix().is_empty();
        let mut targets = if may_be_echo { round.must_release() } else { round.must_release_one_copy() };
        for id in InstanceId::all(round.replies().len()) {
            let reply = round.replies()[id.index()].as_ref().map(|answer| &answer.reply);
            let forget = match self.scenario.mutant {
                Some(Mutant::UnknownNotReleased) => matches!(reply, Some(Reply::Unknown(_))),
                Some(Mutant::RefusedNotReleased) => matches!(reply, Some(Reply::Refused(_))),
                _ => false,
            };
            if forget {
                targets.remove(id);
            }
        }
        targets
    }

    /// The planted bug: votes for the smaller token count for the larger one.
    fn keep_grants(&mut self, c: usize, granted: InstanceSet) {
        let now = self.client_now(c);
        let Some(in_flight) = self.clients[c].rounds_in_flight.last_mut() else { return };
        let id = in_flight.id;
        for instance in granted.iter() {
            in_flight.round.on_reply(instance, redquorum::protocol::Reply::Granted, now);
        }
        self.decide(c, id);
    }

    /// Tries again when the lock may be free: just then, or some time later.
    fn pause_before_retry(&mut self, expiry: Option<Duration>) -> u64 {
        let ttl = Duration::from_millis(self.scenario.ttl_ms);
        let random = u32::try_from(self.rng.next() >> 32).unwrap_or(0);
        let pause = RetryDelay::new(ttl / 20, ttl / 3).next(random);
        let ns = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        match expiry {
            // Dangerous: at the very instant of the expiry.
            Some(left) if left < pause && self.rng.percent(70) => ns(left) * 99 / 100 + MS / 2 + self.rng.below(MS),
            _ => ns(pause),
        }
    }
}

fn expiry(round: &Round) -> Option<Duration> {
    use redquorum::protocol::Reply;
    let left = |answer: &redquorum::protocol::TimedReply| match &answer.reply {
        Reply::Refused(refusal) => refusal.expires_in,
        _ => None,
    };
    round.replies().iter().flatten().filter_map(left).max()
}

fn round_grants(world: &World, c: usize, at: usize) -> InstanceSet {
    world.clients[c].rounds_in_flight[at].round.granted()
}
