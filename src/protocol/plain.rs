//! When an acquire may go as plain commands, and what their answers mean together (P28).

use crate::protocol::admission::known_record::AttachedRecord;
use crate::protocol::fencing::FencingToken;

/// What the commands of a plain acquire answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainAnswers {
    /// Whether `SET NX` set the key.
    pub is_set: bool,
    /// Whether `ZADD GT` stored the token, and that of each other acquire in the same command: it was larger than what was there.
    pub is_larger: bool,
    /// Whether the record that was read last is the one that the client knows.
    pub is_known_record: bool,
}

/// What they mean together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlainOutcome {
    /// The vote.
    Granted,
    /// Something is under the key already.
    Refused,
    /// The token, or another one in the same command, is not larger than the stored one.
    Stale,
    /// The instance has another record than the client knows.
    NotAdmitted,
}

impl PlainAnswers {
    /// A grant if and only if each says so.
    pub fn outcome(self) -> PlainOutcome {
        match self {
            Self { is_known_record: false, .. } => PlainOutcome::NotAdmitted, // P14
            Self { is_set: false, .. } => PlainOutcome::Refused,
            Self { is_larger: false, .. } => PlainOutcome::Stale, // P12
            _ => PlainOutcome::Granted,
        }
    }
}

/// Whether this token may be proposed by plain commands to an instance with this record, whose clock shows at least
/// `wall_us`. They compare neither the record's instant nor how far a token is ahead, so both must be known (P12, P14).
pub fn may_propose_plainly(token: FencingToken, attached: Option<&AttachedRecord>, wall_us: u64) -> bool {
    attached.is_some_and(|attached| attached.quarantine_over) && !token.is_ahead_of(wall_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of all combinations one is a grant.
    #[test]
    fn a_grant_takes_all_answers() {
        for bits in 0..8_u8 {
            let [is_set, is_larger, is_known_record] = [1, 2, 4].map(|bit| bits & bit != 0);
            let expected = match (is_known_record, is_set, is_larger) {
                (false, ..) => PlainOutcome::NotAdmitted,
                (true, false, _) => PlainOutcome::Refused,
                (true, true, false) => PlainOutcome::Stale,
                (true, true, true) => PlainOutcome::Granted,
            };
            assert_eq!(PlainAnswers { is_set, is_larger, is_known_record }.outcome(), expected, "{bits:03b}");
        }
    }
}
