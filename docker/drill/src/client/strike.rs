//! Strikes a client from within, at a moment that nobody outside could hit.

use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Signal, getpid, kill_process};
use serde::{Deserialize, Serialize};

use crate::Outcome;
use crate::event::{EventKind, log_now};

/// Where the drill leaves the next strike.
pub(crate) const STRIKE_FILE: &str = "/tmp/strike";

/// Where a client leaves its process id, for the drill to let it go on.
pub(crate) const PROCESS_FILE: &str = "/tmp/process";

/// What is to happen to a client, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Strike {
    pub(crate) blow: Blow,
    pub(crate) moment: Moment,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Blow {
    /// SIGKILL.
    Kill,
    /// SIGSTOP.
    Hang,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Moment {
    /// Some of its tasks wait, and none holds a lock.
    Waiting,
    /// One of its tasks holds the lock.
    Holding,
    /// The lock is kept for one of its tasks, which has not taken it yet.
    Named,
}

/// What the tasks of this process are doing.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    waiting: AtomicUsize,
    holding: AtomicUsize,
}

impl Tasks {
    /// Says that this process is there now.
    pub(crate) fn start(client: &str) -> Outcome<Self> {
        std::fs::write(PROCESS_FILE, std::process::id().to_string())?;
        log_now(client, EventKind::Client { client: client.to_owned(), state: "up".to_owned() });
        Ok(Self::default())
    }

    pub(crate) fn wait(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    /// One that waited holds the lock now.
    pub(crate) fn hold(&self, client: &str) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.holding.fetch_add(1, Ordering::Relaxed);
        take_strike(client, Moment::Holding);
    }

    pub(crate) fn stop(&self) {
        self.holding.fetch_sub(1, Ordering::Relaxed);
    }

    /// To be called often.
    pub(crate) fn look(&self, client: &str) {
        if self.holding.load(Ordering::Relaxed) == 0 && self.waiting.load(Ordering::Relaxed) > 0 {
            take_strike(client, Moment::Waiting);
        }
    }
}

/// Ends or hangs this process, if that is to happen at this moment.
pub(super) fn take_strike(client: &str, moment: Moment) {
    let Ok(text) = std::fs::read_to_string(STRIKE_FILE) else { return };
    // One that is half written is whole at the next look.
    let Some(strike) = serde_json::from_str::<Strike>(&text).ok().filter(|strike| strike.moment == moment) else {
        return;
    };
    drop(std::fs::remove_file(STRIKE_FILE)); // or it would strike the next process too
    let (state, signal) = match strike.blow {
        Blow::Kill => ("down", Signal::KILL),
        Blow::Hang => ("hung", Signal::STOP),
    };
    log_now(client, EventKind::Client { client: client.to_owned(), state: state.to_owned() });
    if let Err(error) = kill_process(getpid(), signal) {
        eprintln!("drill: {client} could not be struck: {error}");
    }
}
