//! What those who wait are promised.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::observed::ObservedWait;
use crate::check::rules::{Violation, millis};
use crate::check::{ObservedLease, PhaseBounds};
use crate::clock::{Nanos, nanos};
use crate::event::{Event, EventKind};

pub(crate) const STARVED: &str = "starved";
pub(crate) const HELD_UP: &str = "held up";
pub(crate) const OUT_OF_ORDER: &str = "out of order";

/// What is allowed, as far as anything is promised; all of it leaves room for a machine that is busy with other things.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WaitLimits {
    /// In a time without faults everybody gets in within this.
    pub(crate) without_faults: Option<Duration>,
    /// After a client was killed or hung, others get in within this, counted as [`Crash::without_ms`] is.
    pub(crate) after_crash: Option<Duration>,
    /// How often one wait may be overtaken by others in a time without faults.
    pub(crate) overtakes: Option<usize>,
    /// The same, by others of its own process.
    pub(crate) overtakes_within: Option<usize>,
}

/// A client that was killed or hung at a chosen moment, and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Crash {
    pub(crate) at: Nanos,
    pub(crate) client: String,
    /// `down` or `hung`.
    pub(crate) state: String,
    /// Whether it held the lock.
    pub(crate) held: bool,
    /// If it held the lock, from when it took it to the next grant. If it waited for it, the longest time from then to the
    /// next step of the drill in which nobody held it, for the others may only later come to the lost one's turn. In
    /// milliseconds; `None` if nobody got in.
    pub(crate) without_ms: Option<f64>,
    /// Whether something else was done before anybody got in, so that it is not judged.
    pub(crate) disturbed: bool,
}

/// All clients that were killed or hung at their moment: they said so themselves.
pub(crate) fn crashes(history: &[Event], leases: &[&ObservedLease]) -> Vec<Crash> {
    let steps = || history.iter().filter(|event| matches!(event.kind, EventKind::Step { .. })).map(|step| step.at);
    let crash = |event: &Event| match &event.kind {
        EventKind::Client { client, state } if *client == event.who && state != "up" => {
            let at = event.at;
            let held = leases.iter().find(|lease| lease.client == *client && lease.from <= at && at < lease.to);
            let next_step = steps().find(|step| *step > at).unwrap_or(Nanos::MAX);
            let without_ms = match held {
                Some(held) => {
                    let next = leases.iter().find(|lease| lease.client != *client && lease.from >= at);
                    next.map(|lease| (millis(lease.from.saturating_sub(held.from)), lease.from > next_step))
                }
                None => longest_gap(leases, client, (at, next_step)).map(|gap| (millis(gap), false)),
            };
            Some(Crash {
                at,
                client: client.clone(),
                state: state.clone(),
                held: held.is_some(),
                without_ms: without_ms.map(|(time, _)| time),
                disturbed: without_ms.map_or(next_step < Nanos::MAX, |(_, disturbed)| disturbed),
            })
        }
        _ => None,
    };
    history.iter().filter_map(crash).collect()
}

/// The longest time in which nobody held the lock that a client waited for, before a grant to another client
/// in `from..to`. `None` without one.
fn longest_gap(leases: &[&ObservedLease], lost: &str, (from, to): (Nanos, Nanos)) -> Option<Nanos> {
    let next = leases.iter().enumerate();
    let next = next.filter(|(_, lease)| lease.client != lost && (from..to).contains(&lease.from));
    let gap = |(index, lease): (usize, &&ObservedLease)| {
        let before = index.checked_sub(1).and_then(|index| leases.get(index)).map_or(from, |before| before.to);
        lease.from.saturating_sub(before.max(lease.asked))
    };
    next.map(gap).max()
}

