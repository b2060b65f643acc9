//! When an acquire may go as plain commands, and what their answers mean together (P28).

use crate::protocol::admission::known_record::AttachedRecord;
use crate::protocol::fencing::FencingToken;

/// What `ZADD GT CH` said of the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenAnswer {
    /// It was larger than the stored one, and is stored.
    Raised,
    /// It was not, or it is not known which of several in one command were: then the stored one, if that was read.
    NotRaised(Option<FencingToken>),
}

/// What the commands of a plain acquire answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainAnswers {
    /// Whether `SET NX` set the key.
    pub is_set: bool,
    /// What became of the token.
    pub token: TokenAnswer,
    /// Whether the own value was under the key behind that.
    pub is_own: bool,
    /// The instance's clock, in microseconds since the Unix epoch.
    pub instance_us: Option<u64>,
    /// Whether the record that was read last is the one that the client knows.
    pub is_known_record: bool,
}

/// What they mean together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlainOutcome {
    /// The vote, and what the instance's clock showed.
    Granted {
        /// In microseconds since the Unix epoch.
        instance_us: u64,
    },
    /// Something is under the key already.
    Refused,
    /// The token is not larger than the stored one.
    Stale {
        /// What a repeat goes above.
        stored: FencingToken,
    },
    /// The instance has another record than the client knows.
    NotAdmitted,
    /// The key was set and is another one by now, or there is no clock: somebody deletes keys by hand.
    Odd,
}

impl PlainAnswers {
    /// A grant if and only if each says so. `proposed` is the token that was proposed, to an instance whose clock shows
    /// about `wall_us`.
    #[must_use]
    pub fn outcome(self, proposed: FencingToken, wall_us: u64) -> PlainOutcome {
        if !self.is_known_record {
            return PlainOutcome::NotAdmitted; // P14
        }
        match (self.is_set, self.token, self.instance_us) {
            (false, ..) => PlainOutcome::Refused,
            (true, TokenAnswer::Raised, Some(instance_us)) if self.is_own => PlainOutcome::Granted { instance_us },
            (true, TokenAnswer::NotRaised(stored), _) if self.is_own => {
                // A repeat above it helps, and does so where it counts for nothing: a script overwrites it (P12).
                let larger = stored.filter(|stored| !stored.is_ahead_of(wall_us));
                PlainOutcome::Stale { stored: larger.map_or(proposed, |stored| stored.max(proposed)) }
            }
            _ => PlainOutcome::Odd,
        }
    }
}

/// Whether this token may be proposed by plain commands to an instance with this record, whose clock shows at least
/// `wall_us`. They compare neither the record's instant nor how far a token is ahead, so both must be known (P12, P14).
#[must_use]
pub fn may_propose_plainly(token: FencingToken, attached: Option<&AttachedRecord>, wall_us: u64) -> bool {
    attached.is_some_and(|attached| attached.quarantine_over) && !token.is_ahead_of(wall_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_US: u64 = 1_800_000_000_000_000;

    /// Of all combinations one is a grant, and only what was set and is still there may be repeated.
    #[test]
    fn a_grant_takes_all_answers() {
        let proposed = FencingToken::propose(NOW_US, None);
        let (smaller, larger) = (FencingToken::propose(NOW_US - 1, None), FencingToken::propose(NOW_US + 1, None));
        let ahead = FencingToken::propose(2 * NOW_US, None);
        let stale = |stored| PlainOutcome::Stale { stored };
        let tokens = [
            (TokenAnswer::Raised, None),
            (TokenAnswer::NotRaised(None), Some(proposed)),
            (TokenAnswer::NotRaised(Some(smaller)), Some(proposed)),
            (TokenAnswer::NotRaised(Some(larger)), Some(larger)),
            (TokenAnswer::NotRaised(Some(ahead)), Some(proposed)),
        ];
        for (bits, (token, repeat)) in (0..16_u8).flat_map(|bits| tokens.map(|token| (bits, token))) {
            let [is_set, is_own, has_clock, is_known_record] = [1, 2, 4, 8].map(|bit| bits & bit != 0);
            let instance_us = has_clock.then_some(NOW_US);
            let outcome =
                PlainAnswers { is_set, token, is_own, instance_us, is_known_record }.outcome(proposed, NOW_US);
            let expected = match (is_known_record, is_set, is_own, repeat) {
                (false, ..) => PlainOutcome::NotAdmitted,
                (true, false, ..) => PlainOutcome::Refused,
                (true, true, true, Some(stored)) => stale(stored),
                (true, true, true, None) if has_clock => PlainOutcome::Granted { instance_us: NOW_US },
                _ => PlainOutcome::Odd,
            };
            assert_eq!(outcome, expected, "{bits:04b} {token:?}");
        }
    }
}
