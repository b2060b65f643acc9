//! The terminal, which belongs to one process group at a time.
//!
//! A command that has a process group of its own must be given the terminal, or it could not read it and would not get
//! Ctrl-C and Ctrl-Z.

use std::io::{IsTerminal, stdin};

use nix::sys::signal::{SigSet, Signal, raise};
use nix::unistd::{getpgid, getpgrp, getppid, getsid, tcgetpgrp, tcsetpgrp};

use super::group::Group;

/// Standard input, if that is this session's terminal.
#[derive(Debug)]
pub(super) struct Terminal(());

impl Terminal {
    /// To be used on one thread only, which is not stopped when it takes the terminal back.
    pub(super) fn of_stdin() -> Option<Self> {
        if !stdin().is_terminal() || tcgetpgrp(stdin()).is_err() {
            return None;
        }
        // Whoever changes a terminal that it does not have is stopped by this, unless it is blocked.
        let mut signals = SigSet::empty();
        signals.add(Signal::SIGTTOU);
        signals.thread_block().ok()?;
        Some(Self(()))
    }

    /// Whether this program has it, and not another job.
    fn is_ours(&self) -> bool {
        tcgetpgrp(stdin()) == Ok(getpgrp())
    }

    /// Gives it to the command, if this program has it. Whether it did.
    pub(super) fn give_to(&self, group: Group) -> bool {
        self.is_ours() && tcsetpgrp(stdin(), group.id()).is_ok()
    }

    /// Takes it back, if the command has it.
    pub(super) fn take_from(&self, group: Group) {
        if group.has_terminal(stdin()) {
            let _ = tcsetpgrp(stdin(), getpgrp()); // without it the shell takes it anyway
        }
    }
}

/// Whether somebody is there who lets this program go on when it is stopped: a shell with jobs, in the same session.
fn has_shell() -> bool {
    let parent = getppid();
    let is_same = getsid(Some(parent)).is_ok_and(|session| getsid(None) == Ok(session));
    is_same && getpgid(Some(parent)).is_ok_and(|group| group != getpgrp())
}

/// Stops this program as the shell expects it of a job, until it is to go on. At once where nobody would tell it to.
pub(super) fn stop_as_job() {
    if has_shell() {
        let _ = raise(Signal::SIGSTOP);
    }
}