/// All violations of what those who wait are promised.
pub(crate) fn violations(
    history: &[Event],
    waits: &[ObservedWait],
    crashes: &[Crash],
    bounds: &PhaseBounds,
    limits: WaitLimits,
) -> Vec<Violation> {
    let mut found = Vec::new();
    for (from, to) in without_faults(history, bounds) {
        if let Some(most) = limits.without_faults {
            starved(waits, (from, to), nanos(most), &mut found);
        }
        out_of_order(waits, (from, to), limits, &mut found);
    }
    if let Some(most) = limits.after_crash {
        held_up(crashes, millis(nanos(most)), &mut found);
    }
    found
}

fn held_up(crashes: &[Crash], most: f64, found: &mut Vec<Violation>) {
    for crash in crashes.iter().filter(|crash| !crash.disturbed && crash.without_ms.is_none_or(|time| time > most)) {
        let time = crash.without_ms.map_or_else(|| "ever".to_owned(), |time| format!("for {time:.0} ms"));
        let did = if crash.held { "held" } else { "waited" };
        found.push(Violation {
            rule: HELD_UP,
            at: crash.at,
            text: format!("{} was {} while it {did}, and no other one got in {time}", crash.client, crash.state),
        });
    }
}

fn starved(waits: &[ObservedWait], (from, to): (Nanos, Nanos), most: Nanos, found: &mut Vec<Violation>) {
    let long = waits.iter().filter(|wait| wait.within(from, to) > most);
    found.extend(long.map(|wait| Violation {
        rule: STARVED,
        at: wait.until.min(to),
        text: format!(
            "{} waited for {} for {:.0} ms without a fault",
            wait.client,
            wait.resource,
            millis(wait.within(from, to))
        ),
    }));
}

/// Only waits and grants that lie wholly in the time without faults count.
fn out_of_order(waits: &[ObservedWait], (from, to): (Nanos, Nanos), limits: WaitLimits, found: &mut Vec<Violation>) {
    let begun: Vec<&ObservedWait> = waits.iter().filter(|wait| wait.from >= from && wait.from < to).collect();
    for wait in &begun {
        let overtook = || begun.iter().filter(|other| other.until < to && wait.is_overtaken_by(other));
        let all = overtook().count();
        let within = overtook().filter(|other| other.client == wait.client).count();
        let text = match limits {
            WaitLimits { overtakes: Some(most), .. } if all > most => {
                format!("{} waited for {} while {all} got in that came later", wait.client, wait.resource)
            }
            WaitLimits { overtakes_within: Some(most), .. } if within > most => {
                format!(
                    "a task of {} waited for {} while {within} of its own process got in that came later",
                    wait.client, wait.resource
                )
            }
            _ => continue,
        };
        found.push(Violation { rule: OUT_OF_ORDER, at: wait.until.min(to), text });
    }
}

/// The stretches in which everything was up and nothing was done, from the first grant on.
fn without_faults(history: &[Event], bounds: &PhaseBounds) -> Vec<(Nanos, Nanos)> {
    let mut broken: BTreeMap<String, &str> = BTreeMap::new();
    let mut since = Some(bounds.start);
    let mut found = Vec::new();
    for event in history {
        match &event.kind {
            EventKind::Step { .. } => {}
            EventKind::Instance { instance, state } => note(&mut broken, format!("i{instance}"), state),
            EventKind::Client { client, state } => note(&mut broken, client.clone(), state),
            _ => continue,
        }
        if let Some(from) = since {
            found.push((from, event.at));
        }
        since = broken.is_empty().then_some(event.at.max(bounds.start));
    }
    if let Some(from) = since {
        found.push((from, bounds.end));
    }
    found.retain(|(from, to)| from < to);
    found
}

fn note<'a>(broken: &mut BTreeMap<String, &'a str>, who: String, state: &'a str) {
    match state {
        "mended" if broken.get(&who) != Some(&"cut") => {} // links are mended, not instances
        "up" | "mended" => drop(broken.remove(&who)),
        _ => drop(broken.insert(who, state)),
    }
}
