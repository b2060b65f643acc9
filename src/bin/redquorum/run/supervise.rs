//! A command while it runs under its lock.

use std::ffi::OsString;
use std::time::Duration;

use nix::sys::signal::Signal;
use redquorum::Loss;
use tokio::time::sleep;

use super::child;
use super::group::{Change, Ended, Group, collect_inherited};
use super::held::Held;
use super::limits::Limits;
use super::signals::Signals;
use super::terminal::{Terminal, has_shell, stop_as_job};
use super::watchdog::Watchdog;
use crate::cli::RunArgs;
use crate::clock::{since_boot, since_epoch};
use crate::exit::{Code, Failure};
use crate::output;

/// Why a command had to end.
#[derive(Debug)]
pub(super) enum Forced {
    /// The lock was lost.
    Lost(String),
    /// It was not renewed, and would have been lost.
    NotRenewed,
    /// It would have outlived this program, and so the lock.
    Unwatched(String),
}

impl Forced {
    /// What is known once the command has ended: on which instances a renewal fails, and why.
    pub(super) async fn why(&self, lock: &Held) -> String {
        match self {
            Self::Lost(why) | Self::Unwatched(why) => why.clone(),
            Self::NotRenewed => match lock.obstacle().await {
                Some(obstacle) => format!("{NOT_RENEWED}: {obstacle}"),
                None => NOT_RENEWED.to_owned(),
            },
        }
    }
}

/// How a command ended, and why it had to, if it had to.
pub(super) struct Outcome {
    pub(super) ended: Ended,
    pub(super) forced: Option<Forced>,
    /// What could not be ended before the lock was lost.
    pub(super) left: Option<String>,
    /// The key of a terminal that ended it: Ctrl-C or Ctrl-\\, which went to its group only.
    pub(super) of_terminal: Option<Signal>,
}

/// How long what was killed may take to be gone. What is left after it cannot be killed: it belongs to another user, or hangs
/// in the kernel.
const LONGEST_END: Duration = Duration::from_secs(2);

/// How long a watchdog may take to begin on a machine that is busy.
const LONGEST_START: Duration = Duration::from_secs(5);

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
    lock: &'a Held,
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
    forced: Option<Forced>,
    /// When the lock is not renewed any more because it was to be held for so long.
    max_hold: Option<(Duration, Duration)>,
}

/// Runs the command, and waits until nothing is left of its process group.
pub(super) async fn supervise(
    args: &RunArgs,
    lock: &Held,
    limits: Limits,
    signals: &mut Signals,
) -> Result<Outcome, Failure> {
    let failed = |error| Failure::new(Code::OsError, format!("no process could be started: {error}"));
    let watchdog = Watchdog::start(LONGEST_START).map_err(failed)?;
    let terminal = Terminal::of_session();
    let takes_terminal = terminal.as_ref().is_some_and(Terminal::is_wanted);
    let group = match child::start(args, takes_terminal, environment(lock)) {
        Ok(group) => group,
        Err(error) => {
            watchdog.dismiss();
            return Err(failed(error));
        }
    };
    let (valid_until, stage) = (since_boot().saturating_add(lock.remaining()), Stage::Running);
    let (is_to_stop, needs_terminal, forced) = (false, false, None);
    let max_hold = args.max_hold.map(|time| (since_boot().saturating_add(time), time));
    let mut supervision = Supervision {
        group,
        lock,
        limits,
        terminal,
        watchdog,
        signals,
        is_to_stop,
        needs_terminal,
        valid_until,
        stage,
        forced,
        max_hold,
    };
    supervision.check();
    let ended = supervision.until_ended().await;
    let of_terminal = supervision.key_that_ended(ended);
    let left = supervision.end_what_is_left().await;
    if let Some(terminal) = &supervision.terminal {
        terminal.take_from(group);
    }
    supervision.watchdog.dismiss();
    Ok(Outcome { ended, forced: supervision.forced, left, of_terminal })
}

/// What the command learns of its lock.
fn environment(lock: &Held) -> Vec<(&'static str, OsString)> {
    let names: Vec<String> =
        lock.resources().iter().map(|name| String::from_utf8_lossy(name.as_bytes()).into_owned()).collect();
    let valid_until = since_epoch().saturating_add(lock.remaining());
    let index = lock.index().map(|index| ("REDQUORUM_PERMIT", index.to_string().into()));
    let variables = vec![
        ("REDQUORUM_RESOURCE", names.join("\n").into()),
        ("REDQUORUM_FENCING_TOKEN", lock.tokens().join("\n").into()),
        ("REDQUORUM_VALID_UNTIL", format!("{:.3}", valid_until.as_secs_f64()).into()),
    ];
    variables.into_iter().chain(index).collect()
}

