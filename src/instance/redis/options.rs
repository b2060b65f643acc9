//! What a connection is made with, and what stays of it for the next.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;

use super::address::Address;
use super::admission::records::Records;
use super::conn::{ConnOptions, Gathering};
use super::resp::Broken;
use super::standing::Standing;
use crate::clock::{Clock, CorrectedClock};
use crate::instance::{Invalidation, Listener};
use crate::process::Process;
use crate::protocol::{AdmissionTerms, Cause, InstanceId, Instant, LONGEST_TTL, Quorum};

/// The shortest deadline of a step, however short the instance timeout.
const MIN_STEP: Duration = Duration::from_millis(500);

/// What holds for all instances of a client.
pub(crate) struct ClientOptions {
    /// The process that built the client.
    pub(crate) process: Process,
    pub(crate) instance_timeout: Duration,
    pub(crate) quorum: Quorum,
    pub(crate) max_ttl: Duration,
    /// How long an instance that may have forgotten locks sits out (P15, P29).
    pub(crate) quarantine: Duration,
    pub(crate) drift_ppm: u32,
    /// Whether instances that may have forgotten locks are kept from voting.
    pub(crate) admission: bool,
    /// Whether records are taken as they are, and never written.
    pub(crate) as_recorded: bool,
    /// Whether the client wants locks from the start.
    pub(crate) wants_locks: bool,
    /// The machine's clock as it is, which the instances' clocks are compared with.
    pub(crate) machine_clock: Arc<dyn Clock>,
    /// The clock of the client's leases: put forward when the machine's turns out to have stood still.
    pub(crate) own_clock: Arc<CorrectedClock>,
    /// Where changed keys are reported.
    pub(crate) invalidations: mpsc::Sender<Invalidation>,
    /// Where messages of other clients go, if they are wanted.
    pub(crate) listener: Option<Listener>,
    pub(crate) gathering: Arc<Gathering>,
}

impl ClientOptions {
    /// For each instance of a client, with what its connections share.
    pub(super) fn for_each(self: Arc<Self>, addresses: Vec<Address>) -> impl Iterator<Item = ConnectOptions> {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let terms = AdmissionTerms { max_ttl_ms: ms(self.max_ttl), quarantine_ms: ms(self.quarantine) };
        let records = Arc::new(Records::new(terms, ms(LONGEST_TTL), self.as_recorded));
        if self.wants_locks {
            records.want_locks();
        }
        InstanceId::all(addresses.len()).zip(addresses).map(move |(id, address)| ConnectOptions {
            id,
            address,
            client: Arc::clone(&self),
            records: Arc::clone(&records),
            standing: Standing::default(),
        })
    }
}

/// What to connect to, and how, and what earlier connections have shown of it.
pub(super) struct ConnectOptions {
    pub(super) id: InstanceId,
    pub(super) address: Address,
    pub(super) client: Arc<ClientOptions>,
    pub(super) records: Arc<Records>,
    pub(super) standing: Standing,
}

impl ConnectOptions {
    /// By the machine's clock.
    pub(super) fn now(&self) -> Instant {
        self.client.machine_clock.now()
    }

    /// What a connection needs of it.
    pub(super) fn of_connection(&self) -> ConnOptions {
        let (clock, process) = (Arc::clone(&self.client.machine_clock), self.client.process);
        let (deadline, gathering) = (self.client.instance_timeout, Arc::clone(&self.client.gathering));
        ConnOptions { clock, process, deadline, gathering }
    }

    /// Does `work`, which takes so many round trips, within a deadline for that.
    pub(super) async fn within_trips<T>(
        &self,
        step: &'static str,
        trips: u32,
        work: impl Future<Output = Result<T, Cause>>,
    ) -> Result<T, ConnectFailure> {
        if self.client.process.is_forked() {
            return Err(ConnectFailure::Failed(Cause::Forked)); // nothing is opened for a runtime that was forked
        }
        let limit = self.client.instance_timeout.saturating_mul(trips).max(MIN_STEP);
        match timeout(limit, work).await {
            Ok(done) => done.map_err(ConnectFailure::Failed),
            Err(_) => Err(ConnectFailure::Late(step)),
        }
    }
}

/// Why there is no connection.
pub(super) enum ConnectFailure {
    /// It did not answer in time, in this step.
    Late(&'static str),
    /// The program at its address did not continue with TLS in time: a server without TLS waits for more.
    LateTls,
    /// It said what no answer is.
    Broken(Broken),
    /// It could not be reached, or answered something else.
    Failed(Cause),
}

impl ConnectFailure {
    pub(super) fn cause(self) -> Cause {
        match self {
            Self::Late(step) => Cause::NotConnected(format!("no answer in time while {step}")),
            Self::LateTls => {
                Cause::Tls("no answer to the TLS handshake in time: there may be no TLS at this port".to_owned())
            }
            Self::Broken(broken) => broken.cause(),
            Self::Failed(cause) => cause,
        }
    }
}
