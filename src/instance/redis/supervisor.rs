//! The task that keeps one connection up. The life of a connection:
//!
//! - It is opened, logged in and admitted ([`connect()`]), each step within a deadline.
//! - It is announced ([`ConnectionState`]): requests are sent over it. Meanwhile this task forwards pushes, probes the
//!   instance, and does what replies or flushes require about its admission (P15, P17).
//! - It ends when it breaks, when the instance has left several requests unanswered, or when its admission cannot
//!   be settled. Then the cause is announced, and requests that wait are `NotSent`.
//! - After a pause, longer with each failure, the next one is opened.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::watch;
use tokio::time::sleep;

use super::admission::peers::PeerConnections;
use super::admission::records::Records;
use super::admission::server_info::{self, ServerInfo};
use super::admission::shared::SharedAdmission;
use super::classify::clip;
use super::connect::{ADMISSION_TRIPS, connect, note_refusal};
use super::connection::{InstanceConnection, probe_interval};
use super::forget_tokens::keep_forgetting_tokens;
use super::link::closed;
use super::options::{ConnectFailure, ConnectOptions};
use super::pushes::Pushes;
use super::quarantine_log::QuarantineLog;
use super::sentinel::moved;
use crate::instance::{ChangedKeys, Invalidation};
use crate::log_limit::LogLimit;
use crate::protocol::{Cause, Instant, reconnect_delay};
use crate::random;
use crate::resource::ADMISSION_KEY;

/// The first pause before connecting again, and the longest.
const RECONNECT_LEAST: Duration = Duration::from_millis(20);
const RECONNECT_MOST: Duration = Duration::from_secs(1);

/// The same behind connections over which the instance said what no answer is.
const BROKEN_LEAST: Duration = Duration::from_millis(50);
const BROKEN_MOST: Duration = Duration::from_secs(120);

/// After a connection that lasted so long without that the instance has behaved, and its pauses begin anew.
const BEHAVED: Duration = Duration::from_secs(60);

/// How often it is checked whether an instance that gives this client no votes, for its settings or its rights, does so now.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);

/// After a connection that broke sooner than this, the next is logged as connected only once it has lasted as
/// long.
const STEADY: Duration = Duration::from_secs(1);

/// The pause after pushes were passed on; those that come meanwhile are passed on together. So a
/// flood leads to so many looks and not more.
const PUSH_PAUSE: Duration = Duration::from_millis(1);

/// The connection over which requests can be sent now, or why there is none.
pub(crate) type ConnectionState = Result<Arc<InstanceConnection>, Cause>;

/// What the log says of one connection: connected, disconnected, and now and then that it still is not connected.
#[derive(Debug, Default)]
struct ConnectionLog {
    logged_up: bool,
    failures: LogLimit,
}

impl ConnectionLog {
    /// It is up, and seems to last.
    fn up(&mut self, instance: &str) {
        if !self.logged_up {
            tracing::info!(instance, "connected");
        }
        *self = Self { logged_up: true, failures: LogLimit::default() };
    }

    /// It is down.
    fn down(&mut self, instance: &str, cause: &Cause, now: Instant) {
        let was_up = std::mem::take(&mut self.logged_up);
        match self.failures.note(now) {
            Some(_) if was_up => tracing::warn!(instance, %cause, "disconnected"),
            Some(times) => tracing::warn!(instance, %cause, times, "not connected"),
            None => tracing::debug!(instance, %cause, "not connected"),
        }
    }
}

/// How long the supervisor waits before it connects again.
#[derive(Debug, Default)]
struct Pauses {
    last: Duration,
    /// How many connections in a row have failed, or not lasted longer than the pause before them.
    failures: u32,
    /// Over how many connections the instance said what no answer is, until it behaved for a while.
    broken: u32,
}

impl Pauses {
    /// The pause behind a connection that lasted so long, and was `broken` by what the instance said, or not.
    fn next(&mut self, lasted: Duration, broken: bool) -> Duration {
        // Otherwise an instance that takes connections and drops them is connected to all the time.
        if lasted > self.last {
            self.failures = 0;
        }
        if lasted >= BEHAVED {
            self.broken = 0;
        }
        self.broken = self.broken.saturating_add(u32::from(broken));
        self.last = reconnect_delay(self.failures, RECONNECT_LEAST, RECONNECT_MOST, random::spread());
        if let Some(before) = self.broken.checked_sub(1) {
            self.last = self.last.max(reconnect_delay(before, BROKEN_LEAST, BROKEN_MOST, random::spread()));
        }
        self.failures = self.failures.saturating_add(1);
        self.last
    }
}

