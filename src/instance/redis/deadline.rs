//! The deadline of a step, by the round trips that it takes.

use std::future::Future;
use std::time::Duration;

use tokio::time::timeout;

use super::options::ConnectOptions;
use crate::protocol::Cause;

/// The shortest deadline of a step, however short the instance timeout.
const MIN_STEP: Duration = Duration::from_millis(500);

/// Why there is no connection.
pub(super) enum ConnectFailure {
    /// It did not answer in time, in this step.
    Late(&'static str),
    /// What answers at its address did not go on with TLS in time: a server without TLS waits for more.
    LateTls,
    /// It could not be reached, or answered something else.
    Failed(Cause),
}

impl ConnectFailure {
    pub(super) fn cause(self) -> Cause {
        match self {
            Self::Late(step) => Cause::NotConnected(format!("no answer in time while {step}")),
            Self::LateTls => {
                Cause::Tls("no answer to the TLS handshake in time: it may not speak TLS there".to_owned())
            }
            Self::Failed(cause) => cause,
        }
    }
}

/// Does `work`, which takes so many round trips, within a deadline for that.
pub(super) async fn within_trips<T>(
    options: &ConnectOptions,
    step: &'static str,
    trips: u32,
    work: impl Future<Output = Result<T, Cause>>,
) -> Result<T, ConnectFailure> {
    let limit = options.instance_timeout.saturating_mul(trips).max(MIN_STEP);
    match timeout(limit, work).await {
        Ok(done) => done.map_err(ConnectFailure::Failed),
        Err(_) => Err(ConnectFailure::Late(step)),
    }
}
