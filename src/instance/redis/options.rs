//! What a connection is made with.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::address::Address;
use super::admission::peers::PeerConnections;
use super::admission::processes::ProcessRegistry;
use super::admission::records::Records;
use crate::clock::{Clock, CorrectedClock};
use crate::instance::{Invalidation, Listener};
use crate::protocol::AdmissionTerms;

/// What holds for all instances of a client.
pub(crate) struct ClientOptions {
    pub(crate) instance_timeout: Duration,
    /// The votes needed.
    pub(crate) quorum: usize,
    pub(crate) max_ttl: Duration,
    /// How long an instance that may have forgotten locks sits out (P15, P29).
    pub(crate) quarantine: Duration,
    pub(crate) drift_ppm: u32,
    /// For how long instances keep fencing tokens (P13).
    pub(crate) fence_retention: Duration,
    /// Whether instances that may have forgotten locks are kept from voting.
    pub(crate) admission: bool,
    /// Whether records are taken as they are, and never written.
    pub(crate) as_recorded: bool,
    /// Whether the client wants locks from the start.
    pub(crate) wants_locks: bool,
    /// The machine's clock as it is, which the instances' clocks are compared with.
    pub(crate) machine_clock: Arc<dyn Clock>,
    /// The clock that the client's leases go by: put forward when the machine's turns out to have stood still.
    pub(crate) own_clock: Arc<CorrectedClock>,
    /// Who wants to know of keys that changed.
    pub(crate) invalidations: mpsc::Sender<Invalidation>,
    /// Who wants to hear from other clients, if anybody.
    pub(crate) listener: Option<Listener>,
}

impl ClientOptions {
    /// For each instance of a client, with what its connections share. Must be called within a tokio runtime.
    pub(super) fn for_each(self, addresses: Vec<Address>) -> impl Iterator<Item = ConnectOptions> {
        let processes = Arc::<ProcessRegistry>::default();
        // What others ask for, and so how often they look at clocks, is at most the own quarantine (P29).
        let peers =
            PeerConnections::new(Arc::clone(&self.own_clock), self.quorum, self.instance_timeout, self.quarantine);
        let peers = Arc::new(peers);
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let terms = AdmissionTerms { max_ttl_ms: ms(self.max_ttl), quarantine_ms: ms(self.quarantine) };
        // No client may ask for more than half of what tokens are kept for.
        let records = Arc::new(Records::new(terms, ms(self.fence_retention / 2), self.as_recorded));
        if self.wants_locks {
            records.want_locks();
        }
        addresses.into_iter().enumerate().map(move |(index, address)| ConnectOptions {
            index,
            address,
            instance_timeout: self.instance_timeout,
            max_ttl: self.max_ttl,
            records: Arc::clone(&records),
            drift_ppm: self.drift_ppm,
            fence_retention: self.fence_retention,
            clock: Arc::clone(&self.machine_clock),
            processes: Arc::clone(&processes),
            peers: Arc::clone(&peers),
            admission: self.admission,
            invalidations: self.invalidations.clone(),
            listener: self.listener.clone(),
        })
    }
}

/// What to connect to, and how.
#[derive(Clone, Debug)]
pub(super) struct ConnectOptions {
    pub(super) index: usize,
    pub(super) address: Address,
    pub(super) instance_timeout: Duration,
    pub(super) max_ttl: Duration,
    pub(super) records: Arc<Records>,
    pub(super) drift_ppm: u32,
    /// For how long instances keep fencing tokens (P13).
    pub(super) fence_retention: Duration,
    /// The machine's clock as it is, which the instances' clocks are compared with.
    pub(super) clock: Arc<dyn Clock>,
    pub(super) processes: Arc<ProcessRegistry>,
    pub(super) peers: Arc<PeerConnections>,
    /// Whether instances that may have forgotten locks are kept from voting.
    pub(super) admission: bool,
    /// Who wants to know of keys that changed.
    pub(super) invalidations: mpsc::Sender<Invalidation>,
    /// Who wants to hear from other clients, if anybody.
    pub(super) listener: Option<Listener>,
}

impl ConnectOptions {
    /// How long an instance waits of which the client learns late that it is a process of its own: what may have been forgotten
    /// behind its address has ended by then, whatever clocks do within the drift.
    pub(super) fn wait_of_namesake(&self) -> Duration {
        let quarantine = Duration::from_millis(self.records.to_write().wait_ms);
        let drift = quarantine.saturating_mul(self.drift_ppm.saturating_mul(2)) / 1_000_000;
        quarantine.saturating_add(drift)
    }
}
