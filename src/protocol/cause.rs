//! Why an instance gave no vote, in words that tell what to do.

use std::fmt;

use super::NotUsable;

/// What stood between a request and the vote of one instance.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// There is no connection; the text is the last error. Nothing was sent.
    NotConnected(String),
    /// The instance left several requests in a row without an answer and is only probed until it
    /// answers. Nothing was sent.
    Silent,
    /// Too many requests to the instance await an answer. Nothing was sent.
    Overloaded,
    /// The instance lost its scripts (`SCRIPT FLUSH`); they are being loaded. Nothing was done.
    ScriptMissing,
    /// No answer within the instance timeout. The request may have been carried out.
    TimedOut,
    /// The connection broke after sending. The request may have been carried out.
    Disconnected(String),
    /// The instance is loading its data.
    Loading,
    /// The instance is busy with a long script.
    Busy,
    /// The instance is at its `maxmemory`.
    OutOfMemory,
    /// The instance is a replica.
    ReadOnly,
    /// The instance cannot write for a reason of its own (disk, replicas).
    CannotWrite(String),
    /// The connection's user may not run what is needed.
    NoPermission(String),
    /// The instance is part of a Redis Cluster and does not serve the key.
    ClusterMode(String),
    /// Any other error of the instance.
    Server(String),
    /// The instance must not be used at all. Nothing was sent.
    NotUsable(NotUsable),
    /// An answer that no script of this library gives.
    OddReply(String),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotConnected(last) => write!(f, "not connected ({last}); check that it runs and can be reached"),
            Self::Silent => {
                write!(f, "silent: several requests in a row went unanswered; it is probed until it answers")
            }
            Self::Overloaded => write!(f, "too many requests to it await an answer; use fewer at once"),
            Self::ScriptMissing => write!(f, "its scripts were flushed and are being loaded again"),
            Self::TimedOut => write!(f, "no answer within the instance timeout"),
            Self::Disconnected(error) => write!(f, "the connection broke ({error})"),
            Self::Loading => write!(f, "loading its data; it answers when that is done"),
            Self::Busy => write!(f, "busy with a long script; see SCRIPT KILL"),
            Self::OutOfMemory => write!(f, "at its maxmemory; raise it or free keys"),
            Self::ReadOnly => write!(f, "a read-only replica; locks need a master at this address"),
            Self::CannotWrite(error) => write!(f, "cannot write: {error}"),
            Self::NoPermission(error) => {
                write!(f, "permission denied: {error}; grant the commands named in docs/operations.md")
            }
            Self::ClusterMode(error) => write!(f, "in cluster mode ({error}); locks need standalone masters"),
            Self::Server(error) => write!(f, "error: {error}"),
            Self::NotUsable(reason) => write!(f, "not usable: {reason}"),
            Self::OddReply(reply) => write!(f, "an answer that does not fit: {reply}"),
        }
    }
}
