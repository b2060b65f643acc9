//! What a server does wrong, or is made to say.

use crate::protocol::FencingToken;

/// What is wrong with a server that runs.
#[derive(Debug, Default)]
pub(super) struct Faults {
    /// It breaks the connection in place of so many answers to requests.
    pub(super) lost_replies: usize,
    /// The error that it answers every request with, and carries none out.
    pub(super) refusal: Option<String>,
    /// The token that it claims to have stored, for every acquire.
    pub(super) claimed: Option<FencingToken>,
}

impl Faults {
    /// Whether the next reply is one of those that get lost.
    pub(super) fn loses_reply(&mut self) -> bool {
        let is_lost = self.lost_replies > 0;
        self.lost_replies -= usize::from(is_lost);
        is_lost
    }
}
