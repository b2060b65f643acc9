//! A command while it runs under its lock.

use std::ffi::OsString;
use std::time::Duration;

use nix::sys::signal::Signal;
use redquorum::{Guard, LeaseView, Loss};
use tokio::time::sleep;

use super::child;
use super::group::{Change, Ended, Group};
use super::limits::Limits;
use super::signals::Signals;
use super::terminal::{Terminal, has_shell, stop_as_job};
use super::watchdog::Watchdog;
use crate::cli::RunArgs;
use crate::clock::{since_boot, since_epoch};
use crate::exit::{Code, Failure};

/// How a command ended, and why it had to, if it was the lock.
pub(super) struct Outcome {
    pub(super) ended: Ended,
    pub(super) loss: Option<String>,
    /// The key of a terminal that ended it: Ctrl-C or Ctrl-\\, which went to its group and to nobody else.
    pub(super) of_terminal: Option<Signal>,
}

/// How long what was killed may take to be gone. After it only dead entries can be left, which nobody collects.
const LONGEST_END: Duration = Duration::from_secs(2);

const NOT_RENEWED: &str = "it could not be renewed in time";

/// What has been done so that the command does not outlive its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Running,
    /// SIGTERM was sent; SIGKILL follows at the latest when the shared clock reads this.
    Terminating(Duration),
    Killed,
}

struct Supervision<'a> {
    group: Group,
    lease: LeaseView,
    limits: Limits,
    terminal: Option<Terminal>,
    watchdog: Watchdog,
    signals: &'a mut Signals,
    /// Whether SIGTSTP was passed on, so that the whole job is to stop.
    is_to_stop: bool,
    /// Whether it was stopped because it does not have the terminal.
    needs_terminal: bool,
    /// Until when the lock was known to be valid, on the shared clock.
    valid_until: Duration,
    stage: Stage,
    loss: Option<String>,
}

/// Runs the command, and waits until nothing is left of its process group.
pub(super) async fn supervise(
    args: &RunArgs,
    guard: &Guard,
    limits: Limits,
    signals: &mut Signals,
) -> Result<Outcome, Failure> {
    let failed = |error| Failure::new(Code::OsError, format!("no process could be started: {error}"));
    let watchdog = Watchdog::start().map_err(failed)?;
    let lease = guard.lease();
    let terminal = Terminal::of_session();
    let takes_terminal = terminal.as_ref().is_some_and(Terminal::is_wanted);
    let group = match child::start(args, takes_terminal, environment(&lease)) {
        Ok(group) => group,
        Err(error) => {
            watchdog.dismiss();
            return Err(failed(error));
        }
    };
    let (valid_until, stage) = (since_boot().saturating_add(lease.remaining()), Stage::Running);
    let (is_to_stop, needs_terminal, loss) = (false, false, None);
    let mut supervision = Supervision {
        group,
        lease,
        limits,
        terminal,
        watchdog,
        signals,
        is_to_stop,
        needs_terminal,
        valid_until,
        stage,
        loss,
    };
    supervision.check();
    let ended = supervision.until_ended().await;
    let of_terminal = supervision.key_that_ended(ended);
    supervision.end_what_is_left().await;
    if let Some(terminal) = &supervision.terminal {
        terminal.take_from(group);
    }
    supervision.watchdog.dismiss();
    Ok(Outcome { ended, loss: supervision.loss, of_terminal })
}

/// What the command learns of its lock.
fn environment(lease: &LeaseView) -> Vec<(&'static str, OsString)> {
    let names: Vec<String> = lease.resources().iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    let valid_until = since_epoch().saturating_add(lease.remaining());
    vec![
        ("REDQUORUM_RESOURCE", names.join("\n").into()),
        ("REDQUORUM_FENCING_TOKEN", lease.fencing_token().to_string().into()),
        ("REDQUORUM_VALID_UNTIL", format!("{:.3}", valid_until.as_secs_f64()).into()),
    ]
}

