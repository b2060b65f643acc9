//! The usual acquire as plain commands in one write, which cost an instance less than a script (P28).

use std::sync::{Arc, Mutex, PoisonError};

use redis::{Cmd, Pipeline};

use super::scripts::command::millis;
use crate::instance::{Claim, Request};
use crate::protocol::{AttachedRecord, may_propose_plainly};
use crate::resource::{ADMISSION_KEY, TOKENS_KEY};

/// How many commands one takes that is alone in its write.
pub(super) const COMMANDS: usize = 5;

/// How many commands those take that share a write, besides one for each.
pub(super) const SHARED_COMMANDS: usize = 4;

/// How much of a value that stands in the way is asked for: what others put there may be megabytes.
pub(super) const MOST_OF_A_VALUE: u64 = 2048;

/// The commands of the acquire that was sent last: a round asks all instances for the same, one right after the other.
#[derive(Debug, Default)]
pub(super) struct LastAcquire(Mutex<Option<(Arc<Claim>, Arc<Pipeline>)>>);

impl LastAcquire {
    /// The commands of one that is alone in its write, put together only if the last was another.
    pub(super) fn commands(&self, claim: &Arc<Claim>) -> Arc<Pipeline> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((of, commands)) if Arc::ptr_eq(of, claim) => Arc::clone(commands),
            _ => {
                let commands = Arc::new(commands(claim));
                *last = Some((Arc::clone(claim), Arc::clone(&commands)));
                commands
            }
        }
    }
}

/// Whether it may go so to an instance with this record, whose clock shows at least `wall_us`: the first request of an
/// acquire, for one resource.
pub(super) fn may_be_plain(request: &Request, attached: Option<&AttachedRecord>, wall_us: u64) -> bool {
    let Request::Acquire(claim) = request else { return false };
    claim.is_first && claim.resources.len() == 1 && may_propose_plainly(claim.token, attached, wall_us)
}

/// The commands of one that is alone in its write. They are not one script, so their order matters: the record is read
/// behind everything else, and then still says that nothing was forgotten since the key was set (P28).
pub(crate) fn commands(claim: &Claim) -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(COMMANDS);
    let key = key_of(claim);
    set(&mut pipeline, claim);
    raise_tokens(&mut pipeline, &[claim]);
    pipeline.cmd("PEXPIRETIME").arg(key);
    read_beginning(&mut pipeline, key, MOST_OF_A_VALUE);
    pipeline.cmd("GET").arg(ADMISSION_KEY);
    pipeline
}

/// Adds the commands of several that share a write. The time is asked in front of the keys and behind them, so that a
/// step of the clock between shows (P17). Whose value stands in the way is asked later, of those that were refused.
pub(crate) fn add_shared(pipeline: &mut Pipeline, claims: &[&Claim]) {
    pipeline.cmd("TIME");
    claims.iter().for_each(|claim| set(pipeline, claim));
    raise_tokens(pipeline, claims);
    pipeline.cmd("TIME");
    pipeline.cmd("GET").arg(ADMISSION_KEY);
}

/// What stands in the way of each: two commands.
pub(super) fn what_is_there(claims: &[&Claim]) -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(2 * claims.len());
    for key in claims.iter().map(|claim| key_of(claim)) {
        read_beginning(&mut pipeline, key, MOST_OF_A_VALUE);
        pipeline.cmd("PTTL").arg(key);
    }
    pipeline
}

fn set(pipeline: &mut Pipeline, claim: &Claim) {
    let (key, value) = (key_of(claim), claim.value.as_bytes());
    let mut command = Cmd::with_capacity(6, 32 + key.len() + value.len());
    command.arg("SET").arg(key).arg(value).arg("NX").arg("PX").arg(millis(claim.ttl));
    pipeline.add_command(command);
}

