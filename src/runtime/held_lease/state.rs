//! What changes while a lease is held.

use std::sync::Arc;
use std::time::Duration;

use super::end::{LeaseEnd, LossLog, ObservedKeys};
use super::renewal_policy::RenewalPolicy;
use crate::clock::Clock;
use crate::instance::Claim;
use crate::protocol::{FencingToken, InstanceId, Instant, Lease, LeaseTerms, Reply, Round};
use crate::runtime::counters::Counters;

/// A lease that is held for as many of its ttls is long held.
const LONG_IN_TTLS: u32 = 100;

/// A round that was won: the lease, with what is needed to extend and release it.
#[derive(Debug)]
pub(crate) struct Acquired {
    pub(crate) lease: Lease,
    pub(crate) claim: Arc<Claim>,
    /// Whose it is; empty if nobody else may share it (P23).
    pub(crate) holder: Arc<str>,
    /// Where its loss is counted.
    pub(crate) counters: Arc<Counters>,
}

/// The place of a lease in the renewal schedule, which is ordered by `due`, then by `entry`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ScheduleKey {
    pub(crate) due: Instant,
    /// Counts up with everything that is scheduled, so that no two keys are the same.
    pub(crate) entry: u64,
}

/// Tells the guards of a lease apart.
pub(crate) type GuardNumber = u32;

/// What one guard wants of its lease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub(crate) terms: LeaseTerms,
    pub(crate) renewal: RenewalPolicy,
}

/// A guard that a caller has.
#[derive(Clone, Copy, Debug)]
pub(super) struct GuardEntry {
    pub(super) number: GuardNumber,
    renewal: RenewalPolicy,
    /// When it ends, whatever becomes of the lease: one ttl after it is renewed for the last time (P23).
    pub(super) ends_at: Option<Instant>,
}

/// What changes while a lease is held; behind the mutex of its [`HeldLease`](super::HeldLease).
#[derive(Debug)]
pub(crate) struct HeldLeaseState {
    pub(crate) lease: Lease,
    pub(crate) claim: Arc<Claim>,
    /// The token of the present tenure (P24).
    pub(super) token: FencingToken,
    pub(super) guards: usize,
    /// Those of them that callers have.
    pub(super) entries: Vec<GuardEntry>,
    pub(super) last_number: GuardNumber,
    /// The longest terms that a guard has asked for.
    longest: LeaseTerms,
    /// How many of them no caller has collected yet.
    pub(super) uncollected: usize,
    /// Whether it ever had a second guard (P23): then it is not handed over.
    pub(super) was_shared: bool,
    /// Counts the hand-overs (P24).
    pub(super) tenure: u32,
    /// Since when its guards have it.
    pub(super) since: Instant,
    /// Whether the log says that it is held for long.
    pub(super) is_long_told: bool,
    /// Whether a caller ever had a guard of it.
    pub(super) is_collected: bool,
    /// Whether it was handed over since, and whoever has it next gets a larger token (P24).
    pub(super) needs_token: bool,
    /// Whether the keys are left to expire.
    pub(super) keeps_keys: bool,
    /// Whether it was lost, and what was left of it was released.
    pub(super) is_swept: bool,
    pub(super) end: Option<LeaseEnd>,
    /// Its loss, which is none until a caller has it.
    pub(super) untold: Option<Box<LossLog>>,
    /// The renewal whose replies are outstanding.
    pub(crate) renewal: Option<Box<Round>>,
    pub(crate) renewal_started_at: Instant,
    pub(super) observed: ObservedKeys,
    /// The last round that did not extend it.
    pub(super) failed: Option<Arc<Round>>,
    pub(crate) schedule_key: Option<ScheduleKey>,
    /// Its place among the leases that guards have.
    pub(crate) adoption: Option<u64>,
    /// Whether its keys are in the table of watched keys.
    pub(crate) is_watched: bool,
}

impl HeldLeaseState {
    /// With one guard, which no caller has collected yet.
    pub(super) fn new(acquired: Acquired) -> Self {
        let terms = acquired.lease.terms();
        let since = acquired.lease.valid_until().saturating_sub(terms.ttl().saturating_sub(terms.drift()));
        Self {
            since,
            is_long_told: false,
            token: acquired.claim.token,
            lease: acquired.lease,
            claim: acquired.claim,
            guards: 1,
            entries: Vec::new(),
            last_number: 0,
            longest: terms,
            uncollected: 1,
            was_shared: false,
            tenure: 0,
            is_collected: false,
            needs_token: false,
            keeps_keys: false,
            is_swept: false,
            end: None,
            untold: None,
            renewal: None,
            renewal_started_at: Instant::ZERO,
            observed: ObservedKeys::default(),
            failed: None,
            schedule_key: None,
            adoption: None,
            is_watched: false,
        }
    }

