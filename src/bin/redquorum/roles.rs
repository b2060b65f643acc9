//! The roles in which this program starts itself again. They take no options.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use nix::sys::signal::{Signal, raise};

/// Becomes the command of `run`.
pub(crate) const EXEC: &str = "__exec";

/// Watches over `run`.
pub(crate) const WATCHDOG: &str = "__watchdog";

/// Ends by a signal.
pub(crate) const SIGNAL: &str = "__signal";

/// This very program, also where its file was replaced meanwhile.
pub(crate) fn own_program() -> io::Result<PathBuf> {
    if cfg!(target_os = "linux") { Ok("/proc/self/exe".into()) } else { std::env::current_exe() }
}

/// The last signal for real time, where there are most.
const MOST_SIGNAL: u8 = 127;

/// Ends by this signal, so that the parent sees what has ended this program: shells continue a script where a
/// program merely has a status. It comes back where that cannot be done, as for the first process of a container.
pub(crate) fn end_by(signal: i32) {
    // A signal that was caught once has its own effect again only in a fresh program, as far as safe code goes.
    if let Ok(program) = own_program() {
        let _ = Command::new(program).arg0("redquorum").arg(SIGNAL).arg(signal.to_string()).exec();
    }
}

/// The fresh program. The status for where the signal does not end it: it may be ignored from the start.
/// `None` where none is named.
pub(crate) fn be_ended(mut args: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    let number = args.next()?.to_str()?.parse::<u8>().ok().filter(|number| (1..=MOST_SIGNAL).contains(number))?;
    let status = ExitCode::from(number.saturating_add(128));
    // Those for real time have no names, by which safe code sends them.
    let Ok(signal) = Signal::try_from(i32::from(number)) else { return Some(status) };
    // The command may have left a core; this program is of no interest.
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_dumpable(false);
    for _ in 0..2 {
        let _ = raise(signal); // the runtime of Rust takes the first SIGSEGV for its own
    }
    Some(status)
}