impl Supervision<'_> {
    async fn until_ended(&mut self) -> Ended {
        let lock = self.lock;
        let mut lost = std::pin::pin!(lock.lost());
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
                Change::None if self.is_hopeless() => return Ended::Unseen,
                Change::None => {}
            }
            if self.needs_terminal {
                self.find_terminal();
            }
        }
    }

    /// The signal that the terminal has sent, if that has ended the command.
    fn key_that_ended(&self, ended: Ended) -> Option<Signal> {
        let Ended::Signal(number) = ended else { return None };
        let signal = Signal::try_from(number).ok().filter(|it| matches!(it, Signal::SIGINT | Signal::SIGQUIT))?;
        self.terminal.as_ref().is_some_and(|terminal| terminal.is_of(self.group)).then_some(signal)
    }

    fn pass_on(&mut self, signal: Signal) {
        self.group.signal(signal);
        self.is_to_stop |= signal == Signal::SIGTSTP;
    }

    /// The command was stopped. With it the whole job stops if it has the terminal: only its shell can continue it.
    fn stopped(&mut self, signal: Signal) {
        let was_passed_on = std::mem::take(&mut self.is_to_stop);
        let is_in_front = self.terminal.as_ref().is_some_and(|terminal| terminal.is_of_job(self.group));
        match signal {
            Signal::SIGTTIN | Signal::SIGTTOU => self.needs_terminal = true,
            Signal::SIGSTOP if !has_shell() => {}
            _ if was_passed_on || is_in_front => self.stop_and_go_on(),
            // By a user who means the command, and continues it.
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

    /// Nothing is renewed while this program is stopped. So the command continues only if the lock is still valid.
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

    /// Looks at what is left of the lock, and acts on it.
    fn check(&mut self) {
        let (now, left) = (since_boot(), self.lock.remaining());
        // Where this program stood still for too long the watchdog has done its work, and a renewal comes too late.
        let stood_still = self.valid_until.saturating_sub(self.limits.kill) <= now;
        if !left.is_zero() && !stood_still {
            self.valid_until = now.saturating_add(left);
        }
        if self.stage == Stage::Running && self.watchdog.has_ended() {
            self.replace_watchdog(now);
        }
        let must_end = self.valid_until.saturating_sub(self.limits.kill);
        let kill_at = match self.stage {
            Stage::Terminating(at) => must_end.min(at),
            Stage::Running | Stage::Killed => must_end,
        };
        self.watchdog.set(self.group, kill_at);
        let is_running = self.stage == Stage::Running;
        if self.valid_until.saturating_sub(self.limits.terminate) <= now && is_running {
            let is_over = self.max_hold.filter(|(until, _)| *until <= now);
            let over = |(_, time)| Forced::Lost(format!("it was held for --max-hold {}", output::time(time)));
            self.forced.get_or_insert(is_over.map_or(Forced::NotRenewed, over));
            self.terminate(kill_at);
        }
        // More than once: what is of another user for a while may be this one's again.
        if kill_at <= now || self.stage == Stage::Killed {
            self.group.kill();
            self.stage = Stage::Killed;
        }
        collect_inherited(&[self.group.id(), self.watchdog.id()]);
    }

    /// Another client may have the lock already: there is less time than where it runs out.
    fn lose(&mut self, loss: &Loss) {
        self.forced.get_or_insert_with(|| Forced::Lost(loss.to_string()));
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

    /// The watchdog was killed. Without one the command would continue where this program is killed too.
    fn replace_watchdog(&mut self, now: Duration) {
        let left = self.valid_until.saturating_sub(self.limits.terminate).saturating_sub(now);
        match Watchdog::start(LONGEST_START.min(left / 2)) {
            Ok(watchdog) => std::mem::replace(&mut self.watchdog, watchdog).dismiss(),
            Err(error) => {
                let why = format!("the watching process has ended, and no other could be started: {error}");
                self.forced.get_or_insert(Forced::Unwatched(why));
                self.terminate(now.saturating_add(self.limits.grace()));
            }
        }
    }

    /// Whether the lock is lost, and what was killed in time continues.
    fn is_hopeless(&self) -> bool {
        let is_late = self.valid_until.saturating_add(LONGEST_END) <= since_boot();
        self.stage == Stage::Killed && is_late && self.lock.remaining().is_zero()
    }

    /// Nothing that the command has left in its process group continues without the lock: it is renewed for processes that cannot be
    /// ended. Returns what is left where the lock was lost before.
    async fn end_what_is_left(&mut self) -> Option<String> {
        let kill_at = since_boot().saturating_add(self.limits.grace());
        let mut is_shown = false;
        while self.group.is_there() {
            if self.stage == Stage::Running {
                self.terminate(kill_at);
            }
            self.check();
            if self.is_hopeless() {
                return Some(self.group.living());
            }
            if !is_shown && kill_at.saturating_add(LONGEST_END) <= since_boot() {
                is_shown = true;
                output::say(&format!("{} cannot be killed; the lock is held until it has ended", self.group.living()));
            }
            sleep(Duration::from_millis(10).max(if is_shown { self.limits.interval } else { Duration::ZERO })).await;
        }
        None
    }
}
