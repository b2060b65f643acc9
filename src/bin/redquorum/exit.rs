//! How the program ends: one status for each kind of failure, as in `sysexits.h` where that has one.

use std::ffi::OsString;
use std::io::{Write, stdout};
use std::process::ExitCode;

use redquorum::{AcquireError, BadRequest, BuildError, ConnectError};

use crate::output;
use crate::roles::end_by;

/// Why the program did not do its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    /// Something that was checked is not as it must be.
    Failed,
    /// No client has the lock, or leads.
    Free,
    /// The command line cannot be carried out as it is (`EX_USAGE`).
    Usage,
    /// Too few instances can be used (`EX_UNAVAILABLE`).
    NoQuorum,
    /// The operating system refused something (`EX_OSERR`).
    OsError,
    /// Another client has the lock (`EX_TEMPFAIL`), or the status of `-E`.
    Contended(u8),
    /// The file or the environment cannot be used (`EX_CONFIG`).
    Config,
    /// The lock was lost while the command ran.
    Lost,
    /// It was found to be lost when the command had ended by itself.
    LostAtTheEnd,
    /// The lock was lost, and something of the command that could not be ended may still run.
    Outlived,
    /// The command is there and cannot be run, as shells say it.
    CannotRun,
    /// The command is not there, as shells say it.
    NotFound,
    /// A signal ended it; where that cannot be shown as it is, as shells say it.
    Signal(i32),
}

impl Code {
    pub(crate) const CONTENDED: Self = Self::Contended(75);

    fn number(self) -> u8 {
        match self {
            Self::Failed | Self::Free => 1,
            Self::Usage => 64,
            Self::NoQuorum => 69,
            Self::OsError => 71,
            Self::Contended(code) => code,
            Self::Config => 78,
            Self::Lost | Self::LostAtTheEnd => 79,
            Self::Outlived => 80,
            Self::CannotRun => 126,
            Self::NotFound => 127,
            Self::Signal(signal) => u8::try_from(signal).unwrap_or(0).saturating_add(128),
        }
    }
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        code.number().into()
    }
}

/// What went wrong, for the status and for people.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    /// Nothing is said if it is empty.
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// Writes the message, and gives the status. A process that a signal has ended ends by that signal.
    pub(crate) fn report(self) -> ExitCode {
        if !self.message.is_empty() {
            output::say(&self.message);
        }
        if let Code::Signal(signal) = self.code {
            end_by(signal);
        }
        self.code.into()
    }
}

impl From<BuildError> for Failure {
    fn from(error: BuildError) -> Self {
        let message = match error {
            BuildError::Ttl(reason) => reason.to_string(),
            error => error.to_string(),
        };
        Self::new(Code::Config, message)
    }
}

impl From<BadRequest> for Failure {
    fn from(error: BadRequest) -> Self {
        Self::new(Code::Usage, error.to_string())
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        Self::new(Code::NoQuorum, error.to_string())
    }
}

impl From<AcquireError> for Failure {
    fn from(error: AcquireError) -> Self {
        let code = match &error {
            AcquireError::BadRequest(_) => Code::Usage,
            error if error.kind() == "no_randomness" => Code::OsError,
            error if error.is_contended() => Code::CONTENDED,
            _ => Code::NoQuorum,
        };
        Self::new(code, error.to_string())
    }
}

/// A user has started by hand what this program starts itself as.
pub(crate) fn not_for_people(role: &str) -> Failure {
    Failure::new(Code::Usage, format!("{role} is not for people"))
}

/// Whether a command may have been given to `run` without the `--` before it.
fn is_run_without_dashes(args: impl Iterator<Item = OsString>) -> bool {
    let args: Vec<OsString> = args.collect();
    args.iter().any(|arg| arg == "run") && !args.iter().any(|arg| arg == "--")
}

/// What the parser of the command line says: help and version are no failures.
pub(crate) fn of_parser(error: &clap::Error) -> ExitCode {
    let is_failure = error.use_stderr();
    // The parser looks for terminals and colours by itself.
    let printed = error.print().and_then(|()| stdout().flush());
    if is_failure && is_run_without_dashes(std::env::args_os().skip(1)) {
        output::say("the command of run stands behind --, as in: redquorum run -r job -- command arguments");
    }
    match printed {
        _ if is_failure => Code::Usage.into(),
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => output::not_written(&error).report(),
    }
}
