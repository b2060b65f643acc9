//! What a child by `fork()` may do with the client of its parent: nothing, and the parent does not notice.

use std::fmt::Display;
use std::sync::mpsc;
use std::time::Duration;

use futures_util::FutureExt;
use redquorum::blocking;
use redquorum::{Admission, AdmissionStatus, Builder, CurrentHolder, Guard, Loss, Redlock};
use redquorum_testkit::{Fleet, Program, in_a_child, wait_until};
use tokio::runtime::Runtime;

use crate::SECOND;

/// More than any call takes that waits for nothing.
const AT_ONCE: Duration = Duration::from_secs(20);

fn builder(fleet: &Fleet) -> Builder {
    Redlock::builder().instances(fleet.addresses()).instance_timeout(SECOND).max_ttl(2 * SECOND).ttl(2 * SECOND)
}

/// Of a child, which must not wait.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().unwrap()
}

fn is_refused<T, E: Display>(done: Result<T, E>) {
    let error = done.err().unwrap().to_string();
    assert!(error.contains("was built in another process, before a fork"), "{error}");
}

/// Does one thing in a child.
fn child(what: &str, work: impl FnOnce()) {
    let done = in_a_child(AT_ONCE, work);
    assert!(done.is_ok(), "{what}: {done:?}");
}

/// How often servers were asked for what only a question reads.
fn questions(fleet: &Fleet) -> u64 {
    fleet.iter().map(|server| server.calls("getrange").unwrap()).sum()
}

#[test]
fn every_call_of_a_child_fails_at_once_and_its_parent_keeps_what_it_has() {
    let fleet = Fleet::start(&Program::required().unwrap(), 3).unwrap();
    let redlock = blocking::Redlock::connect(builder(&fleet).admission(Admission::Off)).unwrap();
    let mut guard = Some(redlock.lock("mine").acquire().unwrap());
    let mut all = Some(redlock.lock_all(["one", "two"]).acquire().unwrap());
    let mut permit = Some(redlock.semaphore("permits", 2).acquire().unwrap());
    let mut leadership = Some(redlock.election("lead").campaign("me").unwrap());
    let mut observer = redlock.election("lead").observe().unwrap();
    let detached = redlock.lock("moves").acquire().unwrap().detach();
    assert!(observer.next_within(10 * SECOND).is_some());
    let asked = questions(&fleet);

    let (lock, election) = (redlock.lock("free"), redlock.election("lead"));
    child("acquire", || is_refused(lock.acquire()));
    child("try_acquire", || is_refused(lock.try_acquire()));
    child("run", || is_refused(lock.run(|_| ())));
    child("try_run", || is_refused(lock.try_run(|_| ())));
    child("read", || is_refused(redlock.rw_lock("free").read()));
    child("lock_all", || is_refused(redlock.lock_all(["a", "b"]).acquire()));
    child("a permit", || is_refused(redlock.semaphore("permits", 2).acquire()));
    child("inspect permits", || is_refused(redlock.semaphore("permits", 2).inspect()));
    child("campaign", || is_refused(election.campaign("me")));
    child("leader", || is_refused(election.leader()));
    child("observe", || is_refused(election.observe()));
    child("next", || assert!(observer.next_within(SECOND).is_none() && observer.next().is_none()));
    child("attach", || is_refused(redlock.attach(&detached)));
    child("wait_connected", || is_refused(redlock.wait_connected(SECOND)));
    child("shutdown", || is_refused(redlock.shutdown(SECOND)));
    child("shutdown_gracefully", || is_refused(redlock.shutdown_gracefully(SECOND, SECOND)));
    child("instances", || {
        for status in redlock.instances() {
            assert!(!status.connected && status.admission == AdmissionStatus::Unknown);
            is_refused::<(), _>(Err(status.last_error.unwrap()));
        }
    });
    child("is_valid", || {
        let guard = guard.as_ref().unwrap();
        assert!(!guard.is_valid() && !guard.lease().is_valid() && guard.remaining().is_zero());
        assert!(!all.as_ref().unwrap().is_valid() && !permit.as_ref().unwrap().is_valid());
        assert!(!leadership.as_ref().unwrap().is_valid());
    });
    child("lost_within", || {
        let losses = [guard.as_ref().unwrap().lost_within(SECOND), all.as_ref().unwrap().lost_within(SECOND)];
        assert!(losses.iter().all(|loss| matches!(loss, Some(Loss::Forked))), "{losses:?}");
    });
    child("on_lost", || {
        let (told, losses) = mpsc::channel();
        guard.as_ref().unwrap().on_lost(move |loss| told.send(loss).unwrap());
        assert!(matches!(losses.recv(), Ok(Loss::Forked)));
    });
    child("extend", || is_refused(guard.as_ref().unwrap().extend()));
    child("extend all", || is_refused(all.as_ref().unwrap().extend()));
    child("release", || is_refused(guard.take().unwrap().release()));
    child("release all", || is_refused(all.take().unwrap().release()));
    child("release a permit", || is_refused(permit.take().unwrap().release()));
    child("resign", || is_refused(leadership.take().unwrap().resign()));
    child("keep_for", || is_refused(guard.take().unwrap().keep_for(10 * SECOND)));
    child("keep all", || is_refused(all.take().unwrap().keep_for(10 * SECOND)));
    child("drop", || drop((guard.take(), all.take(), permit.take(), leadership.take())));

    assert_eq!(questions(&fleet), asked);
    let (guard, all) = (guard.unwrap(), all.unwrap());
    assert!(guard.is_valid() && all.is_valid() && permit.unwrap().is_valid() && leadership.unwrap().is_valid());
    assert!(guard.extend().is_ok() && wait_until(10 * SECOND, || guard.redundancy().held_on == 3));
    assert!(all.release().unwrap().was_still_held && guard.release().unwrap().was_still_held);
    assert!(redlock.attach(&detached).unwrap().release().unwrap().was_still_held);
    let mut last = Some((redlock, lock, election, observer));
    child("the last handle", || drop(last.take()));
    last.unwrap().0.shutdown(10 * SECOND).unwrap();
}

