//! What must never be in a history.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use serde::Serialize;

use super::WaitLimits;
use super::leases::ObservedLease;
use crate::clock::{Nanos, nanos};
use crate::event::{Event, EventKind};

/// What the clients were configured with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CheckLimits {
    pub(crate) ttl: Duration,
    /// What must be taken off the ttl before it is promised.
    pub(crate) drift: Duration,
    /// What those who wait are promised, if anything.
    pub(crate) waiting: Option<WaitLimits>,
}

/// A promise that was broken, as one line for people and where to draw it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Violation {
    pub(crate) rule: &'static str,
    pub(crate) at: Nanos,
    pub(crate) text: String,
}

pub(crate) const TWO_HOLDERS: &str = "two holders";
pub(crate) const TOKEN_ORDER: &str = "token order";
pub(crate) const STALE_WRITE: &str = "stale write";
pub(crate) const VALIDITY: &str = "validity";
pub(crate) const BESIDE_WRITER: &str = "reader beside writer";

/// What stands behind the name of a resource in the leases of those who read it.
pub(crate) const READ: &str = " (read)";

/// All violations of who holds a lock and until when.
pub(crate) fn violations(history: &[Event], leases: &[ObservedLease], limits: CheckLimits) -> Vec<Violation> {
    let mut by_resource: BTreeMap<&str, Vec<&ObservedLease>> = BTreeMap::new();
    for lease in leases {
        by_resource.entry(&lease.resource).or_default().push(lease);
    }
    let mut found = Vec::new();
    for (resource, leases) in &by_resource {
        if let Some(written) = resource.strip_suffix(READ) {
            let writers = by_resource.get(written).map_or(&[][..], Vec::as_slice);
            leases.iter().for_each(|reader| beside_writer(reader, writers, &mut found));
        } else {
            two_holders(leases, &mut found);
            token_order(leases, &mut found);
        }
    }
    leases.iter().for_each(|lease| validity(lease, limits, &mut found));
    stale_writes(history, leases, &mut found);
    found
}

/// At no instant do two leases of a resource hold. `leases` is in the order of `from`.
fn two_holders(leases: &[&ObservedLease], found: &mut Vec<Violation>) {
    let mut last: Option<&ObservedLease> = None;
    for lease in leases {
        if let Some(before) = last.filter(|before| lease.from < before.to) {
            let both = before.to.min(lease.to).saturating_sub(lease.from);
            found.push(Violation {
                rule: TWO_HOLDERS,
                at: lease.from,
                text: format!(
                    "{} was granted to {} while {} relied on it; both did for {:.1} ms",
                    lease.resource,
                    lease.client,
                    before.client,
                    millis(both)
                ),
            });
        }
        if last.is_none_or(|before| before.to < lease.to) {
            last = Some(lease);
        }
    }
}

/// At no instant does a reader's lease hold beside a writer's.
fn beside_writer(reader: &ObservedLease, writers: &[&ObservedLease], found: &mut Vec<Violation>) {
    for writer in writers.iter().filter(|writer| writer.from < reader.to && reader.from < writer.to) {
        let (from, to) = (writer.from.max(reader.from), writer.to.min(reader.to));
        found.push(Violation {
            rule: BESIDE_WRITER,
            at: from,
            text: format!(
                "{} read {} while {} wrote it; both did for {:.1} ms",
                reader.client,
                writer.resource,
                writer.client,
                millis(to.saturating_sub(from))
            ),
        });
    }
}

/// A lease that began after another one had ended has the larger token.
fn token_order(leases: &[&ObservedLease], found: &mut Vec<Violation>) {
    let mut by_end: Vec<&ObservedLease> = leases.to_vec();
    by_end.sort_by_key(|lease| lease.to);
    let mut ended = by_end.into_iter().peekable();
    let mut largest = None;
    for lease in leases {
        while let Some(before) = ended.next_if(|before| before.to <= lease.from) {
            largest = largest.max(before.token);
        }
        if let (Some(before), Some(token)) = (largest, lease.token)
            && token <= before
        {
            found.push(Violation {
                rule: TOKEN_ORDER,
                at: lease.from,
                text: format!(
                    "{} was granted to {} with token {token}, after a lease with token {before} had ended",
                    lease.resource, lease.client
                ),
            });
        }
    }
}

/// No promise goes further than the ttl, less the drift, from when it was made; it is made after the request was
/// sent, from when the library itself must count.
fn validity(lease: &ObservedLease, limits: CheckLimits, found: &mut Vec<Violation>) {
    let most = nanos(limits.ttl.saturating_sub(limits.drift));
    for (made, until) in &lease.promises {
        if until.saturating_sub(*made) > most {
            found.push(Violation {
                rule: VALIDITY,
                at: *made,
                text: format!(
                    "{} was told that {} is valid for {:.1} ms, of a ttl of {:?}",
                    lease.client,
                    lease.resource,
                    millis(until.saturating_sub(*made)),
                    limits.ttl
                ),
            });
        }
    }
}

/// The referee accepted no write of a lease after one of a lease that was granted later.
fn stale_writes(history: &[Event], leases: &[ObservedLease], found: &mut Vec<Violation>) {
    let granted: HashMap<(&str, u64), &ObservedLease> =
        leases.iter().map(|lease| ((lease.client.as_str(), lease.id), lease)).collect();
    let mut newest: HashMap<&str, &ObservedLease> = HashMap::new();
    for event in history {
        let EventKind::Write { client, lease, accepted: true, .. } = &event.kind else { continue };
        let Some(lease) = granted.get(&(client.as_str(), *lease)) else { continue };
        match newest.get(lease.resource.as_str()) {
            Some(later) if later.from > lease.from => found.push(Violation {
                rule: STALE_WRITE,
                at: event.at,
                text: format!(
                    "{client} wrote to {} {:.1} ms after its lease was over, and after {} had written as a later holder",
                    lease.resource,
                    millis(event.at.saturating_sub(lease.to)),
                    later.client
                ),
            }),
            _ => drop(newest.insert(&lease.resource, lease)),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "only shown")]
pub(crate) fn millis(nanos: Nanos) -> f64 {
    nanos as f64 / 1e6
}
