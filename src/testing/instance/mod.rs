//! One instance of a cluster, and what happens to its process.

mod data;
mod faults;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use self::faults::Hang;
use super::network::Network;
use super::simulation::{Data, MachineClock, Server};
use crate::instance::redis::{Address, Dialer};
use crate::testing::clock::RuntimeClock;

/// One in-process instance: faults to set, and its data. Cheap to clone; clones are the same instance.
#[derive(Clone)]
pub struct TestInstance(Arc<Inner>);

struct Inner {
    address: String,
    server: Server,
    network: Arc<Network>,
}

impl fmt::Debug for TestInstance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestInstance")
            .field("address", &self.address())
            .field("keys", &self.keys())
            .finish_non_exhaustive()
    }
}

impl TestInstance {
    pub(super) fn new(index: usize, clock: &Arc<RuntimeClock>) -> Self {
        let time = Arc::clone(clock);
        let machine = MachineClock::driven_by(move || time.elapsed(), clock.wall_us_at_start(), 0);
        let server = Server::new(index as u64, Arc::new(machine));
        // As if it had been used before; not from this very moment on, as the time of a paused runtime that is entered later
        // may be an earlier one.
        server.admit(Duration::from_secs(10), Duration::from_secs(60));
        let network = Arc::new(Network::new(Arc::clone(clock)));
        Self(Arc::new(Inner { address: format!("memory:{index}"), server, network }))
    }

    /// A record that it has since it was made allows ttls up to `longest`.
    pub(super) fn allow(&self, longest: Duration) {
        self.0.server.allow(longest);
    }

    /// Where clients connect to.
    pub(super) fn to_address(&self) -> Address {
        let instance = self.clone();
        let dial = move || {
            let (server, network) = (instance.0.server.clone(), Arc::clone(&instance.0.network));
            async move {
                if !server.is_up() {
                    return Err(std::io::ErrorKind::ConnectionRefused.into());
                }
                let (ours, theirs) = network.connect()?;
                tokio::spawn(async move { server.serve(theirs).await });
                Ok(ours)
            }
        };
        Address::dialed(self.address(), Dialer::new(dial))
    }
}

/// What happens to its process. Clients find out as they do of a server: see
/// [`InstanceStatus`](crate::InstanceStatus) for what they know.
impl TestInstance {
    /// Stops the process. Connections break, and what was on its way over them is lost.
    pub fn stop(&self) {
        self.0.server.stop();
    }

    /// Starts the process with this data, stopping it first if it runs. It may vote again after a
    /// [`max_ttl`](crate::Builder::max_ttl), as it may have forgotten locks.
    pub fn start(&self, data: Data) {
        self.0.server.start(data);
    }

    /// A replica that followed the process takes its place, with this data.
    pub fn promote(&self, data: Data) {
        self.0.server.fail_over(data);
    }

    /// The process becomes a replica, and takes no writes until [`promote`](Self::promote) or [`start`](Self::start).
    pub fn demote(&self) {
        self.0.server.demote();
    }

    /// The process follows another master for a moment, whose data this is, and is a master again.
    pub fn resynchronise(&self, data: Data) {
        self.0.server.resynchronise(data);
    }

    /// This data takes the place of what is there, while clients are connected.
    pub fn restore(&self, data: Data) {
        self.0.server.restore(data);
    }

    /// Deletes all data, as FLUSHALL does.
    pub fn flush(&self) {
        self.0.server.flush();
    }

    /// As FLUSHDB of another database does: the data stays. Clients get a push for any flush, which does not name the database.
    pub fn flush_another_database(&self) {
        self.0.server.flush_another_database();
    }

    /// Keeps a copy of the data as it is now, for [`Data::Saved`]. Without one that is no data.
    pub fn save(&self) {
        self.0.server.save();
    }

    /// Forgets the scripts, as SCRIPT FLUSH does.
    pub fn forget_scripts(&self) {
        self.0.server.forget_scripts();
    }

    /// Sets the wall clock forward. Keys expire by it.
    pub fn set_clock_forward(&self, by: Duration) {
        self.0.server.clock().step_us(microseconds(by));
    }

    /// Sets the wall clock back.
    pub fn set_clock_back(&self, by: Duration) {
        self.0.server.clock().step_us(-microseconds(by));
    }
}

fn microseconds(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}
