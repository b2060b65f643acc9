//! What the tests share.
#![expect(clippy::disallowed_methods, reason = "tests on real servers measure real time")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use redquorum::{
    AcquireError, Admission, AdmissionStatus, Builder, Guard, InstanceReport, InstanceStatus, Redlock, Renewal,
};
use redquorum_testkit::{Fleet, Program, Server};
use tokio::time::{sleep, timeout};

/// The instance timeout of most tests: a machine that stands still for half a second makes no instance late.
pub(crate) const TIMEOUT: Duration = secs(1);

/// The default one, for tests of what an instance that is late brings about.
pub(crate) const SHORT_TIMEOUT: Duration = ms(200);

/// How long servers sit out where a test turns admission on.
pub(crate) const MAX_TTL: Duration = ms(1500);

/// What may take time without end if it goes wrong gets this much. Far below the ttl of 10 s.
pub(crate) const PATIENCE: Duration = secs(5);

/// The longest that one test may take on one kind of server.
const LIMIT: Duration = secs(90);

/// Held by tests that measure time or memory, so that the others do not disturb them.
static MACHINE: RwLock<()> = RwLock::new(());

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Lets no test that measures run beside the caller, for tests that make a runtime of their own.
pub(crate) fn beside_others() -> RwLockReadGuard<'static, ()> {
    MACHINE.read().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `test` on each kind of server, perhaps beside other tests.
pub(crate) fn on_each_kind(test: impl AsyncFn(Program)) {
    let _shared = beside_others();
    run(test);
}

/// Runs `test` on each kind of server and nothing of this binary beside it.
pub(crate) fn alone_on_each_kind(test: impl AsyncFn(Program)) {
    let _alone = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
    run(test);
}

fn run(test: impl AsyncFn(Program)) {
    for program in Program::all_required().unwrap() {
        println!("on {program}");
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let ended = runtime.block_on(async { timeout(LIMIT, test(program)).await });
        assert!(ended.is_ok(), "it did not end within {LIMIT:?}");
        runtime.shutdown_timeout(secs(5));
    }
}

pub(crate) fn fleet_of(program: &Program, count: usize) -> Fleet {
    Fleet::start(program, count).unwrap()
}

/// The default settings, but without admission: fresh servers sit out `max_ttl` after their start,
/// which is not what most tests are about, and with the default ttl of 10 s no key expires while a
/// test watches. The instance timeout is [`TIMEOUT`].
pub(crate) fn builder_of(fleet: &Fleet) -> Builder {
    let builder = Redlock::builder().instances(fleet.addresses()).label("ours");
    builder.instance_timeout(TIMEOUT).admission(Admission::Off).renew(Renewal::Off)
}

/// With admission. Servers sit out a second or two after their start.
pub(crate) fn with_admission(fleet: &Fleet) -> Builder {
    builder_of(fleet).admission(Admission::On).max_ttl(MAX_TTL).ttl(MAX_TTL)
}

/// A client without admission, connected to every instance.
pub(crate) async fn client_of(fleet: &Fleet) -> Redlock {
    ready(builder_of(fleet)).await
}

/// Connects and waits until every instance votes.
pub(crate) async fn ready(builder: Builder) -> Redlock {
    let redlock = builder.connect().await.unwrap();
    all_vote(&redlock).await;
    redlock
}

pub(crate) async fn all_vote(redlock: &Redlock) {
    redlock.want_locks();
    let vote = eventually(PATIENCE, || redlock.instances().iter().all(votes)).await;
    assert!(vote, "{:?}", redlock.instances());
}

pub(crate) fn votes(status: &InstanceStatus) -> bool {
    status.connected && matches!(status.admission, AdmissionStatus::Admitted | AdmissionStatus::Off)
}

/// Asks every few milliseconds until it is true; false if it was not within `limit`.
pub(crate) async fn eventually(limit: Duration, mut probe: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    loop {
        let late = begun.elapsed() >= limit;
        if probe() {
            return true;
        }
        if late {
            return false;
        }
        sleep(ms(5)).await;
    }
}

/// Carries a future out and gives how long it took.
pub(crate) async fn timed<T>(future: impl Future<Output = T>) -> (T, Duration) {
    let begun = Instant::now();
    let output = future.await;
    (output, begun.elapsed())
}

pub(crate) async fn held(redlock: &Redlock, name: &str) -> Guard {
    redlock.lock(name).try_acquire().await.unwrap()
}

/// Releases. If a few instances had not granted, a single answer that is missing leaves the release
/// unconfirmed; that it finds the lock gone is a failure in any case.
pub(crate) async fn release_on_a_bad_day(guard: Guard) {
    assert!(guard.release().await.map_or(true, |released| released.was_still_held));
}

/// Tries all the time; gives how often, or fails once it has the lock.
pub(crate) async fn intrude(redlock: Redlock, stop: Arc<AtomicBool>) -> usize {
    let mut tries = 0;
    while !stop.load(Ordering::Relaxed) {
        assert!(redlock.lock("a").try_acquire().await.is_err(), "a second holder");
        tries += 1;
        sleep(ms(20)).await;
    }
    tries
}

/// Acquires and releases.
pub(crate) async fn pair(redlock: &Redlock, name: &str) {
    let guard = redlock.lock(name).wait_at_most(PATIENCE).acquire().await.unwrap();
    assert!(guard.release().await.unwrap().was_still_held);
}

/// As [`pair`] with a timeout that a machine which stands still may exceed.
pub(crate) async fn pair_on_a_bad_day(redlock: &Redlock, name: &str) {
    release_on_a_bad_day(redlock.lock(name).wait_at_most(PATIENCE).acquire().await.unwrap()).await;
}

/// Whether every instance has the key of the lock `a`, and no other.
pub(crate) fn all_have(fleet: &Fleet) -> bool {
    fleet.iter().all(|server| server.keys().unwrap() == ["a"])
}

/// Fails unless every instance, all of which must answer, is rid of its locks within `limit`.
pub(crate) async fn free_within(limit: Duration, servers: &[Server]) {
    let keys = || servers.iter().flat_map(|server| server.keys().unwrap()).collect::<Vec<_>>();
    assert!(eventually(limit, || keys().is_empty()).await, "left behind after {limit:?}: {:?}", keys());
}

/// What the instances said to an acquire for which there was no quorum.
pub(crate) fn reports(error: AcquireError) -> Vec<InstanceReport> {
    match error {
        AcquireError::NoQuorum { reports, .. } => reports,
        other => unreachable!("no quorum was expected: {other}"),
    }
}
