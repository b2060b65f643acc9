//! Who waited from when to when, read out of a history.

use std::collections::HashMap;

use crate::check::ObservedLease;
use crate::clock::Nanos;
use crate::event::{Event, EventKind};

/// A wait for a lock.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ObservedWait {
    pub(crate) client: String,
    pub(crate) resource: String,
    /// When it began; of one who was hung meanwhile, when that was over, for so long nobody could let it in.
    pub(crate) from: Nanos,
    /// When it was granted, or the client hung or killed, or the history ended.
    pub(crate) until: Nanos,
    pub(crate) granted: bool,
}

/// All waits in the order of their ends.
pub(crate) fn waits(history: &[Event], leases: &[ObservedLease]) -> Vec<ObservedWait> {
    let grants: HashMap<(&str, u64), Nanos> =
        leases.iter().map(|lease| ((lease.client.as_str(), lease.id), lease.from)).collect();
    let end = history.iter().map(|event| event.at).max().unwrap_or(0);
    let absences = absences(history, end);
    let wait = |event: &Event| {
        let EventKind::Wait { resource, lease } = &event.kind else { return None };
        let grant = grants.get(&(event.who.as_str(), *lease)).copied();
        let mut wait = ObservedWait {
            client: event.who.clone(),
            resource: resource.clone(),
            from: event.at,
            until: grant.unwrap_or(end),
            granted: grant.is_some(),
        };
        for absence in absences.get(event.who.as_str()).into_iter().flatten() {
            wait.leave_out(absence);
        }
        Some(wait)
    };
    let mut waits: Vec<ObservedWait> = history.iter().filter_map(wait).collect();
    waits.sort_by_key(|wait| wait.until);
    waits
}

impl ObservedWait {
    /// Leaves out the time in which the client was hung, and what comes after its end.
    fn leave_out(&mut self, absence: &Absence) {
        let goes_on = self.granted || !absence.killed;
        if absence.from >= self.until || absence.to <= self.from {
            return;
        }
        if goes_on && absence.to < self.until {
            self.from = absence.to;
        } else if !self.granted {
            self.until = absence.from.max(self.from);
        }
    }

    /// How much of the wait lies in a stretch of time.
    pub(crate) const fn within(&self, from: Nanos, to: Nanos) -> Nanos {
        let begun = if self.from > from { self.from } else { from };
        let ended = if self.until < to { self.until } else { to };
        ended.saturating_sub(begun)
    }

    pub(crate) const fn length(&self) -> Nanos {
        self.until.saturating_sub(self.from)
    }

    /// Whether it was on while the other one began and was granted.
    pub(crate) fn is_overtaken_by(&self, other: &Self) -> bool {
        other.granted && other.resource == self.resource && self.from < other.from && other.until < self.until
    }
}

/// A time in which a client was not there.
struct Absence {
    from: Nanos,
    to: Nanos,
    killed: bool,
}

fn absences(history: &[Event], end: Nanos) -> HashMap<&str, Vec<Absence>> {
    let mut since: HashMap<&str, (Nanos, bool)> = HashMap::new();
    let mut found: HashMap<&str, Vec<Absence>> = HashMap::new();
    for event in history {
        let EventKind::Client { client, state } = &event.kind else { continue };
        if state != "up" {
            let (_, killed) = since.entry(client).or_insert((event.at, false));
            *killed |= state == "down";
        } else if let Some((from, killed)) = since.remove(client.as_str()) {
            found.entry(client).or_default().push(Absence { from, to: event.at, killed });
        }
    }
    for (client, (from, killed)) in since {
        found.entry(client).or_default().push(Absence { from, to: end, killed });
    }
    found
}
