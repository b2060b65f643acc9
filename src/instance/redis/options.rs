//! What a connection is made with.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::address::Address;
use super::admission::peers::Peers;
use super::admission::processes::Roster;
use super::timer_wakeups::Pacer;
use crate::clock::{Clock, CorrectedClock};
use crate::instance::Hint;

/// What holds for all instances of a client.
pub(crate) struct ClientOptions {
    pub(crate) instance_timeout: Duration,
    /// The votes needed.
    pub(crate) quorum: usize,
    pub(crate) max_ttl: Duration,
    pub(crate) drift_ppm: u32,
    /// Whether instances that may have forgotten locks are kept from voting.
    pub(crate) admission: bool,
    /// The machine's clock as it is, which the instances' clocks are compared with.
    pub(crate) machine_clock: Arc<dyn Clock>,
    /// The clock that the client's leases go by: put forward when the machine's turns out to have stood still.
    pub(crate) own_clock: Arc<CorrectedClock>,
    /// Who wants to know of keys that changed.
    pub(crate) hints: mpsc::Sender<Hint>,
}

impl ClientOptions {
    /// For each instance of a client, with what its connections share. Must be called within a tokio runtime.
    pub(super) fn for_each(self, addresses: Vec<Address>) -> impl Iterator<Item = Dial> {
        let roster = Arc::<Roster>::default();
        let peers = Peers::new(Arc::clone(&self.own_clock), self.quorum, self.instance_timeout, self.max_ttl);
        let (peers, pacer) = (Arc::new(peers), Arc::new(Pacer::start(self.instance_timeout)));
        addresses.into_iter().enumerate().map(move |(index, address)| Dial {
            index,
            address,
            instance_timeout: self.instance_timeout,
            max_ttl: self.max_ttl,
            drift_ppm: self.drift_ppm,
            clock: Arc::clone(&self.machine_clock),
            roster: Arc::clone(&roster),
            peers: Arc::clone(&peers),
            pacer: Arc::clone(&pacer),
            admission: self.admission,
            hints: self.hints.clone(),
        })
    }
}

/// What to connect to, and how.
#[derive(Clone, Debug)]
pub(super) struct Dial {
    pub(super) index: usize,
    pub(super) address: Address,
    pub(super) instance_timeout: Duration,
    pub(super) max_ttl: Duration,
    pub(super) drift_ppm: u32,
    /// The machine's clock as it is, which the instances' clocks are compared with.
    pub(super) clock: Arc<dyn Clock>,
    pub(super) roster: Arc<Roster>,
    pub(super) peers: Arc<Peers>,
    pub(super) pacer: Arc<Pacer>,
    /// Whether instances that may have forgotten locks are kept from voting.
    pub(super) admission: bool,
    /// Who wants to know of keys that changed.
    pub(super) hints: mpsc::Sender<Hint>,
}