#[test]
fn a_child_that_only_looks_gives_its_parent_no_lock_that_another_client_has() {
    let fleet = Fleet::start(&Program::required().unwrap(), 3).unwrap();
    let runtime = Runtime::new().unwrap();
    let (redlock, other) = runtime.block_on(async { (connected(&fleet).await, connected(&fleet).await) });
    let mine = runtime.block_on(redlock.lock("mine").acquire()).unwrap();
    let held = runtime.block_on(other.lock("held").acquire()).unwrap();
    let holder = runtime.block_on(redlock.inspect("held")).unwrap().holders.first().map(|found| found.by.clone());
    let (holder, asked) = (holder.unwrap(), questions(&fleet));
    for round in 0..3 {
        fleet.iter().for_each(|server| server.hang().unwrap());
        child("looks", || look(&redlock, &mine, &holder));
        fleet.iter().for_each(|server| server.resume().unwrap());
        for name in ["free", "mine", "held", "free"] {
            let tried = runtime.block_on(redlock.lock(name).try_acquire());
            assert_eq!(tried.is_ok(), name == "free", "{name} in round {round}: {tried:?}");
        }
        assert!(mine.is_valid() && held.is_valid() && runtime.block_on(mine.extend()).is_ok());
    }
    assert_eq!(questions(&fleet), asked);
}

async fn connected(fleet: &Fleet) -> Redlock {
    let redlock = builder(fleet).connect().await.unwrap();
    drop(redlock.lock("first").wait_at_most(20 * SECOND).acquire().await.unwrap());
    redlock
}

fn look(redlock: &Redlock, mine: &Guard, holder: &CurrentHolder) {
    is_refused(at_once(redlock.inspect("held")));
    is_refused(at_once(redlock.force_release("held", holder)));
    is_refused(at_once(redlock.semaphore("permits", 2).inspect()));
    is_refused(at_once(redlock.election("lead").leader()));
    is_refused(at_once(mine.extend()));
    is_refused(at_once(redlock.lock("held").try_acquire()));
    is_refused(at_once(redlock.shutdown(SECOND)));
    assert!(matches!(at_once(mine.lost()), Loss::Forked) && !mine.is_valid());
    at_once(redlock.examine()).into_iter().for_each(|found| is_refused(found.answer));
    at_once(redlock.admission_records().show())
        .into_iter()
        .for_each(|found| is_refused::<(), _>(found.unknown.map_or(Ok(()), Err)));
    is_refused(at_once(redlock.admission_records().set()));
    assert_eq!(at_once(redlock.list("*", 10)).unknown.len(), 3);
}

/// Its registry of sockets is the parent's, too.
#[test]
fn a_child_that_drops_the_runtime_of_its_parent_closes_no_connection_of_it() {
    let fleet = Fleet::start(&Program::required().unwrap(), 3).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let redlock = runtime.block_on(connected(&fleet));
    let mut guard = Some(runtime.block_on(redlock.lock("mine").acquire()).unwrap());
    let mut own = Some((redlock, runtime));
    child("drops all", || drop((guard.take(), own.take())));
    let ((redlock, runtime), guard) = (own.unwrap(), guard.unwrap());
    runtime.block_on(async {
        assert!(guard.extend().await.is_ok() && guard.is_valid());
        assert!(redlock.lock("free").try_acquire().await.is_ok());
    });
}