/// Says how many of them are larger than what was stored.
fn raise_tokens(pipeline: &mut Pipeline, claims: &[&Claim]) {
    let bytes: usize = claims.iter().map(|claim| 16 + key_of(claim).len()).sum();
    let mut command = Cmd::with_capacity(4 + 2 * claims.len(), 32 + bytes);
    command.arg("ZADD").arg(TOKENS_KEY).arg("GT").arg("CH");
    for claim in claims {
        command.arg(claim.token.proposed_us()).arg(key_of(claim));
    }
    pipeline.add_command(command);
}

/// Reads so many bytes of a value at most.
pub(super) fn read_beginning(pipeline: &mut Pipeline, key: &[u8], most: u64) {
    pipeline.cmd("GETRANGE").arg(key).arg(0).arg(most - 1);
}

/// The key of its only resource.
fn key_of(claim: &Claim) -> &[u8] {
    claim.resources.lock_keys().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{AdmissionRecord, AdmissionTerms, FencingToken, ProcessIdentity, RecordOrigin};

    const NOW_US: u64 = 1_800_000_000_000_000;

    fn attached(quarantine_over: bool) -> AttachedRecord {
        let (identity, origin) = (ProcessIdentity::new("run", "replication"), RecordOrigin::Waits);
        let terms = AdmissionTerms::of_max_ttl(1_000);
        let record = AdmissionRecord { identity, vote_from_ms: 1, terms, origin, order: 1 };
        AttachedRecord::new(record, quarantine_over)
    }

    /// Otherwise a round would ask for the lock of the one before.
    #[test]
    fn the_commands_are_put_together_once_for_a_round_and_anew_for_the_next() {
        let last = LastAcquire::default();
        let [one, next] = [1, 2].map(|round| Arc::new(Claim::sample(round, &["a".to_owned()])));
        let of_one = last.commands(&one);
        assert!(Arc::ptr_eq(&of_one, &last.commands(&one)));
        assert_eq!(last.commands(&next).get_packed_pipeline(), commands(&next).get_packed_pipeline());
        assert_ne!(last.commands(&next).get_packed_pipeline(), of_one.get_packed_pipeline());
        assert_eq!(last.commands(&one).get_packed_pipeline(), of_one.get_packed_pipeline());
    }

    /// P28: read before the key is set, the record would vouch for what was forgotten in between.
    #[test]
    fn the_record_is_read_behind_everything_else() {
        let claim = Claim::sample(1, &["a".to_owned()]);
        let mut shared = Pipeline::new();
        add_shared(&mut shared, &[&claim]);
        let last = redis::cmd("GET").arg(ADMISSION_KEY).get_packed_command();
        for pipeline in [commands(&claim), shared] {
            assert!(pipeline.get_packed_pipeline().ends_with(&last));
        }
    }

    #[test]
    fn only_the_first_request_for_one_resource_of_an_instance_that_is_known_is_plain() {
        let usual = Claim { is_first: true, ..Claim::sample(1, &["a".to_owned()]) };
        let is_plain = |claim: &Claim, attached: Option<&AttachedRecord>| {
            may_be_plain(&Request::Acquire(Arc::new(claim.clone())), attached, NOW_US)
        };
        let known = attached(true);
        assert!(is_plain(&usual, Some(&known)));
        assert!(!is_plain(&usual, None), "admission is off, and the clock unknown");
        assert!(!is_plain(&usual, Some(&attached(false))));
        let two = Claim { is_first: true, ..Claim::sample(1, &["a".to_owned(), "b".to_owned()]) };
        let ahead = Claim { token: FencingToken::propose(2 * NOW_US, None), ..usual.clone() };
        for other in [Claim { is_first: false, ..usual.clone() }, two, ahead] {
            assert!(!is_plain(&other, Some(&known)));
        }
        for request in [Request::Extend, Request::Release] {
            assert!(!may_be_plain(&request(Arc::new(usual.clone())), Some(&known), NOW_US));
        }
    }
}
