//! One instance of a cluster: what happens to its process, what can be wrong with it, and its data.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::network::{Network, Way};
use super::simulation::{Data, MachineClock, Server};
use crate::clock::Clock;
use crate::instance::Request;
use crate::instance::redis::{Address, Dialer};
use crate::protocol::FencingToken;
use crate::resource::{RESERVED, TOKENS_KEY};
use crate::testing::mirror::scripts::floor;
use crate::testing::mirror::store::Store;

/// One in-process instance: faults to set, and its data. Cheap to clone; clones are the same instance.
#[derive(Clone)]
pub struct TestInstance(Arc<Inner>);

struct Inner {
    address: String,
    server: Server,
    network: Arc<Network>,
}

/// How an instance hangs: connected, but without an answer. Each request to it then ends with the
/// instance timeout, and after three in a row its client sends nothing more until it is connected again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hang {
    /// The process stands still (SIGSTOP): requests are carried out, in order, when it continues.
    Stopped,
    /// Requests arrive and are carried out at once, answers get lost.
    RepliesLost,
    /// Requests get lost.
    RequestsLost,
}

/// How many requests an instance has carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Requests {
    /// To acquire.
    pub acquire: usize,
    /// To extend, or to enter again.
    pub extend: usize,
    /// To release.
    pub release: usize,
}

impl Requests {
    /// All of them.
    #[must_use]
    pub const fn total(self) -> usize {
        self.acquire + self.extend + self.release
    }

    pub(super) const fn count(&mut self, request: &Request) {
        match request {
            Request::Acquire(_) => self.acquire += 1,
            Request::Extend(_) | Request::Keep(_) => self.extend += 1,
            Request::Release(..) => self.release += 1,
        }
    }
}

impl std::ops::Add for Requests {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            acquire: self.acquire + other.acquire,
            extend: self.extend + other.extend,
            release: self.release + other.release,
        }
    }
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
    pub(super) fn new(index: usize, clock: &Arc<MachineClock>) -> Self {
        let server = Server::new(index as u64, Arc::new(clock.of_another()));
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

/// Faults that last until [`resume`](Self::resume).
impl TestInstance {
    /// Hangs.
    pub fn hang(&self, how: Hang) {
        match how {
            Hang::Stopped => self.0.server.hang(),
            Hang::RepliesLost => self.0.network.lose(Way::Down),
            Hang::RequestsLost => self.0.network.lose(Way::Up),
        }
    }

    /// Breaks all connections and refuses new ones, as a network does that cannot reach it. The process continues,
    /// and forgets nothing.
    pub fn cut_off(&self) {
        self.0.network.cut_off();
    }

    /// Requests take `before` to the instance and their answers `after` back. Their order is kept; with a `before`
    /// above the instance timeout requests are carried out after the client has given up.
    pub fn slow_down(&self, before: Duration, after: Duration) {
        self.0.network.slow_down(before, after);
    }

    /// Carries out the next `count` commands with requests, but breaks the connection instead of answering. A
    /// client puts requests that wait for each other into one command.
    pub fn lose_replies(&self, count: usize) {
        self.0.server.lose_replies(count);
    }

    /// Carries out nothing and answers every request with an error, in the words of a server: a code and a
    /// text, as `OOM command not allowed when used memory > 'maxmemory'.` of one whose memory is full.
    pub fn refuse(&self, error: impl Into<String>) {
        self.0.server.refuse(error.into());
    }

    /// Carries out no acquire and answers each that it has stored `token`, which is not so.
    pub fn claim_token(&self, token: FencingToken) {
        self.0.server.claim_token(token);
    }

    /// Breaks all connections once. What was on its way over them to a [slow](Self::slow_down) instance is carried
    /// out after `late`, possibly behind newer requests; what [`Hang::Stopped`] holds back stays so.
    pub fn break_connections(&self, late: Duration) {
        self.0.network.break_connections(late);
    }

    /// Ends every fault. Clients connect again where they must: see [`Redlock::wait_connected`](crate::Redlock::wait_connected).
    pub fn resume(&self) {
        self.0.network.heal();
        self.0.server.end_faults();
        self.0.server.go_on();
    }
}

/// Data.
impl TestInstance {
    /// How the instance is called in errors.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.0.address
    }

    /// What its wall clock reads, in microseconds since the Unix epoch.
    #[must_use]
    pub fn wall_us(&self) -> u64 {
        self.0.server.clock().wall_us()
    }

    /// How many requests the instance has carried out.
    #[must_use]
    pub fn requests(&self) -> Requests {
        self.0.server.requests()
    }

    /// The keys of all locks and of everything else but the library's own, sorted. Bytes that are
    /// no text are replaced.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        self.0.server.with_data(|store, _| {
            let keys = store.keys().filter(|key| !key.starts_with(RESERVED));
            keys.map(|key| String::from_utf8_lossy(key).into_owned()).collect()
        })
    }

    /// The value of a key, if it is there and a string.
    #[must_use]
    pub fn value(&self, key: impl AsRef<[u8]>) -> Option<Vec<u8>> {
        self.0.server.with_data(|store, _| store.get(key.as_ref()).map(<[u8]>::to_vec))
    }

    /// How long a key will still live, in whole milliseconds; `None` if it is missing or never
    /// expires.
    #[must_use]
    pub fn expires_in(&self, key: impl AsRef<[u8]>) -> Option<Duration> {
        self.0.server.with_data(|store, now| store.ttl(key.as_ref(), now))
    }

    /// The fencing token that the instance has stored for the lock with this key.
    #[must_use]
    pub fn fencing_token(&self, key: impl AsRef<[u8]>) -> Option<FencingToken> {
        let stored = |store: &Store| store.score(TOKENS_KEY.as_bytes(), key.as_ref()).ok().flatten();
        self.0.server.with_data(|store, _| stored(store).and_then(FencingToken::from_score))
    }

    /// The largest token that it may have forgotten, of any lock (P13).
    #[must_use]
    pub fn floor(&self) -> Option<FencingToken> {
        let wall_us = self.wall_us();
        self.0.server.with_data(|store, _| floor(store, wall_us))
    }

    /// Stores this as the fencing token of the lock with this key: [`FencingToken::to_score`], or anything.
    pub fn set_token_score(&self, key: impl AsRef<[u8]>, score: f64) {
        self.0.server.with_data(|store, _| {
            let _ = store.set_score(TOKENS_KEY.as_bytes(), key.as_ref(), score); // the key has no other type
        });
    }

    /// Sets a key as a client of another library would, with `SET key value NX PX ttl`; gives
    /// whether it was free.
    pub fn set_if_absent(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, ttl: Duration) -> bool {
        self.0
            .server
            .with_data(|store, now| store.set_if_absent(key.as_ref(), value.as_ref(), Some(now.saturating_add(ttl))))
    }

    /// Sets a key that never expires, in place of any other.
    pub fn set(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.0.server.with_data(|store, _| store.set(key.as_ref(), value.as_ref(), None));
    }

    /// Makes a key that is no string, as a list or a hash is.
    pub fn set_other_type(&self, key: impl AsRef<[u8]>) {
        self.0.server.with_data(|store, _| store.set_other_type(key.as_ref()));
    }

    /// Deletes a key; gives whether it was there.
    pub fn remove(&self, key: impl AsRef<[u8]>) -> bool {
        self.0.server.with_data(|store, _| store.remove(key.as_ref()))
    }
}

pub(super) fn microseconds(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}
