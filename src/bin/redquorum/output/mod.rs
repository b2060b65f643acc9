//! What people and other programs read.

mod table;
mod words;

use std::io::{Error, ErrorKind, IsTerminal, Write, stderr, stdout};
use std::process::ExitCode;
use std::time::Duration;

use redquorum::operator::ClockOffset;

use nix::sys::signal::Signal;

use crate::exit::{Code, Failure};
pub(crate) use table::{Look, Table, painted, with_colours};
pub(crate) use words::with_options;

/// Writes a message for people to standard error, with the options of the command line instead of calls of the library, and without
/// what a terminal would obey. Nothing can be done where that cannot be written.
pub(crate) fn say(message: &str) {
    let _ = writeln!(stderr(), "redquorum: {}", for_terminal(&with_options(message)));
}

fn for_terminal(text: &str) -> String {
    let escaped = |letter: char| {
        let is_obeyed = letter.is_control() && letter != '\n';
        let (as_it_is, escaped) = if is_obeyed { (None, Some(letter.escape_debug())) } else { (Some(letter), None) };
        as_it_is.into_iter().chain(escaped.into_iter().flatten())
    };
    text.chars().flat_map(escaped).collect()
}

/// Writes the result to standard output. A reader that does not read to the end, as `head`, gets what it wants: the program
/// ends as one that a closed pipe has ended.
pub(crate) fn write(text: &[u8]) -> Result<ExitCode, Failure> {
    let written = stdout().write_all(text).and_then(|()| stdout().flush());
    written.map(|()| ExitCode::SUCCESS).map_err(|error| not_written(&error))
}

/// Standard output could not be written.
pub(crate) fn not_written(error: &Error) -> Failure {
    match error.kind() {
        ErrorKind::BrokenPipe => Failure::new(Code::Signal(Signal::SIGPIPE as i32), ""),
        _ => Failure::new(Code::OsError, format!("standard output: {error}")),
    }
}

/// Whether standard output is read as it is written.
pub(crate) fn is_terminal() -> bool {
    stdout().is_terminal()
}

/// Writes one line for other programs.
pub(crate) fn write_json(value: &serde_json::Value) -> Result<ExitCode, Failure> {
    write(format!("{value}\n").as_bytes())
}

/// A short time for people: `7.2 s`, `1.3 ms`.
pub(crate) fn time(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match time {
        time if time >= Duration::from_secs(60) => format!("{} min {} s", time.as_secs() / 60, time.as_secs() % 60),
        time if time >= Duration::from_secs(1) => format!("{seconds:.1} s"),
        time if time >= Duration::from_millis(10) => format!("{:.0} ms", seconds * 1e3),
        _ => format!("{:.2} ms", seconds * 1e3),
    }
}

/// How far a clock is from this machine's: `+1.3 ms`.
pub(crate) fn offset(offset: ClockOffset) -> String {
    let sign = if matches!(offset, ClockOffset::Behind(_)) { '-' } else { '+' };
    format!("{sign}{}", time(offset.distance()))
}

/// A line on the terminal that is written again and again; nothing where standard error is no terminal.
#[derive(Debug)]
pub(crate) struct ProgressLine {
    is_shown: bool,
    is_terminal: bool,
}

/// Fits on every terminal: a line that wraps cannot be written again.
const MOST_CHARACTERS: usize = 79;

impl ProgressLine {
    pub(crate) fn new() -> Self {
        Self { is_shown: false, is_terminal: stderr().is_terminal() }
    }

    /// Whether a terminal shows it.
    pub(crate) const fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    pub(crate) fn show(&mut self, text: &str) {
        if self.is_terminal {
            let _ = write!(stderr(), "\r\x1b[K{}", cut(text));
            self.is_shown = true;
        }
    }

    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.clear();
    }
}

fn cut(text: &str) -> String {
    if text.chars().count() <= MOST_CHARACTERS {
        return text.to_owned();
    }
    text.chars().take(MOST_CHARACTERS - 2).chain("..".chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_as_exact_as_people_need_them() {
        let shown = |micros| time(Duration::from_micros(micros));
        assert_eq!([240, 12_400, 7_249_000, 61_000_000].map(shown), ["0.24 ms", "12 ms", "7.2 s", "1 min 1 s"]);
    }

    #[test]
    fn what_a_terminal_would_obey_is_escaped() {
        assert_eq!(for_terminal("a\u{1b}[31m \"b\"\r\n\tc"), "a\\u{1b}[31m \"b\"\\r\n\\tc");
    }

    #[test]
    fn a_line_that_is_written_again_does_not_wrap() {
        assert_eq!(cut(&"ä".repeat(79)), "ä".repeat(79));
        assert_eq!(cut(&"ä".repeat(80)), format!("{}..", "ä".repeat(77)));
    }
}
