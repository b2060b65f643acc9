//! Readers and a writer, permits, and leaders, when nothing is in their way.

use std::time::Duration;

use futures_util::future::{Either, join_all};
use redquorum::{AcquireError, Redlock};
use tokio::time::{sleep, timeout};

use super::{LATEST, LONG};
use crate::time::now;
use crate::world::World;

/// What those who wait in order take beside the network, once what they wait for is let go.
const AT_ONCE: Duration = Duration::from_millis(60);

/// Longer than it takes to have asked for it, and by far less than pauses become meanwhile.
const WHILE: Duration = Duration::from_millis(1_500);

impl World {
    /// One scene after the other, each with names of its own.
    pub(crate) async fn check_calm_together(&self, clients: &[(usize, Redlock)]) {
        sleep(LATEST + self.scenario.max_ttl * 2 + self.set_back()).await;
        let [(_, one), (_, other), ..] = clients else { return };
        let scenes = async {
            self.notice_steps_of_clocks(&[one, other]).await;
            self.check_readers(one, other).await;
            self.check_marks_end(one, other).await;
            self.check_permits(one, other).await;
            self.check_leaders(one, other).await;
            self.check_line_of_writers(one).await;
        };
        if timeout(LONG + self.scenario.ttl * 20, scenes).await.is_err() {
            self.violate("without faults no wait is long", "a scene does not end".to_owned());
        }
    }

    fn must_have<T, E: std::fmt::Display>(&self, what: &'static str, got: Result<T, E>) -> Option<T> {
        got.inspect_err(|error| self.violate("what is free is given", format!("{what}: {error}"))).ok()
    }

    fn must_not_have<T, E>(&self, what: &'static str, got: &Result<T, E>) {
        if got.is_ok() {
            self.violate("what others have is refused", what.to_owned());
        }
    }

    /// A waiter in order is woken by the last that is in the way.
    fn check_woken(&self, who: &'static str, (left, at): (Duration, Duration)) {
        let took = at.saturating_sub(left);
        if self.scenario.in_order == Some(1) && took > AT_ONCE {
            self.violate("who waits is woken", format!("{who}: after {took:?}"));
        }
    }

    /// A writer waits for those who read, and those who come then wait for it; then they read together.
    async fn check_readers(&self, one: &Redlock, other: &Redlock) -> Option<()> {
        let (here, there) = (one.rw_lock("read"), other.rw_lock("read"));
        let first = self.must_have("a reader", here.try_read().await)?;
        let second = self.must_have("another reader", there.try_read().await)?;
        self.must_not_have("a lock that is read", &other.lock("read").try_acquire().await);
        self.must_not_have("a lock that is read, to its own client", &here.try_write().await);
        let written = async {
            let guard = there.write().await;
            (now(), guard)
        };
        let leave = async {
            sleep(WHILE / 2).await;
            drop(second);
            sleep(WHILE / 2).await;
            self.must_not_have("a lock that a writer waits for", &here.try_read().await);
            drop(first);
            now()
        };
        let ((at, guard), left) = tokio::join!(written, leave);
        let guard = self.must_have("a writer", guard)?;
        self.check_woken("a writer behind readers", (left, at));
        self.must_not_have("a lock that is written", &here.try_read().await);
        let read = || async {
            let guard = here.read().await;
            (now(), guard)
        };
        let release = async {
            sleep(WHILE).await;
            drop(guard);
            now()
        };
        let ((first_at, first), (second_at, second), left) = tokio::join!(read(), read(), release);
        drop((self.must_have("a reader", first)?, self.must_have("another reader", second)?));
        for at in [first_at, second_at] {
            self.check_woken("a reader behind a writer", (left, at));
        }
        sleep(AT_ONCE).await;
        drop(self.must_have("a writer behind those who have left", other.rw_lock("read").try_write().await)?);
        Some(())
    }

    /// A writer that gives up leaves no mark.
    async fn check_marks_end(&self, one: &Redlock, other: &Redlock) -> Option<()> {
        let reader = self.must_have("a reader", one.rw_lock("marked").try_read().await)?;
        let waited = other.rw_lock("marked").wait_at_most(Duration::from_millis(200)).write().await;
        self.must_not_have("a lock that is read", &waited);
        sleep(AT_ONCE).await;
        let left = self.servers.iter().flat_map(|server| server.locks()).find(|(_, who)| who.starts_with(b"writer "));
        if let Some((key, mark)) = left {
            let [key, mark] = [key, mark].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            self.violate("no mark outlives its writer", format!("{key}: {mark}"));
        }
        drop((reader, self.must_have("a reader beside one", other.rw_lock("marked").try_read().await)?));
        Some(())
    }

