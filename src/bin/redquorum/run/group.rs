//! The process group of a command.

use std::fs;
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, tcgetpgrp};
use rustix::process::{WaitOptions, waitpgid, waitpid};

/// A command that was started as the first of its own process group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group(Pid);

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Status(u8),
    /// Its number: signals for real time have no names.
    Signal(i32),
    /// It was not seen: another process has collected it, or it still runs and cannot be ended.
    Unseen,
}

impl Ended {
    pub(super) fn in_words(self) -> String {
        match self {
            Self::Status(status) => format!("ended with status {status}"),
            Self::Signal(number) => match Signal::try_from(number) {
                Ok(signal) => format!("was ended by {signal}"),
                Err(_) => format!("was ended by signal {number}"),
            },
            Self::Unseen => "was not seen to end".to_owned(),
        }
    }
}

/// The state of the command.
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

    /// As the calls that wait take it, which return the number of every signal.
    fn to_wait_for(self) -> Option<rustix::process::Pid> {
        rustix::process::Pid::from_raw(self.0.as_raw().max(0))
    }

    /// Sends a signal to all of it. A process that is gone needs none; one that cannot get it `is_there` still sees.
    pub(super) fn signal(self, signal: Signal) {
        let _ = killpg(self.0, signal);
    }

    /// Sends SIGTERM to all of it; what is stopped continues to get it.
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
        let collect = |group| matches!(waitpgid(group, WaitOptions::NOHANG), Ok(Some(_)));
        while self.to_wait_for().is_some_and(collect) {}
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
        let members = self.members();
        !members.is_empty() && members.into_iter().all(|(_, is_dead)| is_dead)
    }

    /// Who of it lives, in words.
    pub(super) fn living(self) -> String {
        let members = self.members().into_iter().filter(|(_, is_dead)| !is_dead);
        let ids: Vec<String> = members.map(|(id, _)| id).collect();
        let group = self.0;
        if ids.is_empty() { format!("process group {group}") } else { format!("process {}", ids.join(", ")) }
    }

    /// The processes of it that are listed, and whether they are dead.
    fn members(self) -> Vec<(String, bool)> {
        let members = listed().filter(|process| process.group == self.0.as_raw());
        members.map(|process| (process.id.to_string(), process.is_dead())).collect()
    }

    /// The state of the command itself, without waiting.
    pub(super) fn change(self) -> Change {
        let options = WaitOptions::NOHANG | WaitOptions::UNTRACED;
        let status = match waitpid(self.to_wait_for(), options) {
            Ok(Some((_, status))) => status,
            Ok(None) => return Change::None,
            // It is no child any more, so its end will never be known.
            Err(_) => return Change::Ended(Ended::Unseen),
        };
        if let Some(status) = status.exit_status() {
            Change::Ended(Ended::Status(u8::try_from(status & 0xff).unwrap_or(u8::MAX)))
        } else if let Some(signal) = status.terminating_signal() {
            Change::Ended(Ended::Signal(signal))
        } else {
            let stopped = status.stopping_signal().and_then(|number| Signal::try_from(number).ok());
            stopped.map_or(Change::None, Change::Stopped)
        }
    }

    /// Whether the terminal's keys go to it.
    pub(super) fn has_terminal(self, terminal: impl AsFd) -> bool {
        tcgetpgrp(terminal) == Ok(self.0)
    }
}

/// A process as the system lists it.
struct Listed {
    id: i32,
    state: String,
    parent: i32,
    group: i32,
}

impl Listed {
    fn is_dead(&self) -> bool {
        // A program whose first thread has ended looks dead, while its others run.
        let threads = || fs::read_dir(format!("/proc/{}/task", self.id)).map_or(0, Iterator::count);
        matches!(&*self.state, "Z" | "X") && threads() <= 1
    }
}

/// All processes; none without a list of them.
fn listed() -> impl Iterator<Item = Listed> {
    let read = |process: fs::DirEntry| {
        let stat = fs::read_to_string(process.path().join("stat")).ok()?;
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?.to_owned();
        let [parent, group] = [fields.next()?, fields.next()?].map(str::parse);
        Some(Listed {
            id: process.file_name().to_str()?.parse().ok()?,
            state,
            parent: parent.ok()?,
            group: group.ok()?,
        })
    };
    fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(read)
}

/// As the first process of a container this program is the parent of what others leave behind: without this the dead would stay
/// in the list of processes, which may have a limit. Those that it has started itself, `own`, are waited for elsewhere.
pub(super) fn collect_inherited(own: &[Pid]) {
    const FIRST: i32 = 1;
    if std::process::id() != FIRST.unsigned_abs() {
        return;
    }
    let is_inherited = |process: &Listed| process.parent == FIRST && !own.contains(&Pid::from_raw(process.id));
    for dead in listed().filter(|process| is_inherited(process) && process.is_dead()) {
        let _ = waitpid(rustix::process::Pid::from_raw(dead.id), WaitOptions::NOHANG);
    }
}
