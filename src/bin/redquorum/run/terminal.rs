//! The terminal of this session, which belongs to one process group at a time.
//!
//! A command that has a process group of its own must be given the terminal, or it could not read it and would not get
//! Ctrl-C and Ctrl-Z.

use std::fs::{self, File};
use std::io::{self, IsTerminal, stdin, stdout};

use nix::sys::signal::{SigSet, SigmaskHow, Signal, killpg};
use nix::unistd::{Pid, getpgid, getpgrp, getppid, getsid, tcgetpgrp, tcsetpgrp};

use super::group::Group;

/// The terminal, not standard input and output.
#[derive(Debug)]
pub(super) struct Terminal {
    tty: File,
    /// Whether the command has it whenever this program could.
    is_wanted: bool,
}

impl Terminal {
    /// Nothing where there is none, as for services.
    pub(super) fn of_session() -> Option<Self> {
        // In a pipeline others may need it; the command gets it when it tries to read.
        let is_wanted = stdin().is_terminal() && stdout().is_terminal();
        Some(Self { tty: open().ok()?, is_wanted })
    }

    pub(super) const fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    /// Whether this program has it, and not another job.
    fn is_ours(&self) -> bool {
        tcgetpgrp(&self.tty) == Ok(getpgrp())
    }

    /// Whether the job that consists of this program and its command has it.
    pub(super) fn is_of_job(&self, group: Group) -> bool {
        self.is_ours() || group.has_terminal(&self.tty)
    }

    /// Whether the terminal's keys go to the command.
    pub(super) fn is_of(&self, group: Group) -> bool {
        group.has_terminal(&self.tty)
    }

    /// Gives it to the command, which has tried to use it, if this program has it. Whether the command has it now.
    pub(super) fn give_to(&mut self, group: Group) -> bool {
        self.is_wanted = true;
        self.give_back_to(group);
        group.has_terminal(&self.tty)
    }

    /// Gives it to a command that had it, or would have.
    pub(super) fn give_back_to(&self, group: Group) {
        if self.is_wanted && self.is_ours() {
            let _ = unstopped(|| tcsetpgrp(&self.tty, group.id()));
        }
    }

    /// Takes it back, if the command has it.
    pub(super) fn take_from(&self, group: Group) {
        if group.has_terminal(&self.tty) {
            let _ = unstopped(|| tcsetpgrp(&self.tty, getpgrp())); // without it the shell takes it anyway
        }
    }
}

fn open() -> io::Result<File> {
    File::options().read(true).write(true).open("/dev/tty")
}

/// A process that changes a terminal that it does not have is stopped, unless the signal for that is blocked.
fn unstopped(change: impl FnOnce() -> nix::Result<()>) -> nix::Result<()> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTTOU);
    let former = signals.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    let changed = change();
    former.thread_set_mask().and(changed)
}

/// For the command itself, before it is one: so it has the terminal from its beginning if its parent had.
pub(super) fn take_from_parent(parent: Pid) {
    if let Ok(tty) = open()
        && tcgetpgrp(&tty).is_ok_and(|owner| getpgid(Some(parent)) == Ok(owner))
    {
        let _ = unstopped(|| tcsetpgrp(&tty, getpgrp()));
    }
}

/// Whether a shell with jobs in the same session can continue this program's process group when it is
/// stopped. It need not be the parent, which may be a script in the same group.
pub(super) fn has_shell() -> bool {
    let (session, group) = (getsid(None), getpgrp());
    let mut parent = getppid();
    loop {
        if parent.as_raw() <= 0 || getsid(Some(parent)) != session {
            return false;
        }
        if getpgid(Some(parent)) != Ok(group) {
            return true;
        }
        let Some(next) = parent_of(parent) else { return false };
        parent = next;
    }
}

/// Only where the system has a list of processes.
fn parent_of(process: Pid) -> Option<Pid> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(1)?.parse().ok().map(Pid::from_raw)
}

/// Stops this job as the shell expects it, with the script or the pipeline that this program is a part of, until it is
/// continued. At once where no shell would continue it.
pub(super) fn stop_as_job() {
    if has_shell() {
        // It stops this thread before it returns, as this is the process's first one.
        let _ = killpg(getpgrp(), Signal::SIGSTOP);
    }
}
