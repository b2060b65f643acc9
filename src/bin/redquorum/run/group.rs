//! The process group of a command.

use std::fs;
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, tcgetpgrp};

/// A command that was started as the first of its own process group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group(Pid);

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Status(u8),
    Signal(Signal),
}

impl Ended {
    pub(super) fn in_words(self) -> String {
        match self {
            Self::Status(status) => format!("ended with status {status}"),
            Self::Signal(signal) => format!("was ended by {signal}"),
        }
    }
}

/// What has become of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Nothing new.
    None,
    Stopped(Signal),
    Ended(Ended),
}

impl Group {
    /// Of the process that leads it.
    pub(super) fn new(leader: u32) -> Self {
        // Ids of processes fit, or it would not be running.
        Self(Pid::from_raw(i32::try_from(leader).unwrap_or(i32::MAX)))
    }

    pub(super) const fn id(self) -> Pid {
        self.0
    }

    /// Sends a signal to all of it. Who is gone needs none.
    pub(super) fn signal(self, signal: Signal) {
        let _ = killpg(self.0, signal);
    }

    /// Tells all of it to end; what is stopped goes on to hear it.
    pub(super) fn terminate(self) {
        self.signal(Signal::SIGTERM);
        self.signal(Signal::SIGCONT);
    }

    pub(super) fn kill(self) {
        self.signal(Signal::SIGKILL);
    }

    /// Whether any process of it is left that lives.
    pub(super) fn is_there(self) -> bool {
        // As the first process of a container this program inherits what others leave behind.
        let of_group = Pid::from_raw(-self.0.as_raw());
        while waitpid(of_group, Some(WaitPidFlag::WNOHANG)).is_ok_and(|status| status != WaitStatus::StillAlive) {}
        if killpg(self.0, None) == Err(Errno::ESRCH) {
            return false;
        }
        if !self.is_dead() {
            return true;
        }
        // What was begun while the list was read is killed, and can begin nothing more.
        self.kill();
        !self.is_dead()
    }

    /// Whether only dead entries of it are left, whose parents do not collect them. Not known without a list of processes.
    fn is_dead(self) -> bool {
        let Ok(processes) = fs::read_dir("/proc") else { return false };
        let stats = processes.flatten().filter_map(|process| {
            let path = process.path();
            let stat = fs::read_to_string(path.join("stat")).ok()?;
            let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
            let (state, group) = (fields.next()?, fields.nth(1)?);
            (group.parse() == Ok(self.0.as_raw())).then(|| {
                // A program whose first thread has ended looks dead, and its others go on.
                let threads = || fs::read_dir(path.join("task")).map_or(0, Iterator::count);
                matches!(state, "Z" | "X") && threads() <= 1
            })
        });
        let are_dead: Vec<bool> = stats.collect();
        !are_dead.is_empty() && are_dead.into_iter().all(|is_dead| is_dead)
    }

    /// What has become of the command itself, without waiting.
    pub(super) fn change(self) -> Change {
        match waitpid(self.0, Some(WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED)) {
            Ok(WaitStatus::Exited(_, status)) => {
                Change::Ended(Ended::Status(u8::try_from(status & 0xff).unwrap_or(u8::MAX)))
            }
            Ok(WaitStatus::Signaled(_, signal, _)) => Change::Ended(Ended::Signal(signal)),
            Ok(WaitStatus::Stopped(_, signal)) => Change::Stopped(signal),
            _ => Change::None,
        }
    }

    /// Whether the terminal's keys go to it.
    pub(super) fn has_terminal(self, terminal: impl AsFd) -> bool {
        tcgetpgrp(terminal) == Ok(self.0)
    }
}
