//! What a request is sent as that is alone in its write: a script, plain commands (P28), or one command by which the
//! server itself compares and deletes (P7).

use std::sync::atomic::Ordering;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisResult, Value};
use tokio::time::timeout;

use super::classify::server_cause;
use super::connection::InstanceConnection;
use super::sent_command::{Form, SentCommand};
use super::votes::Answered;
use crate::instance::{Claim, Request};
use crate::protocol::Cause;

/// Nobody writes it: its name is reserved, so that it is no lock's, and a user's rights cover it.
const NO_KEY: &str = "redquorum:never";

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
                if is_not_allowed(answer) {
                    self.compares.store(false, Ordering::Relaxed); // denied since it was asked (`may_compare`)
                }
                self.note_sign_of_life();
                // The request is counted already, its second command is not.
                let again = self.send(0, |attached| self.scripts().command(request, attached));
                // No silence if it is late: it had less time than a command has. The release is sent again as a script (P7).
                timeout(self.left(answered), again.result).await.ok()
            }
            _ => Some(result),
        }
    }
}

/// Whether this user may have the server compare, where it has a command for that: asked of a key that is never there.
/// Asked by a release, it would be answered too late: the script would go behind what was called after the release (P6).
pub(super) async fn may_compare(mut connection: MultiplexedConnection, has_command: bool) -> bool {
    let ask = redis::cmd("DELIFEQ").arg(NO_KEY).arg("").to_owned();
    has_command && matches!(connection.send_packed_command(&ask).await, Ok(answer) if !is_not_allowed(&answer))
}

/// The command is not known after all, or denied to this user; not that it may not be used on this key.
fn is_not_allowed(answer: &Value) -> bool {
    let Value::ServerError(error) = answer else { return false };
    match error.code() {
        "ERR" => true,
        code => matches!(server_cause(code, error.details().unwrap_or_default()), Cause::NoPermission(_)),
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
