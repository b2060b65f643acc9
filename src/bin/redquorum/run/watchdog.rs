//! A process beside this program that kills the command when this program cannot: it was killed itself, or stopped.
//!
//! It reads from a pipe, in lines, which process group to kill and when, on the clock that all processes share. Where the
//! pipe ends before a line `done`, this program is gone, and the group is killed at once.

use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use super::child::own_program;
use super::group::Group;
use crate::clock::since_boot;
use crate::exit::{Code, Failure};

/// The role in which this program starts itself as the watchdog.
pub(crate) const WATCHDOG: &str = "__watchdog";

/// How often it looks at the clock: its own waits stand still while the machine sleeps.
const LONGEST_WAIT: Duration = Duration::from_millis(250);

const DONE: &str = "done";

/// The end of the pipe that this program has.
#[derive(Debug)]
pub(super) struct Watchdog {
    process: Child,
    orders: Option<ChildStdin>,
    last: Duration,
}

impl Watchdog {
    /// In a process group of its own, so that the terminal's signals do not reach it.
    pub(super) fn start() -> io::Result<Self> {
        let mut process = Command::new(own_program()?)
            .arg0("redquorum")
            .arg(WATCHDOG)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let orders = process.stdin.take();
        Ok(Self { process, orders, last: Duration::ZERO })
    }

    /// The group is to be killed at `deadline`, unless another is given before.
    pub(super) fn set(&mut self, group: Group, deadline: Duration) {
        // What is measured twice differs a little; only a renewal is news.
        if deadline.abs_diff(self.last) > Duration::from_millis(1) {
            self.last = deadline;
            self.order(&format!("{} {}", group.id(), deadline.as_millis()));
        }
    }

    fn order(&mut self, line: &str) {
        if let Some(orders) = &mut self.orders {
            let _ = writeln!(orders, "{line}"); // without it this program still does all by itself
        }
    }

    /// The command has ended.
    pub(super) fn dismiss(mut self) {
        self.order(DONE);
        self.orders = None;
        let _ = self.process.wait();
    }
}

/// The watchdog itself.
pub(crate) fn watch() -> Failure {
    let (sender, orders) = channel();
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    obey(&orders);
    Failure::new(Code::OsError, "")
}

fn obey(orders: &Receiver<String>) {
    let mut target: Option<(Group, Duration)> = None;
    loop {
        let wait = target.map_or(LONGEST_WAIT, |(_, deadline)| deadline.saturating_sub(since_boot()).min(LONGEST_WAIT));
        match orders.recv_timeout(wait) {
            Ok(line) if line == DONE => return,
            Ok(line) => target = read(&line).or(target),
            Err(RecvTimeoutError::Disconnected) => {
                if let Some((group, _)) = target {
                    group.kill();
                }
                return;
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
    Some((Group::new(group.parse().ok()?), Duration::from_millis(deadline.parse().ok()?)))
}
