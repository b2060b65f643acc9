//! The usual acquire as plain commands in one write, which cost an instance less than a script (P28).

use redis::Pipeline;

use super::scripts::command::millis;
use crate::instance::{Claim, Request};
use crate::protocol::AttachedRecord;
use crate::resource::{ADMISSION_KEY, TOKENS_KEY};

/// How many commands it is.
pub(super) const COMMANDS: usize = 6;

/// How much of a value that stands in the way is asked for: what others put there may be megabytes.
const MOST_OF_A_VALUE: u64 = 2048;

/// Whether it may go so to an instance with this record, whose clock shows at least `wall_us`: the first request of an
/// acquire, for one resource and without a holder. An instance does not compare the record's instant, nor
/// how far a token is ahead; so both must be known (P12, P14).
pub(super) fn may_be_plain(request: &Request, attached: Option<&AttachedRecord>, wall_us: u64) -> bool {
    let Request::Acquire(claim) = request else { return false };
    claim.is_first
        && claim.resources.len() == 1
        && claim.value.holder_prefix().is_empty()
        && attached.is_some_and(|attached| attached.quarantine_over)
        && !claim.token.is_ahead_of(wall_us)
}

/// Its commands. They are not one script, so their order matters: the record is read behind everything else, and
/// then still says that nothing was forgotten since the key was set (P28).
pub(crate) fn commands(claim: &Claim) -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(COMMANDS);
    let key = claim.resources.lock_keys().next().unwrap_or_default();
    pipeline.cmd("SET").arg(key).arg(claim.value.as_bytes()).arg("NX").arg("PX").arg(millis(claim.ttl));
    pipeline.cmd("ZADD").arg(TOKENS_KEY).arg("GT").arg("CH").arg(claim.token.proposed_us()).arg(key);
    pipeline.cmd("ZSCORE").arg(TOKENS_KEY).arg(key);
    pipeline.cmd("PEXPIRETIME").arg(key);
    pipeline.cmd("GETRANGE").arg(key).arg(0).arg(MOST_OF_A_VALUE - 1);
    pipeline.cmd("GET").arg(ADMISSION_KEY);
    pipeline
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use uuid::Uuid;

    use super::*;
    use crate::protocol::{AdmissionRecord, FencingToken, ProcessIdentity, RecordOrigin, Value};

    const NOW_US: u64 = 1_800_000_000_000_000;

    fn attached(quarantine_over: bool) -> AttachedRecord {
        let (identity, origin) = (ProcessIdentity::new("run", "replication"), RecordOrigin::Waits);
        let record = AdmissionRecord { identity, vote_from_ms: 1, max_ttl_ms: 1_000, origin, order: 1 };
        AttachedRecord::new(record, quarantine_over)
    }

    #[test]
    fn only_the_first_request_for_one_resource_without_a_holder_of_an_instance_that_is_known_is_plain() {
        let usual = Claim { is_first: true, ..Claim::sample(1, &["a".to_owned()]) };
        let is_plain = |claim: &Claim, attached: Option<&AttachedRecord>| {
            may_be_plain(&Request::Acquire(Arc::new(claim.clone())), attached, NOW_US)
        };
        let known = attached(true);
        assert!(is_plain(&usual, Some(&known)));
        assert!(!is_plain(&usual, None), "admission is off, and the clock unknown");
        assert!(!is_plain(&usual, Some(&attached(false))));
        let two = Claim { is_first: true, ..Claim::sample(1, &["a".to_owned(), "b".to_owned()]) };
        let of_holder = Claim { value: Value::new("me", Uuid::from_u128(1), ""), ..usual.clone() };
        let ahead = Claim { token: FencingToken::propose(2 * NOW_US, None), ..usual.clone() };
        for other in [Claim { is_first: false, ..usual.clone() }, two, of_holder, ahead] {
            assert!(!is_plain(&other, Some(&known)));
        }
        for request in [Request::Extend, Request::Reenter, Request::Release, Request::GiveBack] {
            assert!(!may_be_plain(&request(Arc::new(usual.clone())), Some(&known), NOW_US));
        }
    }
}
