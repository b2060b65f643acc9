//! A process beside this program that kills the command when this program cannot: it was killed itself, or stopped.
//!
//! It reads from a socket, in lines, which process group to kill and when, on the clock that all processes share. Where the
//! lines end this program is gone, and the group is killed at once.

use std::io::{self, BufRead, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use nix::unistd::Pid;

use super::group::Group;
use crate::clock::since_boot;
use crate::exit::{Code, Failure, not_for_people};
use crate::roles::{WATCHDOG, own_program};
use crate::settings::SECRETS;

/// How often it looks at the clock: its own waits stand still while the machine sleeps.
const LONGEST_WAIT: Duration = Duration::from_millis(250);

/// What this program has of it.
#[derive(Debug)]
pub(super) struct Watchdog {
    process: Child,
    /// Nothing waits for it: where the watchdog stands still, this program must not.
    orders: UnixStream,
    /// What of the last order was not taken yet.
    rest: Vec<u8>,
    last: Duration,
}

impl Watchdog {
    /// In a process group of its own, so that the terminal's signals do not reach it. It watches when this returns, which
    /// takes no longer than `limit`.
    pub(super) fn start(limit: Duration) -> io::Result<Self> {
        let mut watchdog = Self::become_by(Command::new(own_program()?).arg0("redquorum").arg(WATCHDOG))?;
        match watchdog.wait_ready(limit) {
            Ok(()) => Ok(watchdog),
            Err(error) => {
                watchdog.dismiss();
                Err(error)
            }
        }
    }

    fn wait_ready(&mut self, limit: Duration) -> io::Result<()> {
        self.orders.set_nonblocking(false)?;
        self.orders.set_read_timeout(Some(limit.max(Duration::from_millis(1))))?;
        self.orders.read_exact(&mut [0])?;
        self.orders.set_nonblocking(true)
    }

    /// The watching process.
    pub(super) fn id(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.process.id()).unwrap_or(i32::MAX))
    }

    /// Whether the watching process has ended.
    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.process.try_wait(), Ok(None))
    }

    fn become_by(command: &mut Command) -> io::Result<Self> {
        let (orders, its_end) = UnixStream::pair()?;
        orders.set_nonblocking(true)?;
        for name in SECRETS {
            command.env_remove(name);
        }
        let process = command
            .stdin(OwnedFd::from(its_end))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        Ok(Self { process, orders, rest: Vec::new(), last: Duration::ZERO })
    }

    /// The group is to be killed at `deadline`, unless another is given before. What is not taken is sent again with the
    /// next call; until then an earlier deadline holds, or this program does all by itself.
    pub(super) fn set(&mut self, group: Group, deadline: Duration) {
        self.send();
        // What is measured twice differs a little; only a renewal is news.
        if self.rest.is_empty() && deadline.abs_diff(self.last) > Duration::from_millis(1) {
            self.last = deadline;
            self.rest = format!("{} {}\n", group.id(), deadline.as_millis()).into_bytes();
            self.send();
        }
    }

    fn send(&mut self) {
        if !self.rest.is_empty()
            && let Ok(taken) = self.orders.write(&self.rest)
        {
            self.rest.drain(..taken);
        }
    }

    /// The command has ended.
    pub(super) fn dismiss(mut self) {
        // Before the orders end, which would have it kill the group; also where it was stopped.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The watchdog itself.
pub(crate) fn watch() -> Failure {
    let (sender, orders) = channel();
    let reader = std::thread::Builder::new().spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    if reader.and_then(|_| tell_ready()).is_err() {
        return Failure::new(Code::OsError, ""); // its parent reads that the watching process has ended
    }
    match obey(&orders) {
        Some(()) => Failure::new(Code::OsError, ""),
        None => not_for_people(WATCHDOG),
    }
}

/// The orders come from a socket, on which this goes back.
fn tell_ready() -> io::Result<()> {
    UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?).write_all(b"\n")
}

/// Until the orders end; `None` where they are no orders.
fn obey(orders: &Receiver<String>) -> Option<()> {
    let mut target: Option<(Group, Duration)> = None;
    loop {
        let wait = target.map_or(LONGEST_WAIT, |(_, deadline)| deadline.saturating_sub(since_boot()).min(LONGEST_WAIT));
        match orders.recv_timeout(wait) {
            Ok(line) => target = Some(read(&line)?),
            Err(RecvTimeoutError::Disconnected) => {
                if let Some((group, _)) = target {
                    group.kill();
                }
                return Some(());
            }
            Err(RecvTimeoutError::Timeout) => {
                if let Some((group, _)) = target.filter(|(_, deadline)| *deadline <= since_boot()) {
                    group.kill();
                    target = Some((group, Duration::MAX)); // the number may be another's by and by
                }
            }
        }
    }
}

fn read(line: &str) -> Option<(Group, Duration)> {
    let (group, deadline) = line.split_once(' ')?;
    // 0 would be its own group, and 1 all processes.
    let group = group.parse().ok().filter(|group| *group > 1)?;
    Some((Group::new(group), Duration::from_millis(deadline.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_against_all_processes_is_no_order() {
        for line in ["0 5", "1 5", "-1 5", "2", "2 x"] {
            assert!(read(line).is_none(), "{line}");
        }
        assert!(read("2 5").is_some());
    }

    #[test]
    fn a_watchdog_that_reads_nothing_is_waited_for_neither_with_orders_nor_at_the_end() {
        let mut watchdog = Watchdog::become_by(Command::new("sleep").arg("60")).unwrap();
        let group = Group::new(u32::MAX);
        (1..100_000).for_each(|second| watchdog.set(group, Duration::from_secs(second)));
        assert!(!watchdog.rest.is_empty(), "more than fits");
        watchdog.dismiss();
    }
}
