//! Why an instance gave no vote, and how requests end, as users see it.

use std::fmt;

use crate::protocol::{self, NotUsable, Reply};

/// What stood between a request and the vote of one instance; in words that say what to do.
#[derive(Clone, PartialEq, Eq)]
pub struct Cause(protocol::Cause);

impl Cause {
    /// Under which kind it is counted.
    #[must_use]
    pub const fn kind(&self) -> ReplyKind {
        ReplyKind::of_cause(&self.0)
    }
}

impl From<protocol::Cause> for Cause {
    fn from(cause: protocol::Cause) -> Self {
        Self(cause)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Says for each kind once what it is for and how metrics name it.
macro_rules! reply_kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal,)*) => {
        /// How a request to an instance ended.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum ReplyKind {
            $($(#[$doc])* $kind,)*
        }

        impl ReplyKind {
            /// All of them.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$kind),*];

            /// As metrics name it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                }
            }
        }
    };
}

reply_kinds! {
    /// The instance carried out the request.
    Granted = "granted",
    /// Another lock has the key, or there was nothing to release.
    Refused = "refused",
    /// It had stored a larger fencing token.
    StaleToken = "stale_token",
    /// It may have forgotten locks, or its record does not fit the client.
    NotAdmitted = "not_admitted",
    /// It did not answer within the instance timeout.
    TimedOut = "timed_out",
    /// There was no connection.
    NotConnected = "not_connected",
    /// The connection broke before the answer.
    Disconnected = "disconnected",
    /// Nothing was sent, as it had not answered for a while.
    Silent = "silent",
    /// Nothing was sent, as too many requests waited.
    Overloaded = "overloaded",
    /// It was loading its data.
    Loading = "loading",
    /// It was busy with a script.
    Busy = "busy",
    /// It was at its `maxmemory`.
    OutOfMemory = "out_of_memory",
    /// It is a replica.
    ReadOnly = "read_only",
    /// It cannot write: a disk that is full, say.
    CannotWrite = "cannot_write",
    /// The user lacks a right.
    Denied = "denied",
    /// Its clock is behind the token.
    ClockBehind = "clock_behind",
    /// Anything else.
    Other = "other",
}

impl ReplyKind {
    /// How a request ended that was answered so.
    pub(crate) const fn of(reply: &Reply) -> Self {
        match reply {
            Reply::Granted | Reply::Repaired => Self::Granted,
            Reply::Refused(_) => Self::Refused,
            Reply::Stale { .. } => Self::StaleToken,
            Reply::Kept { .. } | Reply::NotAdmitted { .. } => Self::NotAdmitted,
            Reply::NotSent(cause) | Reply::Unknown(cause) => Self::of_cause(cause),
        }
    }

    const fn of_cause(cause: &protocol::Cause) -> Self {
        match cause {
            protocol::Cause::TimedOut => Self::TimedOut,
            protocol::Cause::Unrecorded
            | protocol::Cause::NoVote
            | protocol::Cause::NotUsable(NotUsable::QuarantineBelowRecord { .. } | NotUsable::TtlAboveRecord { .. }) => {
                Self::NotAdmitted
            }
            protocol::Cause::Connecting
            | protocol::Cause::Forked
            | protocol::Cause::NotConnected(_)
            | protocol::Cause::Tls(_)
            | protocol::Cause::Certificate(_)
            | protocol::Cause::ClientCertificate(_)
            | protocol::Cause::TlsSettings(_)
            | protocol::Cause::NoCredentials(_)
            | protocol::Cause::NoMaster(_)
            | protocol::Cause::OtherProtocol(_)
            | protocol::Cause::NoHello(_)
            | protocol::Cause::PasswordNeeded
            | protocol::Cause::PasswordRefused
            | protocol::Cause::NoDatabase(_)
            | protocol::Cause::NoInfo(_)
            | protocol::Cause::NotUsable(_) => Self::NotConnected,
            protocol::Cause::Disconnected(_) => Self::Disconnected,
            protocol::Cause::Silent | protocol::Cause::Withdrawn => Self::Silent,
            protocol::Cause::Overloaded => Self::Overloaded,
            protocol::Cause::Loading => Self::Loading,
            protocol::Cause::Busy => Self::Busy,
            protocol::Cause::OutOfMemory => Self::OutOfMemory,
            protocol::Cause::ReadOnly => Self::ReadOnly,
            protocol::Cause::CannotWrite(_) => Self::CannotWrite,
            protocol::Cause::NoPermission(_) | protocol::Cause::KeyForbidden(_) => Self::Denied,
            protocol::Cause::ClockBehind { .. } => Self::ClockBehind,
            protocol::Cause::ScriptMissing
            | protocol::Cause::JustConnected
            | protocol::Cause::ClusterMode(_)
            | protocol::Cause::Server(_)
            | protocol::Cause::OddReply(_) => Self::Other,
        }
    }
}
