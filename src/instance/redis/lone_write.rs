//! What a request is sent as that is alone in its write: a script, plain commands (P28), or one command by which the
//! server itself compares and deletes (P7).

use std::sync::atomic::Ordering;

use redis::{Cmd, RedisResult, Value};
use tokio::time::timeout;

use super::connection::{Form, InstanceConnection, SentCommand};
use super::votes::Answered;
use crate::instance::{Claim, Request};

/// Sending requests one by one.
impl InstanceConnection {
    /// Sends one request, as plain commands if it may be.
    pub(super) fn send_one(&self, request: &Request) -> SentCommand {
        let now = self.what_is_known();
        if self.may_be_plain(request, &now) {
            return self.send_plain(1, now, Form::Plain, self.last_acquire().commands(request.claim()));
        }
        match claim_to_compare(request).filter(|_| self.compares.load(Ordering::Relaxed)) {
            Some(claim) => self.send_command((1, Form::Comparison), now, |_| delete_if_equal(claim)),
            None => self.send_command((1, Form::Script), now, |attached| self.scripts().command(request, attached)),
        }
    }

    /// The result of a request, or the script's for a release of which the server's comparison deleted nothing: that leaves
    /// the tombstone (P6), and is what a user may run who may not compare so. `None` if there was none in time.
    pub(super) async fn or_by_script(
        &self,
        request: &Request,
        result: RedisResult<Value>,
        answered: &Answered,
    ) -> Option<RedisResult<Value>> {
        match &result {
            Ok(answer) if answered.form == Form::Comparison && *answer != Value::Int(1) => {
                if matches!(answer, Value::ServerError(error) if matches!(error.code(), "ERR" | "NOPERM")) {
                    self.compares.store(false, Ordering::Relaxed); // not known after all, or denied to this user
                }
                // The request is counted already, its second command is not.
                let again = self.send(0, |attached| self.scripts().command(request, attached));
                let result = timeout(answered.left, again.result).await;
                if result.is_err() {
                    self.note_silence();
                }
                result.ok()
            }
            _ => Some(result),
        }
    }
}

/// The claim of a release for which it is enough to compare and delete: of one resource, without a holder, and for which
/// nothing was sent twice, so that there is no tombstone to leave where the key is found (P6).
fn claim_to_compare(request: &Request) -> Option<&Claim> {
    match request {
        Request::Release(claim) => Some(&**claim)
            .filter(|claim| !claim.resent && claim.resources.len() == 1 && claim.value.holder_prefix().is_empty()),
        _ => None,
    }
}

/// Answers how many keys it deleted: 1, or 0 where another value or none is there.
fn delete_if_equal(claim: &Claim) -> Cmd {
    let value = claim.value.as_bytes();
    let key = claim.resources.lock_keys().next().unwrap_or_default();
    let mut command = Cmd::with_capacity(3, 8 + key.len() + value.len());
    command.arg("DELIFEQ").arg(key).arg(value);
    command
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use uuid::Uuid;

    use super::*;
    use crate::protocol::Value as LockValue;

    /// Otherwise what was sent twice finds no tombstone, a second key stays, or what a holder took over is lost.
    #[test]
    fn only_a_usual_release_is_left_to_the_server_to_compare() {
        let usual = Claim::sample(1, &["a".to_owned()]);
        let compared = |request: fn(Arc<Claim>) -> Request, claim: &Claim| {
            claim_to_compare(&request(Arc::new(claim.clone()))).is_some()
        };
        assert!(compared(Request::Release, &usual));
        let two = Claim::sample(1, &["a".to_owned(), "b".to_owned()]);
        let of_holder = Claim { value: LockValue::new("me", Uuid::from_u128(1), ""), ..usual.clone() };
        for other in [Claim { resent: true, ..usual.clone() }, two, of_holder] {
            assert!(!compared(Request::Release, &other), "{other:?}");
        }
        for request in [Request::Acquire, Request::Extend, Request::Reenter, Request::GiveBack] {
            assert!(!compared(request, &usual));
        }
    }
}
