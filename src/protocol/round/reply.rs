//! What one instance answered (P5).

use std::time::Duration;

use crate::protocol::fencing::FencingToken;
use crate::protocol::round::cause::Cause;

/// The answer of one instance to a request of a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The vote: acquired, extended, or (for a release) deleted.
    Granted,
    /// The vote of an instance that did not have the key any more, or not yet, and that an extend has
    /// set it on again (P10). A grant that also says that the key was missing until now.
    Repaired,
    /// An instance in quarantine has extended a key that it kept (P10). A vote only if the same process has voted for the lease
    /// before, which [`CountedVotes`](crate::protocol::CountedVotes) decides: no round ever gets this.
    Kept {
        /// How long the instance is still in quarantine.
        remaining: Duration,
    },
    /// Another value has the key; for a release, the key was gone or foreign.
    Refused(Refusal),
    /// The proposed fencing token is not above the one that the instance stored (P12).
    Stale {
        /// The stored token.
        stored: FencingToken,
    },
    /// The instance may have forgotten locks and does not vote (P14).
    NotAdmitted {
        /// How long it will still sit out, as far as it is known.
        remaining: Option<Duration>,
    },
    /// The request did not leave this process, or certainly had no effect: nothing to release.
    NotSent(Cause),
    /// The request may or may not have been carried out.
    Unknown(Cause),
}

impl Reply {
    /// Whether the instance may hold the round's key after this reply.
    pub const fn may_hold_key(&self) -> bool {
        // P5: unknown may have set the key, and where several copies were sent a refusal may be the echo of
        // the first. Only what was not sent surely left nothing behind.
        !matches!(self, Self::NotSent(_))
    }
}

/// What a refusing instance reports about the key that it found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusal {
    /// The value of the key; `None` if it is gone (release) or no string.
    pub value: Option<Vec<u8>>,
    /// When the key expires: [`Duration::MAX`] for never; `None` if not reported.
    pub expires_in: Option<Duration>,
    /// The fencing token that the instance stored for the resource.
    pub token: Option<FencingToken>,
}
