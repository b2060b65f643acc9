//! The requests that an instance got.

use crate::instance::Request;

/// How many requests an instance has carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Requests {
    /// To acquire.
    pub acquire: usize,
    /// To extend, or to enter again.
    pub extend: usize,
    /// To release.
    pub release: usize,
}

impl Requests {
    /// All of them.
    #[must_use]
    pub const fn total(self) -> usize {
        self.acquire + self.extend + self.release
    }

    pub(super) const fn count(&mut self, request: &Request) {
        match request {
            Request::Acquire(_) => self.acquire += 1,
            Request::Extend(_) | Request::Keep(_) => self.extend += 1,
            Request::Release(..) => self.release += 1,
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
