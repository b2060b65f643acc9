//! Numbers about order and waits, for each part of a scenario.

use std::collections::BTreeMap;

use serde::Serialize;

use super::observed::ObservedWait;
use crate::check::rules::millis;
use crate::check::{ObservedLease, PhaseBounds};
use crate::clock::{MILLI, Nanos};
use crate::event::{Event, EventKind};

/// Steps of the drill that are closer to each other begin one phase together.
const TOGETHER: Nanos = 700 * MILLI;

/// How those who waited fared from one step of the drill to the next. Times are in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct WaitPhase {
    /// What began it.
    pub(crate) name: String,
    pub(crate) seconds: f64,
    /// How many waits ended with the lock.
    pub(crate) sections: usize,
    pub(crate) wait_p50: f64,
    pub(crate) wait_p99: f64,
    /// Also of waits that had not ended yet.
    pub(crate) wait_max: f64,
    /// From the end of a lease to the next grant.
    pub(crate) hand_over_p50: f64,
    pub(crate) hand_over_p99: f64,
    pub(crate) hand_over_max: f64,
    /// How often the lock went to another process.
    pub(crate) to_other_processes: usize,
    /// Sections of a client that had begun to wait later than another one, who still waited.
    pub(crate) out_of_order: usize,
    /// Those of them in which the other one was of the same process.
    pub(crate) out_of_order_within: usize,
    /// How much later, at most.
    pub(crate) furthest: f64,
    /// How many others overtook one wait, at most.
    pub(crate) most_overtakes: usize,
    /// Sections of the processes that got the fewest and the most, of those that were there all the time.
    pub(crate) fewest: usize,
    pub(crate) most: usize,
}

pub(crate) fn phases(
    history: &[Event],
    leases: &[&ObservedLease],
    waits: &[ObservedWait],
    bounds: &PhaseBounds,
) -> Vec<WaitPhase> {
    let mut starts = vec![(bounds.start, "before".to_owned())];
    for event in history {
        let EventKind::Step { text } = &event.kind else { continue };
        match starts.last_mut() {
            _ if event.at < bounds.start => {}
            Some((at, name)) if event.at.saturating_sub(*at) < TOGETHER && name != "before" => {
                name.push_str(", ");
                name.push_str(text);
            }
            _ => starts.push((event.at, text.clone())),
        }
    }
    let ends = starts.iter().skip(1).map(|(at, _)| *at).chain([bounds.end]);
    starts.iter().zip(ends).map(|((from, name), to)| phase(name, (*from, to), history, leases, waits)).collect()
}

fn phase(
    name: &str,
    (from, to): (Nanos, Nanos),
    history: &[Event],
    leases: &[&ObservedLease],
    waits: &[ObservedWait],
) -> WaitPhase {
    let within = |at: Nanos| (from..to).contains(&at);
    let served: Vec<&ObservedWait> = waits.iter().filter(|wait| wait.granted && within(wait.until)).collect();
    let mut lengths: Vec<Nanos> = served.iter().map(|wait| wait.length()).collect();
    let there = waits.iter().filter(|wait| wait.until > from);
    let longest = there.map(|wait| wait.until.min(to).saturating_sub(wait.from)).max().unwrap_or(0);
    let mut hand_overs = hand_overs(leases, within);
    let mut phase = WaitPhase {
        name: name.to_owned(),
        seconds: millis(to.saturating_sub(from)) / 1000.0,
        sections: served.len(),
        wait_p50: percentile(&mut lengths, 50),
        wait_p99: percentile(&mut lengths, 99),
        wait_max: millis(longest),
        hand_over_p50: percentile(&mut hand_overs.gaps, 50),
        hand_over_p99: percentile(&mut hand_overs.gaps, 99),
        hand_over_max: percentile(&mut hand_overs.gaps, 100),
        to_other_processes: hand_overs.to_others,
        ..WaitPhase::default()
    };
    phase.order(&served, waits, within);
    phase.shares(&served, history, (from, to));
    phase
}

impl WaitPhase {
    fn order(&mut self, served: &[&ObservedWait], waits: &[ObservedWait], within: impl Fn(Nanos) -> bool) {
        for wait in served {
            let overtaken = || waits.iter().filter(|other| other.is_overtaken_by(wait));
            self.out_of_order_within += usize::from(overtaken().any(|other| other.client == wait.client));
            if let Some(first) = overtaken().map(|other| other.from).min() {
                self.out_of_order += 1;
                self.furthest = self.furthest.max(millis(wait.from - first));
            }
        }
        let overtakes = |wait: &ObservedWait| served.iter().filter(|other| wait.is_overtaken_by(other)).count();
        self.most_overtakes =
            waits.iter().filter(|wait| within(wait.until) || !wait.granted).map(overtakes).max().unwrap_or(0);
    }

    fn shares(&mut self, served: &[&ObservedWait], history: &[Event], (from, to): (Nanos, Nanos)) {
        let mut sections: BTreeMap<&str, usize> = BTreeMap::new();
        for event in history.iter().filter(|event| matches!(event.kind, EventKind::Wait { .. }) && event.at < to) {
            sections.insert(&event.who, 0);
        }
        served.iter().for_each(|wait| *sections.entry(&wait.client).or_default() += 1);
        let mut there: BTreeMap<&str, bool> = BTreeMap::new();
        for event in history.iter().filter(|event| event.at < to) {
            let EventKind::Client { client, state } = &event.kind else { continue };
            let before = event.at < from || there.get(client.as_str()).copied().unwrap_or(true);
            there.insert(client, state == "up" && before);
        }
        sections.retain(|client, _| there.get(client).copied().unwrap_or(true));
        self.fewest = sections.values().min().copied().unwrap_or(0);
        self.most = sections.values().max().copied().unwrap_or(0);
    }
}

#[derive(Default)]
struct HandOvers {
    /// From the end of a lease to the next grant, where that had been waited for.
    gaps: Vec<Nanos>,
    to_others: usize,
}

fn hand_overs(leases: &[&ObservedLease], within: impl Fn(Nanos) -> bool) -> HandOvers {
    let mut found = HandOvers::default();
    for (before, next) in leases.iter().zip(leases.iter().skip(1)) {
        if within(next.from) && next.asked < before.to {
            found.gaps.push(next.from.saturating_sub(before.to));
            found.to_others += usize::from(next.client != before.client);
        }
    }
    found
}

/// The smallest that so many of a hundred do not exceed, in milliseconds.
fn percentile(values: &mut [Nanos], percent: usize) -> f64 {
    values.sort_unstable();
    let rank = (values.len() * percent).div_ceil(100).saturating_sub(1);
    millis(values.get(rank).copied().unwrap_or(0))
}
