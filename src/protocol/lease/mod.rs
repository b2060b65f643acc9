//! The lease that a won round leads to (P2, P8, P9).

pub(super) mod counted_votes;
mod key_presence;
pub(super) mod schedule;

use std::time::Duration;

use self::key_presence::KeyPresence;
use crate::protocol::instance_set::{InstanceId, InstanceSet};
use crate::protocol::quorum::{Quorum, Verdict};
use crate::protocol::round::Round;
use crate::protocol::round::reply::Reply;
use crate::protocol::terms::LeaseTerms;
use crate::protocol::time::Instant;

/// The right to rely on a lock after a won round, and how long it lasts by the client's own clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    terms: LeaseTerms,
    valid_until: Instant,
    release_targets: InstanceSet,
    /// When the last round that won was begun.
    won_at: Instant,
    quorum: Quorum,
    presence: KeyPresence,
}

/// Why a lease cannot be extended on the new terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtendRejected {
    /// Its validity has passed: it is lost and stays lost (P9).
    Lost,
    /// The ttl is below the lease's own: instances that granted would drop the key before the
    /// validity that the lease still has, should the round fail.
    WouldShorten,
}

impl Lease {
    /// The lease that an acquire round has won; `None` if it has not.
    #[must_use]
    pub fn from_won(round: &mut Round, terms: LeaseTerms, now: Instant) -> Option<Self> {
        (round.verdict(now) == Verdict::Won).then(|| {
            let mut lease = Self {
                terms,
                valid_until: round.valid_until(),
                release_targets: round.must_release(),
                won_at: round.started_at(),
                quorum: round.quorum(),
                presence: KeyPresence::new(round.quorum()),
            };
            lease.note_replies(round);
            lease
        })
    }

    /// The terms of the last round that was begun for it.
    pub const fn terms(&self) -> LeaseTerms {
        self.terms
    }

    /// Until when it may be relied on.
    pub const fn valid_until(&self) -> Instant {
        self.valid_until
    }

    /// Whether it may be relied on at `now`.
    pub fn is_valid(&self, now: Instant) -> bool {
        now < self.valid_until
    }

    /// How long it may still be relied on.
    pub const fn remaining(&self, now: Instant) -> Duration {
        self.valid_until.saturating_since(now)
    }

    /// The instances that may hold its key: those that a release must reach (P6, P7).
    pub const fn release_targets(&self) -> InstanceSet {
        self.release_targets
    }

    /// Adds instances that an earlier send of the same value reached (P12).
    #[must_use]
    pub const fn add_release_targets(mut self, before: InstanceSet) -> Self {
        self.release_targets = self.release_targets.union(before);
        self
    }

    /// Begins a round that would move the validity forward.
    ///
    /// From here on every instance is a target of the release, because an extend may set the key again where
    /// it is missing (P10); a cancelled extend leaves it at that.
    ///
    /// # Errors
    /// When the lease is lost, or `terms` are shorter than its own.
    pub fn begin_extend(&mut self, quorum: Quorum, terms: LeaseTerms, now: Instant) -> Result<Round, ExtendRejected> {
        if !self.is_valid(now) {
            return Err(ExtendRejected::Lost); // P9: never back to held
        }
        if terms.ttl() < self.terms.ttl() {
            return Err(ExtendRejected::WouldShorten);
        }
        self.terms = terms;
        self.release_targets = InstanceSet::first(quorum.instances());
        Ok(Round::extend(quorum, terms, self.valid_until, now))
    }

    /// Takes in the answers of a round for the lease so far, its acquire or an extend, whether it was
    /// won or not and also past its verdict. May be called after every answer.
    pub fn note_replies(&mut self, round: &Round) {
        for (id, answer) in round.answers() {
            self.note_reply(id, &answer.reply, round.started_at(), round.answered_at(answer));
        }
    }

    /// Takes in what an instance answered, at `answered`, to a request of such a round.
    pub fn note_reply(&mut self, id: InstanceId, reply: &Reply, sent: Instant, answered: Instant) {
        match reply {
            Reply::Granted => self.presence.note_present(id, sent, answered),
            Reply::Repaired => self.presence.note_repaired(id, sent, answered),
            Reply::Refused(_) => self.presence.note_missing(id, sent),
            Reply::Kept { .. }
            | Reply::Stale { .. }
            | Reply::NotAdmitted { .. }
            | Reply::NotSent(_)
            | Reply::Unknown(_) => {}
        }
    }

    /// Takes in that an instance was asked at `sent`, besides any round, and had the key, as it answered at `answered`.
    pub fn note_present(&mut self, id: InstanceId, sent: Instant, answered: Instant) {
        self.presence.note_present(id, sent, answered);
    }

    /// Takes in that an instance was asked at `sent`, besides any round, and did not have the key.
    pub fn note_missing(&mut self, id: InstanceId, sent: Instant) {
        self.presence.note_missing(id, sent);
    }

    /// Whether an instance that was asked at `sent` is known to have had its key before.
    pub fn had_key(&self, id: InstanceId, sent: Instant) -> bool {
        self.presence.had_by(id, sent)
    }

    /// Whether the replies show that no quorum can have kept the lease (P20): at one moment so many
    /// may have been without its key that another client may have held the lock.
    ///
    /// That they have it again, as a repair leaves it, does not undo that.
    pub fn no_quorum_has_key(&self) -> bool {
        self.quorum.is_out_of_reach(self.presence.most_absent())
    }

    /// The instances that were found without its key at a time that still counts.
    pub fn absent(&self) -> InstanceSet {
        self.presence.absent()
    }

    /// The instances that the lease rests on: those that granted the last round that won, or later, and
    /// that have not been found without its key since.
    pub fn rests_on(&self) -> InstanceSet {
        self.presence.present(self.won_at)
    }

    /// Takes in the end of an extend round: only a victory moves the validity, only forward, and only
    /// while the lease is still valid at `now` (P9), however long ago the verdict fell.
    ///
    /// A round that was not won changes nothing (P8): the lease stays valid as long as it was, and
    /// extending may be tried again until then.
    pub fn settle(&mut self, round: &mut Round, now: Instant) -> bool {
        let won = round.verdict(now) == Verdict::Won && self.is_valid(now);
        if won {
            self.valid_until = self.valid_until.max(round.valid_until());
            self.won_at = self.won_at.max(round.started_at());
        }
        won
    }
}