/// The supervisor of the connection to one instance.
struct Supervisor {
    options: Arc<ConnectOptions>,
    peers: Arc<PeerConnections>,
    announced: AnnouncedState,
    log: ConnectionLog,
    quarantine: QuarantineLog,
    pauses: Pauses,
    /// The present connection.
    serving: Option<Arc<InstanceConnection>>,
    /// When it was opened.
    up_since: Option<Instant>,
    /// Whether the last connection broke sooner than [`STEADY`].
    flaps: bool,
}

/// The state of the connection, for others. However the task ends (by a panic, or with the runtime), the state
/// is down then.
struct AnnouncedState(watch::Sender<ConnectionState>, Arc<Records>);

impl AnnouncedState {
    /// Notifies tasks that wait for a change, if it says that there is one. Callers are among them.
    fn announce(&self, change: impl FnOnce(&mut ConnectionState) -> bool) {
        self.0.send_if_modified(change);
        self.1.wake_waiting();
    }
}

impl Drop for AnnouncedState {
    fn drop(&mut self) {
        let cause = "the task of its connection has ended, with the client or its runtime".to_owned();
        let mut last = Err(Cause::NotConnected(cause));
        self.announce(|state| {
            std::mem::swap(state, &mut last);
            true
        });
        if let Ok(connection) = last {
            connection.conn.close();
        }
    }
}

/// Keeps a connection up until its state is not read any more.
pub(super) async fn supervise(
    options: Arc<ConnectOptions>,
    peers: Arc<PeerConnections>,
    state: watch::Sender<ConnectionState>,
) {
    let announced = AnnouncedState(state, Arc::clone(&options.records));
    let (log, quarantine, pauses) = (ConnectionLog::default(), QuarantineLog::default(), Pauses::default());
    let (serving, up_since, flaps) = (None, None, false);
    let mut supervisor = Supervisor { options, peers, announced, log, quarantine, pauses, serving, up_since, flaps };
    while !supervisor.announced.0.is_closed() {
        // What the crates below panic at is a cause like any other.
        let ended = AssertUnwindSafe(supervisor.connect_and_serve()).catch_unwind().await;
        let pause = supervisor.end(ended.unwrap_or_else(|panic| ConnectFailure::Failed(panicked(&*panic))));
        sleep(pause).await;
    }
}

fn panicked(panic: &(dyn Any + Send)) -> Cause {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    Cause::NotConnected(clip(&format!("a panic: {}", text.unwrap_or("without words"))))
}

impl Supervisor {
    /// Returns why it ended.
    async fn connect_and_serve(&mut self) -> ConnectFailure {
        match connect(&self.options, &self.peers).await {
            Ok((connection, pushes)) => ConnectFailure::Failed(self.serve(connection, &pushes).await),
            Err(reason) => reason,
        }
    }

    /// Records that there is no connection, or not any more; returns how long to wait for the next. Requests that wait are answered, and what
    /// is in doubt about the instance stays so for the next connection.
    fn end(&mut self, reason: ConnectFailure) -> Duration {
        let serving = self.serving.take();
        let broken = serving.as_ref().and_then(|connection| connection.conn.broken_by().cloned());
        let reason = broken.map_or(reason, ConnectFailure::Broken);
        let was_late = matches!(reason, ConnectFailure::Late(_) | ConnectFailure::LateTls);
        let said_too_much = matches!(&reason, ConnectFailure::Broken(broken) if !broken.is_another_protocol());
        let (cause, now) = (reason.cause(), self.options.now());
        self.announced.announce(|state| {
            // A silent instance that does not answer a probe either is still best called silent.
            let is_still_silent = was_late && matches!(state, Err(Cause::Silent));
            if !is_still_silent {
                *state = Err(cause.clone());
            }
            !is_still_silent
        });
        if let Some(connection) = serving {
            connection.conn.close();
            self.peers.remove(self.options.id.index());
            let ahead = self.peers.own_clock_ahead();
            connection.admission.iter().for_each(|admission| admission.remember_for_next_connection(ahead));
        }
        self.log.down(self.options.address.shown(), &cause, now);
        self.peers.processes.disconnected(self.options.id.index(), now);
        self.options.standing.lock().last_error = Some(cause.to_string());
        let lasted = self.up_since.take().map(|since| now.saturating_since(since));
        self.flaps = lasted.is_some_and(|lasted| lasted < STEADY);
        self.pauses.next(lasted.unwrap_or_default(), said_too_much)
    }

