//! Whether an instance's clock jumped, or the client's own stood still: one connection cannot
//! distinguish them, all connections of a client together can (P17).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::{sleep, timeout};

use super::namesakes::ProcessNames;
use super::shared::SharedAdmission;
use crate::clock::{Clock, CorrectedClock};
use crate::instance::redis::connection::{InstanceConnection, probe_interval};
use crate::instance::redis::options::ClientOptions;
use crate::protocol::{ClockWatch, InstanceId, Instant, JumpedClock, Quorum, proposing_clock, which_clock_jumped};

/// How long connections that broke with the client's standstill have to come back, at least.
const MIN_COMPARISON: Duration = Duration::from_millis(500);

/// The pause between two comparisons, where too few instances have answered.
const PAUSE: Duration = Duration::from_millis(20);

/// What the connections of one client know together.
#[derive(Debug, Default)]
struct Connected {
    /// By the position of the instance in the configuration.
    by_index: BTreeMap<usize, Weak<InstanceConnection>>,
    /// Until when nothing counts, by the machine's clock, because that had stood still: over no connection, later ones included.
    withheld_until: Instant,
}

/// The connections of one client, and its clock.
#[derive(Debug)]
pub(crate) struct PeerConnections {
    /// The clock of the client's rounds and leases.
    clock: Arc<CorrectedClock>,
    quorum: Quorum,
    comparison_limit: Duration,
    /// How long connected clients take to notice a step.
    notice: Duration,
    connected: Mutex<Connected>,
    pub(crate) processes: ProcessNames,
}

impl PeerConnections {
    pub(crate) fn new(client: &ClientOptions) -> Self {
        // What others ask for, and so how often they look at clocks, is at most the client's quarantine (P29).
        let notice = probe_interval(client.quarantine).saturating_add(client.instance_timeout);
        let comparison_limit = client.instance_timeout.max(MIN_COMPARISON);
        let (clock, quorum) = (Arc::clone(&client.own_clock), client.quorum);
        let (connected, processes) = (Mutex::default(), ProcessNames::new(client.quarantine));
        Self { clock, quorum, comparison_limit, notice, connected, processes }
    }

    pub(crate) fn add(&self, connection: &Arc<InstanceConnection>) {
        let mut connected = self.connected();
        if let Some(admission) = &connection.admission {
            admission.state().withhold_until(connected.withheld_until);
        }
        connected.by_index.insert(connection.options.id.index(), Arc::downgrade(connection));
        // Some may have no record because too few clocks were known.
        for peer in connected.by_index.values().filter_map(Weak::upgrade) {
            peer.admission.iter().for_each(SharedAdmission::request_record);
        }
    }

    pub(crate) fn remove(&self, index: usize) {
        self.connected().by_index.remove(&index);
    }

    /// What the clock shows by which the client proposes tokens (P12), if it knows those of a quorum of its instances; `new` is that
    /// of one that is being connected.
    pub(crate) fn proposing_us(&self, new: Option<(InstanceId, u64)>) -> Option<u64> {
        let now = self.clock.now();
        let connected = self.connected();
        let reading = |index| match new {
            Some((id, us)) if id.index() == index => Some(us),
            _ => Some(connected.by_index.get(&index)?.upgrade()?.admission.as_ref()?.state().wall_us(now)),
        };
        let readings: Vec<_> = (0..self.quorum.instances()).map(reading).collect();
        let is_known = readings.iter().flatten().count() >= self.quorum.votes();
        let clock = proposing_clock(self.clock.wall_us(), readings.into_iter(), self.quorum);
        is_known.then(|| clock.map_or_else(|apart| apart.instances_us, |clock| clock.us))
    }

    /// What the client's own wall clock shows.
    pub(crate) fn own_us(&self) -> u64 {
        self.clock.wall_us()
    }

    /// How far the client's clock has been put forward, in all.
    pub(crate) fn own_clock_ahead(&self) -> Duration {
        self.clock.ahead()
    }

    /// Whether the instance behind `connection` seems to have jumped because the client's clock stood still. If so
    /// the client's leases have aged by that, and nothing more needs to be done about any instance.
    ///
    /// Before anything is written: a client that takes itself for the one that went on would put every
    /// instance into quarantine, and end the leases of all other clients.
    pub(crate) async fn own_clock_stood_still(&self, connection: &InstanceConnection) -> bool {
        // One instance alone does not show it. An error means that too few were there in time.
        self.quorum.votes() > 1
            && timeout(self.comparison_limit, self.compare_clocks(connection)).await.unwrap_or(false)
    }

    async fn compare_clocks(&self, connection: &InstanceConnection) -> bool {
        loop {
            let peers = self.all();
            let probe =
                async |index: usize, connection: Arc<InstanceConnection>| connection.probe().await.map(|_| index);
            let mut probes: FuturesUnordered<_> =
                peers.iter().enumerate().map(|(index, connection)| probe(index, Arc::clone(connection))).collect();
            let mut answered: Vec<&Arc<InstanceConnection>> = Vec::new();
            while let Some(probe) = probes.next().await {
                answered.extend(probe.and_then(|index| peers.get(index)));
                let watches = watches(&answered);
                if which_clock_jumped(watches.iter(), self.quorum.votes()) == JumpedClock::Instances {
                    return false;
                }
            }
            match self.settle(connection, &answered) {
                JumpedClock::Own(_) => return true,
                JumpedClock::Instances => return false,
                JumpedClock::Unknown => sleep(PAUSE).await,
            }
        }
    }

    /// Decides, and ages the client's leases once, on the connection that finds out first.
    fn settle(&self, connection: &InstanceConnection, answered: &[&Arc<InstanceConnection>]) -> JumpedClock {
        let mut connected = self.connected(); // one decides at a time
        let Some(admission) = connection.admission.as_ref().filter(|admission| admission.has_jumped()) else {
            return JumpedClock::Own(Duration::ZERO);
        };
        let watches = watches(answered);
        let verdict = which_clock_jumped(watches.iter(), self.quorum.votes());
        if let JumpedClock::Own(by) = verdict {
            self.clock.put_forward(by);
            let until = connection.options.now().saturating_add(self.notice);
            connected.withheld_until = until;
            for peer in connected.by_index.values().filter_map(Weak::upgrade) {
                peer.admission.iter().for_each(|admission| admission.state().own_clock_stood_still(by, until));
            }
            let has_jumped_itself = admission.has_jumped(); // by more than that
            drop(connected);
            tracing::warn!(?by, "the clock of this machine stood still: its leases were shortened by that time");
            if has_jumped_itself {
                return JumpedClock::Instances;
            }
        }
        verdict
    }

    fn all(&self) -> Vec<Arc<InstanceConnection>> {
        self.connected().by_index.values().filter_map(Weak::upgrade).collect()
    }

    fn connected(&self) -> MutexGuard<'_, Connected> {
        self.connected.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn watches(connections: &[&Arc<InstanceConnection>]) -> Vec<ClockWatch> {
    connections.iter().filter_map(|connection| Some(*connection.admission.as_ref()?.state().watch())).collect()
}