    pub(crate) const fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// Whether a caller has a guard of it. Else it is not renewed (P22).
    pub(crate) const fn is_collected_now(&self) -> bool {
        self.guards > self.uncollected
    }

    /// A caller has one of its guards from now on. Nobody else's wish counts (P22).
    pub(super) fn add_entry(&mut self, wish: Wish) -> GuardNumber {
        self.last_number += 1;
        self.longest = self.longest.longer(wish.terms);
        let ends_at = wish.renewal.not_after.map(|not_after| wish.terms.valid_until(not_after));
        self.entries.push(GuardEntry { number: self.last_number, renewal: wish.renewal, ends_at });
        self.last_number
    }

    pub(super) fn entry(&mut self, number: GuardNumber) -> Option<&mut GuardEntry> {
        self.entries.iter_mut().find(|entry| entry.number == number)
    }

    /// For how long it is renewed: while one of its guards wants that (P23).
    pub(crate) fn policy(&self) -> RenewalPolicy {
        let wishes = self.entries.iter().map(|entry| entry.renewal);
        wishes.reduce(RenewalPolicy::longer).unwrap_or(RenewalPolicy::NEVER)
    }

    /// The terms of its renewals: with the longest ttl that a guard has asked for (P23).
    pub(crate) fn renewal_terms(&self) -> LeaseTerms {
        self.lease.terms().longer(self.longest)
    }

    /// A guard is not one any more that nobody has collected.
    pub(crate) const fn note_collected(&mut self) {
        self.uncollected = self.uncollected.saturating_sub(1);
    }

    /// How long it may still be relied on; zero once it has ended.
    pub(super) fn remaining(&self, clock: &dyn Clock) -> Duration {
        if self.has_ended() { Duration::ZERO } else { self.lease.remaining(clock.now()) }
    }

    /// Records what one instance answered, at `answered`, to a request for the lease that was sent at `sent` (P20).
    pub(super) fn note_reply(&mut self, id: InstanceId, reply: &Reply, sent: Instant, answered: Instant) {
        match reply {
            Reply::Repaired => self.observe(id, None, sent),
            Reply::Refused(refusal) => self.observe(id, refusal.value.clone(), sent),
            _ => {}
        }
        self.lease.note_reply(id, reply, sent, answered);
    }

    /// Records that an instance that was asked at `sent` had something else in its place (P20).
    pub(super) fn note_missing(&mut self, id: InstanceId, value: Option<Vec<u8>>, sent: Instant) {
        self.observe(id, value, sent);
        self.lease.note_missing(id, sent);
        self.claim.votes.lock().forget(id, sent);
    }

    /// What an instance has that had not granted the lease was there before it, and tells nothing of its end.
    fn observe(&mut self, id: InstanceId, value: Option<Vec<u8>>, sent: Instant) {
        if self.lease.had_key(id, sent) {
            self.observed.record(id, value);
        }
    }

    /// Takes in the end of a round at `now`, read after this was locked: the validity that is left, if
    /// the round moved it on.
    pub(crate) fn settle(&mut self, round: &mut Round, now: Instant) -> Option<Duration> {
        if self.has_ended() || !self.lease.settle(round, now) {
            return None;
        }
        self.observed.keep_only(self.lease.absent());
        self.failed = None;
        Some(self.lease.remaining(now))
    }

    /// Records a round that did not extend it; whether it is the first since one did.
    pub(crate) fn note_failure(&mut self, round: &Round) -> bool {
        self.failed.replace(Arc::new(round.clone())).is_none()
    }

    /// Whether it has been renewed for so long, without a bound, that somebody should look at it; true once.
    pub(crate) fn is_long_held(&mut self, now: Instant) -> bool {
        let longest = self.lease.terms().ttl().saturating_mul(LONG_IN_TTLS);
        let is_long = self.policy().not_after.is_none() && now.saturating_since(self.since) >= longest;
        is_long && !std::mem::replace(&mut self.is_long_told, true)
    }

    /// For how long its guards have had it.
    pub(super) fn held_for(&self, now: Instant) -> Duration {
        now.saturating_since(self.since)
    }

    /// The claim of an extend with this ttl: a release must know of it, before it is sent (P6).
    pub(crate) fn claim_to_extend(&mut self, ttl: Duration) -> Arc<Claim> {
        if ttl != self.claim.ttl || !self.claim.resent {
            self.claim = Arc::new(Claim { ttl, resent: true, ..Claim::clone(&self.claim) });
        }
        Arc::clone(&self.claim)
    }
}