    /// Offers the connection until it is to be given up; returns the reason.
    async fn serve(&mut self, connection: Arc<InstanceConnection>, pushes: &Pushes) -> Cause {
        self.serving = Some(Arc::clone(&connection));
        let (options, peers) = (&Arc::clone(&self.options), Arc::clone(&self.peers));
        options.standing.connected();
        self.up_since = Some(options.now());
        self.peers.add(&connection); // before it may be used: it learns what the others know
        let up = Ok(Arc::clone(&connection));
        self.announced.announce(move |state| {
            *state = up;
            true
        });
        let mut forwarding = pin!(forward(pushes, &connection));
        let mut probes = pin!(keep_probing(&connection, probe_interval(options.client.max_ttl)));
        // A client that only looks changes nothing.
        let mut forgetting = pin!(async {
            options.records.wanted().await;
            keep_forgetting_tokens(&connection, &peers).await;
        });
        let mut wanted = pin!(request_record(&connection));
        let mut rights = pin!(keep_asking_rights(&connection));
        let mut moved = pin!(moved(options, options.standing.lock().endpoint.clone()));
        let mut steady = pin!(sleep(if self.flaps { STEADY } else { Duration::ZERO }));
        let mut is_steady = false;
        loop {
            let quarantine_left = self.quarantine.until.map(|until| until.saturating_since(options.now()));
            let quarantine_left = quarantine_left.unwrap_or_default();
            tokio::select! {
                biased; // what never holds up the others comes first
                cause = connection.given_up() => return cause,
                () = self.announced.0.closed() => return closed(),
                () = &mut moved => return Cause::NotConnected("its sentinels name another master".to_owned()),
                () = &mut forwarding => {}
                () = &mut probes => {}
                () = &mut forgetting => {}
                () = &mut wanted => {}
                () = &mut rights => {}
                () = sleep(REFUSED_PAUSE), if connection.refusal().is_some() => {
                    connection.admission.iter().for_each(|it| it.reread_record());
                }
                () = &mut steady, if !is_steady => {
                    is_steady = true;
                    self.log.up(options.address.shown());
                    connection.admission.iter().for_each(|it| self.note_quarantine(it, false));
                }
                () = sleep(quarantine_left), if self.quarantine.until.is_some() => {
                    connection.admission.iter().for_each(|it| self.note_quarantine(it, false));
                }
                admission = woken(&connection) => {
                    let is_unknown = admission.take_unknown();
                    let has_jumped = admission.has_jumped() && !peers.own_clock_stood_still(&connection).await;
                    let carry_out = carry_out(&connection, admission, (is_unknown, has_jumped), &peers);
                    match options.within_trips("renewing admission", ADMISSION_TRIPS, carry_out).await {
                        Ok(None) => {}
                        Ok(Some((is_quarantined, info))) => {
                            options.standing.lock().note_info(info);
                            let meaning = admission.state().meaning().clone();
                            note_refusal(options, &meaning);
                            self.note_quarantine(admission, is_quarantined);
                        }
                        Err(reason) => return reason.cause(),
                    }
                    self.announced.announce(|_| true); // tasks that wait for the record look again
                }
            }
        }
    }

    fn note_quarantine(&mut self, admission: &SharedAdmission, has_jumped: bool) {
        let state = admission.state().clone(); // a subscriber is foreign code
        self.quarantine.note(self.options.address.shown(), &state, has_jumped, self.options.now());
    }
}

