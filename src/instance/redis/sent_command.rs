//! A command that is on its way, and what was known when it was sent.

use redis::{RedisResult, Value};

use super::driver::BoxFuture;
use super::scripts::batch::Leading;
use crate::protocol::{AttachedRecord, Instant};

/// What is known of an instance as something is sent to it.
pub(super) struct KnownAtSending {
    pub(super) at: Instant,
    pub(super) attached: Option<AttachedRecord>,
    /// What its clock shows at least, in microseconds: a token that is ahead must not be stored (P12).
    pub(super) wall_us: u64,
}

/// A command in flight: when it was sent, with what record, and its result.
pub(super) struct SentCommand {
    pub(super) at: Instant,
    pub(super) attached: Option<AttachedRecord>,
    pub(super) result: BoxFuture<RedisResult<Value>>,
    pub(super) form: Form,
}

/// What a command in flight is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// One script, for one request or several.
    Script,
    /// The plain commands of one acquire (P28).
    Plain,
    /// Scripts, and between them plain acquires: how many requests come first.
    Shared(Leading),
}

impl Form {
    /// Whether the request at this place of a write is a plain acquire among others.
    pub(super) fn shares_plain(self, at: usize) -> bool {
        let Self::Shared(Leading { releases, acquires }) = self else { return false };
        (releases..releases + acquires).contains(&at)
    }
}
