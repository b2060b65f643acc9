//! What can go wrong, and what to do about it.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why the kit could not do what was asked.
///
/// `Debug` prints the same text as `Display`, so that a test that ends in `?` shows the log of the server.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// This machine has no server.
    #[error(
        "no redis-server or valkey-server was found: run `make servers`, or set REDQUORUM_SERVER to the path of one"
    )]
    NoProgram,
    /// `REDQUORUM_SERVER` names something else.
    #[error("REDQUORUM_SERVER is {}, which is no Redis or Valkey server: correct it, or unset it", path.display())]
    BadOverride {
        /// Its value.
        path: PathBuf,
    },
    /// A server ended, or was not ready in time.
    #[error("{program} on port {port} {reason}; the end of its log:\n{log}")]
    Start {
        /// What was started.
        program: String,
        /// Where it was to listen.
        port: u16,
        /// What happened.
        reason: String,
        /// The last lines that it wrote.
        log: String,
    },
    /// The server was killed.
    #[error("the server on port {port} is not running: call restart() first")]
    NotRunning {
        /// Where it listened.
        port: u16,
    },
    /// The server answered a command with an error.
    #[error("the server refused: {0}")]
    Refused(String),
    /// The server's bytes are no RESP2.
    #[error("the server sent {0:?}, which is no RESP2")]
    Garbled(String),
    /// The system refused, or a deadline passed.
    #[error("could not {doing}: {source}")]
    Io {
        /// What the kit was at.
        doing: String,
        /// What the system said.
        source: io::Error,
    },
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error {
    /// Names what was being done, for `map_err`.
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }
}
