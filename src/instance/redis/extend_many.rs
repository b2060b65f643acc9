//! Many leases in one command: renewals, and looks at what is being watched.

use std::future::ready;
use std::sync::Arc;

use redis::Value;
use tokio::time::timeout;

use super::classify::{classify_look, classify_renewal};
use super::connection::Link;
use super::driver::queued;
use crate::instance::{Claim, Look, Renewal, Sight};
use crate::protocol::{Cause, Reply};

impl Link {
    /// Queues one command that extends all `claims`.
    ///
    /// It does not wait in the lane: a release that is called later is sent later in any case (P6).
    pub(super) fn renew(self: &Arc<Self>, claims: Vec<Arc<Claim>>) -> Renewal {
        let count = claims.len();
        if self.is_silent() {
            return Box::pin(ready(vec![Some(Reply::NotSent(Cause::Silent)); count]));
        }
        self.note_request();
        let sent = self.send(|named| self.scripts().renew(&claims, named));
        let link = Arc::clone(self);
        Box::pin(async move {
            let Ok(result) = timeout(link.deadline(), sent.result).await else {
                link.note_silence();
                return vec![Some(Reply::Unknown(Cause::TimedOut)); count]; // P5
            };
            let (raw, others) = classify_renewal(count, result);
            let reply = link.judge(raw, true, sent.at, sent.named.as_ref());
            let granted = reply == Reply::Granted;
            (0..count).map(|place| Some(reply.clone()).filter(|_| !granted || !others.contains(&place))).collect()
        })
    }

    /// Queues one look at all keys of `claims`, and asks for a push when any of them changes.
    pub(super) fn look(self: &Arc<Self>, claims: Vec<Arc<Claim>>) -> Look {
        let unknown = vec![Sight::Unknown; claims.len()];
        if self.is_silent() || !self.is_tracking() {
            return Box::pin(ready(unknown));
        }
        let mut both = redis::pipe();
        both.cmd("CLIENT").arg("CACHING").arg("YES").ignore().cmd("MGET");
        for key in claims.iter().flat_map(|claim| claim.resources.lock_keys()) {
            both.arg(key);
        }
        let mut connection = self.connection();
        let result = queued(async move { both.query_async::<Vec<Value>>(&mut connection).await });
        let deadline = self.deadline();
        Box::pin(async move {
            match timeout(deadline, result).await {
                Ok(Ok(values)) => classify_look(&claims, values.first()).unwrap_or(unknown),
                // Requests find out what is wrong with the connection; this is only a look.
                Ok(Err(_)) | Err(_) => unknown,
            }
        })
    }
}
