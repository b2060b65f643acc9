//! A write that is on its way, and what was known when it was sent.

use super::wire::Answer;
use super::write::Parts;
use crate::protocol::{AttachedRecord, Instant};

/// What is known of an instance as something is sent to it.
pub(super) struct KnownAtSending {
    pub(super) at: Instant,
    pub(super) attached: Option<AttachedRecord>,
    /// What its clock shows at least, in microseconds: a token that is ahead must not be stored (P12).
    pub(super) wall_us: u64,
}

/// A write in flight: when it was sent, with what record, and how many of its requests as what.
pub(super) struct SentWrite {
    pub(super) at: Instant,
    pub(super) attached: Option<AttachedRecord>,
    pub(super) parts: Parts,
    pub(super) answer: Answer,
}
