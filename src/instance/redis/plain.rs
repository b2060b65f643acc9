//! The usual acquire as plain commands, which cost an instance less than a script (P28).

use redis::Pipeline;

use super::encode::Encoder;
use super::reply_bound::{RECORD, VALUE};
use crate::instance::{Claim, Request};
use crate::protocol::{AttachedRecord, may_propose_plainly};
use crate::resource::{ADMISSION_KEY, TOKENS_KEY};

/// How many commands a write of plain acquires takes besides one for each.
pub(super) const COMMANDS_BESIDE: usize = 3;

/// Whether it may go so to an instance with this record, whose clock shows at least `wall_us`: the first request of an
/// acquire.
pub(super) fn may_be_plain(request: &Request, attached: Option<&AttachedRecord>, wall_us: u64) -> bool {
    let Request::Acquire(claim) = request else { return false };
    claim.is_first && may_propose_plainly(claim.token, attached, wall_us)
}

/// Adds the commands of plain acquires. They are not one script, so their order matters: the time is asked behind the keys, so that a
/// step of the clock before shows (P17), and the record is read behind everything else, and then still says that nothing was
/// forgotten since the keys were set.
pub(super) fn add<'a>(commands: &mut Encoder<'_>, claims: impl ExactSizeIterator<Item = &'a Claim> + Clone) {
    commands.add_each("SET", 7, VALUE, claims.clone(), |words, claim| {
        words.key_to_set(claim);
    });
    commands.add("ZADD", 4 + 2 * claims.len(), 0, |words| {
        words.word(TOKENS_KEY).word("GT").word("CH");
        claims.for_each(|claim| _ = words.token_and_key(claim));
    });
    commands.add("TIME", 1, 0, |_| {});
    commands.add("GET", 2, RECORD, |words| _ = words.word(ADMISSION_KEY));
}

/// Reads so many bytes of a value at most.
pub(super) fn read_beginning(pipeline: &mut Pipeline, key: &[u8], most: u64) {
    pipeline.cmd("GETRANGE").arg(key).arg(0).arg(most - 1);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::protocol::{AdmissionRecord, FencingToken, ProcessIdentity, RecordOrigin};

    const NOW_US: u64 = 1_800_000_000_000_000;

    fn attached(quarantine_over: bool) -> AttachedRecord {
        let (identity, origin) = (ProcessIdentity::new("run", "replication"), RecordOrigin::Waits);
        let record = AdmissionRecord { identity, vote_from_ms: 1, longest_ttl_ms: 1_000, origin, order: 1 };
        AttachedRecord::new(record, quarantine_over)
    }

    /// P28: read before the key is set, the record would vouch for what was forgotten in between.
    #[test]
    fn the_record_is_read_behind_everything_else() {
        let (mut commands, claims) = (Vec::new(), [1, 2].map(|round| Claim::sample(round, "a")));
        add(&mut Encoder::new(&mut commands), claims.iter());
        assert!(commands.ends_with(&redis::cmd("GET").arg(ADMISSION_KEY).get_packed_command()));
    }

    #[test]
    fn only_the_first_request_of_an_acquire_on_an_instance_that_is_known_is_plain() {
        let usual = Claim { is_first: true, ..Claim::sample(1, "a") };
        let is_plain = |claim: &Claim, attached: Option<&AttachedRecord>| {
            may_be_plain(&Request::Acquire(Arc::new(claim.clone())), attached, NOW_US)
        };
        let known = attached(true);
        assert!(is_plain(&usual, Some(&known)));
        assert!(!is_plain(&usual, None), "admission is off, and the clock unknown");
        assert!(!is_plain(&usual, Some(&attached(false))));
        let ahead = Claim { token: FencingToken::propose(2 * NOW_US, None), ..usual.clone() };
        for other in [Claim { is_first: false, ..usual.clone() }, ahead] {
            assert!(!is_plain(&other, Some(&known)));
        }
        let usual = Arc::new(usual);
        for request in [Request::Extend(Arc::clone(&usual)), Request::Release(usual, None)] {
            assert!(!may_be_plain(&request, Some(&known), NOW_US));
        }
    }
}