    /// There are as many permits as there are, and one that is let go is had by who waits.
    async fn check_permits(&self, one: &Redlock, other: &Redlock) -> Option<()> {
        let (here, there) = (one.semaphore("permits", 2), other.semaphore("permits", 2));
        let first = self.must_have("a permit", here.try_acquire().await)?;
        let second = self.must_have("another permit", there.try_acquire().await)?;
        if first.index() == second.index() {
            self.violate("never more permits than there are", format!("{first:?} and {second:?}"));
        }
        self.must_not_have("a third permit", &here.try_acquire().await);
        let waited = async {
            let permit = there.acquire().await;
            (now(), permit)
        };
        let release = async {
            sleep(WHILE).await;
            drop(first);
            now()
        };
        let ((at, third), left) = tokio::join!(waited, release);
        drop((second, self.must_have("a permit that is let go", third)?));
        self.check_woken("a waiter for a permit", (left, at));
        Some(())
    }

    /// An observer sees now who was given the lead then.
    pub(in crate::invariants) fn check_observed_since(&self, since: Duration) {
        if now() > since + self.scenario.ttl / 3 + self.scenario.instance_timeout {
            self.violate("observers see a leader in time", format!("after {:?}", now() - since));
        }
    }

    /// The leader is who was given the lead, and a user that observes sees the next.
    async fn check_leaders(&self, one: &Redlock, other: &Redlock) -> Option<()> {
        let (here, there) = (one.election("leader"), other.election("leader"));
        let mut leaders = there.observe().ok()?;
        let first = self.must_have("the lead", here.campaign("one: 100%").await)?;
        let seen = leaders.next().await;
        let told = self.must_have("the leader", there.leader().await)?;
        let campaigned = async { there.campaign("other").await };
        let resign = async {
            sleep(WHILE / 2).await;
            let token = first.fencing_token();
            drop(first);
            token
        };
        let (second, token) = tokio::join!(campaigned, resign);
        let (second, since) = (self.must_have("the lead that is given up", second)?, now());
        if seen.token != token || seen.info != "one: 100%" || told.as_ref() != Some(&seen) {
            self.violate("a leader is shown under its token", format!("{token}: {seen:?}, {told:?}"));
        }
        let seen = leaders.next().await;
        if (seen.info.as_str(), seen.token) != ("other", second.fencing_token()) || seen.token <= token {
            self.violate("a leader is shown under its token", format!("{second:?}: {seen:?}"));
        }
        self.check_observed_since(since);
        // The next is of the same client, and another leader all the same.
        let resign = async {
            sleep(WHILE / 2).await;
            drop(second);
        };
        let (third, ()) = tokio::join!(there.campaign("third"), resign);
        let third = self.must_have("the lead that its own client gives up", third)?;
        let told = self.must_have("the leader", here.leader().await)?;
        if told.as_ref().map(|told| (told.info.as_str(), told.token)) != Some(("third", third.fencing_token())) {
            self.violate("a leader is shown under its token", format!("{third:?}: {told:?}"));
        }
        Some(())
    }

    /// Writers of one client get in in their order, also where readers stand between them (P24).
    async fn check_line_of_writers(&self, one: &Redlock) -> Option<()> {
        let lock = one.rw_lock("line");
        let first = self.must_have("a reader", lock.try_read().await)?;
        let write = async || Ok::<_, AcquireError>(Some(lock.write().await?.fencing_token()));
        let read = async || lock.read().await.map(|_| None);
        let line = (0..12).map(|place| if place % 2 == 0 { Either::Left(write()) } else { Either::Right(read()) });
        let leave = async {
            sleep(WHILE / 2).await;
            drop(first);
        };
        let (line, ()) = tokio::join!(join_all(line), leave);
        let tokens = self.must_have("a place in a line", line.into_iter().collect::<Result<Vec<_>, _>>())?;
        if !tokens.iter().flatten().is_sorted_by(|one, next| one < next) {
            self.violate("a line is served in its order", format!("{tokens:?}"));
        }
        Some(())
    }
}
