//! Which process this is.
//!
//! A child by `fork()` has a copy of its parent's client: the same sockets, locks that the parent holds, and none of its
//! threads. It uses nothing of that. A mutex that another thread held at the fork is never free in the child, so this is looked
//! at before any is taken.

/// The process that built a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(u32);

/// This is a child of the process that built the client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forked;

impl Process {
    /// Another one, for tests.
    #[cfg(test)]
    pub(crate) const OTHER: Self = Self(0);

    /// The one that runs.
    pub(crate) fn this() -> Self {
        Self(std::process::id())
    }

    /// Whether another one runs now: a child of it.
    pub(crate) fn is_forked(self) -> bool {
        Self::this() != self
    }
}