/// Passes pushes on: those about the record to admission, changed keys to the tasks that watch them.
///
/// What changed while there was no connection was not pushed: watched keys are checked first.
async fn forward(pushes: &Pushes, connection: &InstanceConnection) {
    let (instance, invalidations) = (connection.options.id, &connection.options.client.invalidations);
    // An error means that the client is gone.
    let _ = invalidations.send(Invalidation { instance, keys: ChangedKeys::Any }).await;
    loop {
        let pending = pushes.next().await;
        if let Some(admission) = &connection.admission {
            if pending.flushed {
                admission.wake_supervisor();
            } else if pending.may_be(ADMISSION_KEY.as_bytes()) {
                admission.reread_record();
            }
        }
        let keys = if pending.any { ChangedKeys::Any } else { ChangedKeys::Among(pending.keys) };
        let _ = invalidations.send(Invalidation { instance, keys }).await;
        sleep(PUSH_PAUSE).await;
    }
}

/// Has the record written once the client wants locks.
async fn request_record(connection: &InstanceConnection) {
    connection.options.records.wanted().await;
    connection.admission.iter().for_each(SharedAdmission::request_record);
    std::future::pending().await
}

async fn woken(connection: &InstanceConnection) -> &SharedAdmission {
    match &connection.admission {
        Some(admission) => {
            admission.woken().await;
            admission
        }
        None => std::future::pending().await,
    }
}

/// Reads the record again if it is unknown, and begins a quarantine if the clock has jumped or after a flush. Returns whether that was
/// begun, and the server's report.
async fn carry_out(
    connection: &InstanceConnection,
    admission: &SharedAdmission,
    (is_unknown, has_jumped): (bool, bool),
    peers: &PeerConnections,
) -> Result<Option<(bool, ServerInfo)>, Cause> {
    let flush = admission.unsettled_flush();
    // P15: the data with the locks may be gone, or have come back as an old copy with the very record.
    let is_quarantined = has_jumped || flush.is_some();
    if is_quarantined {
        admission.begin_quarantine(flush);
    } else if !is_unknown {
        return Ok(None);
    }
    let info = server_info::read(&connection.conn).await?;
    let proposing_us = |us| peers.proposing_us(Some((connection.options.id, us)));
    admission.replace_record(&connection.handshake().run(&info.facts, flush.is_some(), proposing_us).await?);
    Ok(Some((is_quarantined, info)))
}

/// As long as rights are missing, asks for them again: they may have been granted meanwhile.
async fn keep_asking_rights(connection: &InstanceConnection) {
    loop {
        sleep(REFUSED_PAUSE).await;
        if connection.denied().is_some_and(|denied| denied.is_any()) {
            let _ = connection.ask_rights().await; // else in the next second
        }
    }
}

