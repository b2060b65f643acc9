//! Who relied on which lock from when to when, read out of a history.

use std::collections::HashMap;

use crate::clock::Nanos;
use crate::event::{Event, EventKind};

/// A lock that a client was granted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ObservedLease {
    pub(crate) client: String,
    pub(crate) id: u64,
    pub(crate) resource: String,
    pub(crate) token: Option<u64>,
    pub(crate) asked: Nanos,
    pub(crate) from: Nanos,
    /// When the client stopped relying on it: released, seen as lost, or its validity was over.
    pub(crate) to: Nanos,
    pub(crate) lost: bool,
    /// Each promise of validity: when it was made, and until when it goes.
    pub(crate) promises: Vec<(Nanos, Nanos)>,
}

impl ObservedLease {
    fn valid_until(&self) -> Nanos {
        self.promises.last().map_or(self.from, |promise| promise.1)
    }
}

/// All leases in the order of their grants.
pub(crate) fn leases(history: &[Event]) -> Vec<ObservedLease> {
    let mut leases: Vec<ObservedLease> = Vec::new();
    let mut open: HashMap<(String, u64), usize> = HashMap::new();
    for event in history {
        let at = event.at;
        let key = |lease: u64| (event.who.clone(), lease);
        match &event.kind {
            EventKind::Grant { resource, lease, asked, valid_until, token } => {
                open.insert(key(*lease), leases.len());
                leases.push(ObservedLease {
                    client: event.who.clone(),
                    id: *lease,
                    resource: resource.clone(),
                    token: *token,
                    asked: *asked,
                    from: at,
                    to: Nanos::MAX,
                    lost: false,
                    promises: vec![(at, *valid_until)],
                });
            }
            EventKind::Extend { lease, valid_until } => {
                if let Some(lease) = open.get(&key(*lease)).and_then(|index| leases.get_mut(*index)) {
                    lease.promises.push((at, *valid_until));
                }
            }
            EventKind::Stop { lease, lost } => {
                if let Some(lease) = open.remove(&key(*lease)).and_then(|index| leases.get_mut(index)) {
                    lease.to = at;
                    lease.lost = *lost;
                }
            }
            _ => {}
        }
    }
    for lease in &mut leases {
        lease.to = lease.to.min(lease.valid_until()).max(lease.from);
    }
    leases.sort_by_key(|lease| lease.from);
    leases
}
