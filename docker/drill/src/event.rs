//! The log: one JSON object per line. Any client that writes these lines can take part in a drill.

use std::io::Write;

use serde::{Deserialize, Serialize};

use crate::clock::{Nanos, now};

/// What happened, to whom, and when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Event {
    /// CLOCK_BOOTTIME in nanoseconds.
    pub(crate) at: Nanos,
    /// `c1`.. for clients, `referee`, `drill`.
    pub(crate) who: String,
    #[serde(flatten)]
    pub(crate) kind: EventKind,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub(crate) enum EventKind {
    /// A try that did not win. `at` is when it ended.
    Denied { resource: String, asked: Nanos, answer: DenialReason, cause: String },
    /// Begins to wait, until the grant of this lease.
    Wait { resource: String, lease: u64 },
    /// A try that won: from `at` on the client relies on the lock, until `valid_until` or `Stop`.
    Grant { resource: String, lease: u64, asked: Nanos, valid_until: Nanos, token: Option<u64> },
    /// The client relies on the lock until `valid_until` now.
    Extend { lease: u64, valid_until: Nanos },
    /// The lock was not extended; nothing changes.
    Unextended { lease: u64, cause: String },
    /// The client stopped relying on the lock, before it sent the release, if any.
    Stop { lease: u64, lost: bool },
    /// The referee decided about a write.
    Write { resource: String, client: String, lease: u64, token: Option<u64>, accepted: bool },
    /// What a client sees of an instance: `votes`, `quarantine`, `away`.
    Seen { instance: usize, state: String },
    /// What the client's process, which runs since then, uses of the machine.
    Uses { since: Nanos, resident_kib: u64, descriptors: u64 },
    /// What the instances are.
    Server { version: String },
    /// The drill did something.
    Step { text: String },
    /// The drill brought an instance into this state: `up`, `down`, `hung`, ..: see the colours of the report.
    Instance { instance: usize, state: String },
    /// A client was hung or killed, by the drill or, at a moment that only it knows, by itself; or it is there again.
    Client { client: String, state: String },
    /// The first fault comes now.
    Fault,
    /// The last fault ended now.
    Healed,
}

/// Why a try did not win.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DenialReason {
    /// Another client holds the lock: the service worked.
    Held,
    /// The instances could not answer.
    Failed,
}

/// Writes a line to standard output, with one system call, so that a kill leaves whole lines.
pub(crate) fn log(at: Nanos, who: &str, kind: EventKind) {
    let event = Event { at, who: who.to_owned(), kind };
    if let Ok(mut line) = serde_json::to_vec(&event) {
        line.push(b'\n');
        // Nobody is left to tell when the container's output is gone.
        drop(std::io::stdout().lock().write_all(&line));
    }
}

pub(crate) fn log_now(who: &str, kind: EventKind) {
    log(now(), who, kind);
}

/// The events of a container's output, without lines that are none.
pub(crate) fn parse(output: &str) -> Vec<Event> {
    output.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}