async fn keep_probing(connection: &InstanceConnection, pause: Duration) {
    loop {
        let round_trip = connection.probe().await;
        if round_trip.is_some() {
            connection.options.standing.lock().round_trip = round_trip;
        }
        sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::sync::mpsc;
    use tokio::time::timeout;

    use super::*;
    use crate::clock::{Clock, CorrectedClock, SystemClock};
    use crate::instance::redis::address::Address;
    use crate::instance::redis::options::ClientOptions;
    use crate::instance::{Claim, ReplyTo, Request, TakesReplies};
    use crate::log_limit::tests::logged;
    use crate::process::Process;
    use crate::protocol::{InstanceId, Quorum, Reply};

    /// Panics once when it has been broken.
    #[derive(Clone, Debug, Default)]
    struct Breakable(Arc<AtomicBool>);

    impl Clock for Breakable {
        fn now(&self) -> Instant {
            assert!(!self.0.swap(false, Ordering::Relaxed), "broken clock");
            SystemClock.now()
        }
    }

    #[derive(Default)]
    struct Replies(Mutex<Vec<Reply>>);

    impl TakesReplies for Replies {
        fn take(self: Arc<Self>, _: InstanceId, _: usize, reply: Reply) {
            self.0.lock().unwrap().push(reply);
        }
    }

    /// Gives every command the same answer.
    async fn answering(listener: TcpListener) {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut buffer = [0; 65536];
                while let Ok(size @ 1..) = stream.read(&mut buffer).await {
                    let others = buffer[..size].windows(3).filter(|bytes| bytes == b"\r\n*").count();
                    let commands = usize::from(buffer[0] == b'*') + others;
                    stream.write_all("*2\r\n+0\r\n+0\r\n".repeat(commands).as_bytes()).await.unwrap();
                }
            });
        }
    }

    async fn client(clock: &Breakable) -> (Arc<ConnectOptions>, Arc<PeerConnections>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = Address::parse(&format!("redis://{}", listener.local_addr().unwrap())).unwrap();
        tokio::spawn(answering(listener));
        let limit = Duration::from_secs(5);
        let client = Arc::new(ClientOptions {
            process: Process::this(),
            instance_timeout: limit,
            quorum: Quorum::majority(1).unwrap(),
            max_ttl: limit,
            quarantine: limit,
            drift_ppm: 0,
            admission: false,
            as_recorded: false,
            wants_locks: false,
            machine_clock: Arc::new(clock.clone()),
            own_clock: Arc::new(CorrectedClock::new(Arc::new(SystemClock))),
            invalidations: mpsc::channel(1).0,
            listener: None,
            gathering: Arc::default(),
        });
        let peers = Arc::new(PeerConnections::new(&client));
        (Arc::new(client.for_each(vec![address]).next().unwrap()), peers)
    }

    #[test]
    fn a_connection_is_logged_when_it_comes_and_when_it_goes() {
        let (mut log, cause) = (ConnectionLog::default(), closed());
        let mut at = |seconds: u64, is_up: bool| {
            let now = Instant::from_millis(1_000 * seconds);
            logged(|| if is_up { log.up("i") } else { log.down("i", &cause, now) })
        };
        let up = "INFO connected instance=\"i\"".to_owned();
        let down = format!("WARN disconnected instance=\"i\" cause={}", closed());
        let still_down = format!("WARN not connected instance=\"i\" cause={} times=1", closed());
        assert_eq!([at(0, true), at(1, true), at(2, false)], [vec![up.clone()], vec![], vec![down]]);
        assert_eq!([at(12, false), at(13, true)], [vec![still_down], vec![up]]);
    }

    #[test]
    fn the_pause_doubles_until_the_instance_has_behaved_for_a_while() {
        let mut pauses = Pauses::default();
        let mut next = |lasted, broken| pauses.next(lasted, broken);
        let within = |pause: Duration, full: Duration| full / 2 <= pause && pause <= full;
        assert!(within(next(Duration::ZERO, false), RECONNECT_LEAST));
        for (most, long) in [(4, BEHAVED), (20, 2 * BROKEN_MOST)] {
            for times in 0..most {
                let full = (BROKEN_LEAST * (1 << times)).min(BROKEN_MOST);
                assert!(within(next(Duration::from_secs(5), true), full), "{times}");
                assert!(within(next(Duration::from_secs(5), false), full), "it is not forgotten");
            }
            assert!(within(next(long, false), RECONNECT_LEAST), "it has behaved");
        }
    }

    #[tokio::test]
    async fn a_panic_ends_a_connection_like_any_other_cause_and_the_next_is_opened() {
        let (state, mut seen) = watch::channel(Err(closed()));
        let clock = Breakable::default();
        let (options, peers) = client(&clock).await;
        let task = tokio::spawn(supervise(options, peers, state));
        let mut next = async |fits: fn(&ConnectionState) -> bool| {
            timeout(Duration::from_secs(5), seen.wait_for(fits)).await.unwrap().unwrap().clone()
        };
        let is_up = ConnectionState::is_ok;
        let Ok(former) = next(is_up).await else { unreachable!() };
        clock.0.store(true, Ordering::Relaxed);
        drop(next(ConnectionState::is_err).await); // whichever task it was that read it
        let replies = Arc::<Replies>::default();
        let request = Request::Acquire(Arc::new(Claim::sample(1, "a")));
        let reply_to = ReplyTo::new(Arc::clone(&replies) as Arc<_>, InstanceId::new(0));
        former.call(std::iter::once((request, reply_to)), former.options.now());
        assert_eq!(*replies.0.lock().unwrap(), [Reply::NotSent(closed())], "it was closed");
        drop(next(is_up).await);
        task.abort();
        drop(next(ConnectionState::is_err).await);
    }
}