impl Supervision<'_> {
    async fn until_ended(&mut self) -> Ended {
        let lease = self.lease.clone();
        let mut lost = std::pin::pin!(lease.lost());
        let mut is_lost = false;
        loop {
            tokio::select! {
                signal = self.signals.next_or_child() => {
                    if let Some(signal) = signal {
                        self.pass_on(signal);
                    }
                }
                loss = &mut lost, if !is_lost => {
                    is_lost = true;
                    self.lose(&loss);
                }
                () = sleep(self.limits.interval) => {}
            }
            self.check();
            match self.group.change() {
                Change::Ended(ended) => return ended,
                Change::Stopped(signal) => self.stopped(signal),
                Change::None => {}
            }
            if self.needs_terminal {
                self.find_terminal();
            }
        }
    }

    /// The signal that the terminal has sent, if that has ended the command.
    fn key_that_ended(&self, ended: Ended) -> Option<Signal> {
        match ended {
            Ended::Signal(signal @ (Signal::SIGINT | Signal::SIGQUIT)) => {
                self.terminal.as_ref().is_some_and(|terminal| terminal.is_of(self.group)).then_some(signal)
            }
            _ => None,
        }
    }

    fn pass_on(&mut self, signal: Signal) {
        self.group.signal(signal);
        self.is_to_stop |= signal == Signal::SIGTSTP;
    }

    /// The command was stopped. With it the whole job stops if it has the terminal: only its shell can let it go on.
    fn stopped(&mut self, signal: Signal) {
        let is_told = std::mem::take(&mut self.is_to_stop);
        let is_in_front = self.terminal.as_ref().is_some_and(|terminal| terminal.is_of_job(self.group));
        match signal {
            Signal::SIGTTIN | Signal::SIGTTOU => self.needs_terminal = true,
            Signal::SIGSTOP if !has_shell() => {}
            _ if is_told || is_in_front => self.stop_and_go_on(),
            // By somebody who means the command, and lets it go on.
            _ => {}
        }
    }

    /// The command waits for the terminal. If another job has it this one stops, until it is put into the foreground; where no
    /// shell does that the command stays stopped until the terminal is free.
    fn find_terminal(&mut self) {
        let has_it = self.terminal.as_mut().is_some_and(|terminal| terminal.give_to(self.group));
        if has_it {
            self.group.signal(Signal::SIGCONT);
        } else if self.terminal.is_some() && has_shell() {
            self.stop_and_go_on();
        }
        self.needs_terminal = !has_it && self.terminal.is_some() && !has_shell();
    }

    /// Nothing is renewed while this program is stopped. So the command goes on only if the lock is still valid.
    fn stop_and_go_on(&mut self) {
        if let Some(terminal) = &self.terminal {
            terminal.take_from(self.group);
        }
        stop_as_job();
        self.check();
        if self.stage != Stage::Killed {
            if let Some(terminal) = &self.terminal {
                terminal.give_back_to(self.group);
            }
            self.group.signal(Signal::SIGCONT);
        }
    }

    /// Looks at what is left of the lock, and does what that asks for.
    fn check(&mut self) {
        let (now, left) = (since_boot(), self.lease.remaining());
        // Where this program stood still for too long the watchdog has done its work, and a renewal comes too late.
        let stood_still = self.valid_until.saturating_sub(self.limits.kill) <= now;
        if !left.is_zero() && !stood_still {
            self.valid_until = now.saturating_add(left);
        }
        let must_end = self.valid_until.saturating_sub(self.limits.kill);
        let kill_at = match self.stage {
            Stage::Terminating(at) => must_end.min(at),
            Stage::Running | Stage::Killed => must_end,
        };
        self.watchdog.set(self.group, kill_at);
        let is_running = self.stage == Stage::Running;
        if self.valid_until.saturating_sub(self.limits.terminate) <= now && is_running {
            self.tell_loss(NOT_RENEWED);
            self.terminate(kill_at);
        }
        if kill_at <= now && self.stage != Stage::Killed {
            self.group.kill();
            self.stage = Stage::Killed;
        }
    }

    /// Somebody else may have the lock already: there is less time than where it runs out.
    fn lose(&mut self, loss: &Loss) {
        self.tell_loss(&loss.to_string());
        let soon = since_boot().saturating_add(self.limits.kill);
        match self.stage {
            Stage::Running => self.terminate(soon),
            Stage::Terminating(at) => self.stage = Stage::Terminating(at.min(soon)),
            Stage::Killed => {}
        }
    }

    fn terminate(&mut self, kill_at: Duration) {
        self.group.terminate();
        self.stage = Stage::Terminating(kill_at);
    }

    fn tell_loss(&mut self, why: &str) {
        self.loss.get_or_insert_with(|| why.to_owned());
    }

    /// Nothing that the command has left in its process group goes on without the lock.
    async fn end_what_is_left(&mut self) {
        if !self.group.is_there() {
            return;
        }
        let kill_at = since_boot().saturating_add(self.limits.grace());
        if self.stage == Stage::Running {
            self.terminate(kill_at);
        }
        while self.group.is_there() && since_boot() < kill_at.saturating_add(LONGEST_END) {
            self.check();
            sleep(Duration::from_millis(10)).await;
        }
    }
}
