//! What can be wrong with an in-process instance, and what it has seen.

use std::time::Duration;

use crate::instance::Request;
use crate::protocol::{Cause, FencingToken};

/// What is wrong with an instance.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    pub(crate) stopped: bool,
    pub(crate) hang: Option<Hang>,
    /// Before a request is carried out, and between that and the answer.
    pub(crate) delays: (Duration, Duration),
    /// How many answers get lost with their connection.
    pub(crate) lost_replies: usize,
    pub(crate) refusal: Option<Cause>,
    /// The token that it claims to have stored for whatever is asked.
    pub(crate) lies: Option<FencingToken>,
}

/// How an instance hangs: connected, but without an answer. Each request to it then ends with the
/// instance timeout, and after three in a row its client sends nothing more until it is resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hang {
    /// The process stands still (SIGSTOP): requests are carried out, in order, when it goes on.
    Stopped,
    /// Requests arrive and are carried out at once, answers get lost.
    RepliesLost,
    /// Requests get lost.
    RequestsLost,
}

/// How many requests reached an instance: those to which nothing was sent do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Requests {
    /// To acquire.
    pub acquire: usize,
    /// To extend, or to enter again.
    pub extend: usize,
    /// To release, or to give back what a try took over.
    pub release: usize,
}

impl Requests {
    /// All of them.
    #[must_use]
    pub const fn total(self) -> usize {
        self.acquire + self.extend + self.release
    }

    pub(crate) const fn count(&mut self, request: &Request) {
        match request {
            Request::Acquire(_) => self.acquire += 1,
            Request::Extend(_) | Request::Reenter(_) => self.extend += 1,
            Request::Release(_) | Request::GiveBack(_) => self.release += 1,
        }
    }
}

impl std::ops::Add for Requests {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            acquire: self.acquire + other.acquire,
            extend: self.extend + other.extend,
            release: self.release + other.release,
        }
    }
}
