//! What a won round gives (P2, P8, P9).

use std::time::Duration;

use super::{FencingToken, InstanceId, InstanceSet, Instant, Quorum, Round, Terms, Verdict};

/// The right that a won round gives, and how long it lasts by the client's own clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    token: FencingToken,
    terms: Terms,
    valid_until: Instant,
    asked: InstanceSet,
    /// The instances that were seen without its key outside of a round, and when last.
    missing: InstanceSet,
    missing_at: Instant,
}

/// Why a lease cannot be extended on the asked terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtendRefused {
    /// Its validity has passed: it is lost and stays lost (P9).
    Lost,
    /// The ttl is below the lease's own: instances that granted would drop the key before the
    /// validity that the lease still has, should the round fail.
    Shorter,
}

impl Lease {
    /// The lease that an acquire round has won; `None` if it has not.
    #[must_use]
    pub fn from_won(round: &mut Round, terms: Terms, token: FencingToken, now: Instant) -> Option<Self> {
        (round.verdict(now) == Verdict::Won).then(|| Self {
            token,
            terms,
            valid_until: round.valid_until(),
            asked: round.must_release(),
            missing: InstanceSet::default(),
            missing_at: Instant::ZERO,
        })
    }

    /// The token that every grant of the round carried.
    #[must_use]
    pub const fn token(&self) -> FencingToken {
        self.token
    }

    /// The terms of the last round that was begun for it.
    #[must_use]
    pub const fn terms(&self) -> Terms {
        self.terms
    }

    /// Until when it may be relied on.
    #[must_use]
    pub const fn valid_until(&self) -> Instant {
        self.valid_until
    }

    /// Whether it may be relied on at `now`.
    #[must_use]
    pub fn is_valid(&self, now: Instant) -> bool {
        now < self.valid_until
    }

    /// How long it may still be relied on.
    #[must_use]
    pub const fn remaining(&self, now: Instant) -> Duration {
        self.valid_until.saturating_since(now)
    }

    /// The instances that may hold its key: those that a release must reach (P6, P7).
    #[must_use]
    pub const fn asked(&self) -> InstanceSet {
        self.asked
    }

    /// Counts instances as asked that an earlier send of the same value reached (P12).
    #[must_use]
    pub const fn also_asked(mut self, before: InstanceSet) -> Self {
        self.asked = self.asked.union(before);
        self
    }

    /// Begins a round that would move the validity forward.
    ///
    /// From here on every instance counts as asked, because an extend may set the key again where
    /// it is missing (P10); a cancelled extend leaves it at that.
    ///
    /// # Errors
    /// When the lease is lost, or `terms` are shorter than its own.
    pub fn begin_extend(&mut self, quorum: Quorum, terms: Terms, now: Instant) -> Result<Round, ExtendRefused> {
        if !self.is_valid(now) {
            return Err(ExtendRefused::Lost); // P9: never back to held
        }
        if terms.ttl() < self.terms.ttl() {
            return Err(ExtendRefused::Shorter);
        }
        self.terms = terms;
        self.asked = InstanceSet::first(quorum.instances());
        Ok(Round::extend(quorum, terms, self.valid_until, now))
    }

    /// Whether the answers of an extend round, with what was seen besides, show that no quorum has
    /// kept the lease (P20): so many instances did not have its key that another client may have
    /// held the lock meanwhile.
    ///
    /// That they have it again, as a repair leaves it, does not undo that.
    #[must_use]
    pub fn is_gone(&self, round: &Round) -> bool {
        round.quorum().is_out_of_reach(round.gone().union(self.missing).len())
    }

    /// Takes in that an instance was asked at `sent` and did not have the key; whether the lease is
    /// gone with that (P20). A round that is begun later and won puts it right.
    pub fn note_missing(&mut self, id: InstanceId, quorum: Quorum, sent: Instant) -> bool {
        self.missing.insert(id);
        self.missing_at = self.missing_at.max(sent);
        quorum.is_out_of_reach(self.missing.len())
    }

    /// Takes in the end of an extend round: only a victory moves the validity, and only forward.
    ///
    /// A round that was not won changes nothing (P8): the lease stays valid as long as it was, and
    /// extending may be tried again until then.
    pub fn settle(&mut self, round: &mut Round, now: Instant) -> bool {
        let won = round.verdict(now) == Verdict::Won;
        if won {
            self.valid_until = self.valid_until.max(round.valid_until());
            if round.started_at() > self.missing_at {
                self.missing = InstanceSet::default();
            }
        }
        won
    }
}
