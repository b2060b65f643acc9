//! One wait for a lock that others have or wait for as well.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::sleep;

use super::known::{LateWakes, Parts, Woken};
use crate::instance::redis::RedisInstance;
use crate::instance::{PublishFuture, Wake};
use crate::protocol::{
    Access, ClientId, InstanceId, InstanceSet, Instant, Message, Quorum, Reply, RetryDelay, Round, RoundFailure,
    Waiter, reconnect_delay,
};
use crate::random;
use crate::resource::display_name;
use crate::runtime::wait_events::{AskReason, TARGET};

/// The pause of a waiter that is announced to the holder: doubled with each, and cut by up to half at
/// random (P27).
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// An attempt comes later than the expiry for which it waits by so much at most, so that waiters for the same do not
/// try together.
const EXPIRY_SPREAD: Duration = Duration::from_millis(20);

/// The part of the instance timeout for which a waiter that was woken over one instance waits for the others.
const SETTLE_DIVISOR: u32 = 40;

/// A waiter is announced to a client over so many instances: one of them may be slow to pass that on.
const ANNOUNCED_OVER: usize = 2;

/// A wait for one key. Dropped before it has won, it passes on the wake-ups that came for it.
#[derive(Debug)]
pub(crate) struct Wait {
    parts: Arc<Parts>,
    quorum: Quorum,
    key: Vec<u8>,
    access: Access,
    woken: Arc<Woken>,
    /// The clients that know of it, as far as they have not woken it since, and over which instances.
    announced: Vec<(InstanceId, ClientId)>,
    /// When it has announced itself last, and over which instances that came.
    asked: Option<(Instant, InstanceSet)>,
    has_won: bool,
}

impl Wait {
    /// Begins a wait at `wall_us` of the clock by which tokens are proposed.
    pub(super) fn begin(parts: &Arc<Parts>, (key, access): (&[u8], Access), quorum: Quorum, wall_us: u64) -> Self {
        let (woken, key) = (Arc::new(Woken::new(wall_us)), key.to_vec());
        parts.known().waits.entry((key.clone(), access)).or_default().push(Arc::clone(&woken));
        let (parts, announced) = (Arc::clone(parts), Vec::new());
        Self { parts, quorum, key, access, woken, announced, asked: None, has_won: false }
    }

    /// Whether it asks, and is announced, for all of this client that wait for the same.
    fn is_first(&self) -> bool {
        if self.access == Access::Write {
            return true; // one that has just ended may still be there
        }
        let known = self.parts.known();
        let waits = known.waits.get(&(self.key.clone(), self.access));
        waits.and_then(|waits| waits.first()).is_none_or(|first| Arc::ptr_eq(first, &self.woken))
    }

    /// Waits until another attempt is worth sending after `lost`: until it is woken, or for a while (P27). Returns why it is.
    pub(crate) async fn pause(&mut self, lost: &Round, failures: u32, retry: RetryDelay) -> AskReason {
        if !self.is_first() {
            return self.until_first_or_woken().await;
        }
        let parts = Arc::clone(&self.parts);
        let began = parts.clock.now();
        let announced = self.announce(lost);
        // P34: the last reader wakes the writer that has left its mark.
        let is_marked = self.access == Access::Write && lost.shows_readers();
        // Where several want it, and none has it, no client wakes them.
        let hears = parts.hears(self.quorum) && !matches!(RoundFailure::of(lost), RoundFailure::SplitVote(_));
        let expiry = lost.refusals().filter_map(|refusal| refusal.expires_in).min();
        let is_refused = lost.refusals().next().is_some();
        let asks_again = async {
            let is_heard = join_all(announced).await.contains(&true) || is_marked;
            if is_refused {
                tracing::debug!(target: TARGET, key = display_name(&self.key), heard = is_heard, "announced");
            }
            let pause = if hears && is_heard {
                reconnect_delay(failures, FIRST_PAUSE, LONGEST_PAUSE, random::spread())
            } else {
                retry.after(failures, random::spread())
            };
            let spread = RetryDelay::new(Duration::ZERO, EXPIRY_SPREAD).next(random::spread());
            let (pause, why) = match expiry.filter(|expiry| *expiry <= pause) {
                Some(expiry) => (expiry.saturating_add(spread), AskReason::Expired),
                None => (pause, AskReason::Pause),
            };
            sleep(pause.saturating_sub(parts.clock.now().saturating_since(began))).await;
            why
        };
        let why = tokio::select! {
            biased;
            () = self.enough_woken() => AskReason::Woken,
            why = asks_again => why,
        };
        if self.take_woken() { AskReason::Woken } else { why }
    }

    /// A reader behind the first of its client asks nothing: it is woken with it, or behind it, when that reads.
    async fn until_first_or_woken(&mut self) -> AskReason {
        while self.woken.count() == 0 && !self.is_first() {
            self.woken.came.notified().await;
        }
        if self.woken.count() > 0 {
            self.enough_woken().await;
        }
        if self.take_woken() { AskReason::Woken } else { AskReason::Line }
    }

    /// It has the lock, and wakes the known waiters. The other readers of its client are as if they were woken over all instances.
    pub(crate) fn won(mut self) {
        self.has_won = true;
        let all = InstanceSet::first(self.parts.instances.len());
        let came = self.asked.map(|(_, over)| over).unwrap_or_default().union(self.woken.take());
        let over = all.without(came);
        let until = self.parts.clock.now().saturating_add(self.parts.instance_timeout);
        let wanted = (self.key.clone(), self.access);
        let mut known = self.parts.known();
        known.waiters.hold(&self.key);
        // It leaves with the same step: a reader that comes after this is not woken, and is the first itself.
        let mut behind = known.waits.remove(&wanted).unwrap_or_default();
        behind.retain(|other| !Arc::ptr_eq(other, &self.woken));
        if !behind.is_empty() {
            known.waits.insert(wanted.clone(), behind.clone());
        }
        known.won.insert(wanted, LateWakes { over, until });
        drop(known);
        behind.iter().filter(|_| self.access == Access::Read).for_each(|other| other.note(all));
        self.parts.grew.notify_one();
    }

    /// Returns once it was woken over a quorum of instances, or a little after the first of them.
    async fn enough_woken(&self) {
        let settle = self.parts.instance_timeout / SETTLE_DIVISOR;
        loop {
            let count = self.woken.count();
            if count >= self.quorum.votes() {
                return;
            }
            if count == 0 {
                self.woken.came.notified().await;
                continue;
            }
            tokio::select! {
                biased;
                () = sleep(settle) => return,
                () = self.woken.came.notified() => {}
            }
        }
    }

    /// Whether it was woken, which the next attempt answers.
    fn take_woken(&mut self) -> bool {
        let over = self.woken.take();
        if over.is_empty() {
            return false;
        }
        tracing::debug!(target: TARGET, key = display_name(&self.key), over = ?RedisInstance::addresses(&self.parts.instances, over), "woken");
        self.announced.clear();
        self.asked = Some((self.parts.clock.now(), over));
        true
    }

    /// Announces this client to the client that has the lock (P25). What is left of its own attempts is released or expires, and wakes
    /// no client.
    fn announce(&mut self, round: &Round) -> Vec<PublishFuture> {
        let message = Message::Waiting { waiter: self.waiter(), forwarded: false, key: self.key.clone() };
        let Some(message) = message.to_wire() else { return Vec::new() };
        let rivals = round.answers().filter_map(|(id, answer)| {
            let Reply::Refused(refusal) = &answer.reply else { return None };
            Some((id, ClientId::of_value(refusal.value.as_deref()?).filter(|to| *to != self.parts.client)?))
        });
        let rivals: Vec<_> = rivals.take(ANNOUNCED_OVER).collect();
        let published = rivals.iter().filter_map(|(id, to)| {
            let wake = Wake { to: *to, message: message.clone() };
            Some(self.parts.instances.get(id.index())?.publish(wake))
        });
        let published = published.collect();
        if !rivals.is_empty() {
            self.announced = rivals;
        }
        published
    }

    /// What it is to other clients.
    fn waiter(&self) -> Waiter {
        Waiter { ticket: self.woken.ticket(), client: self.parts.client, access: self.access }
    }

    /// Tells those who know of it that it waits no more (P25).
    fn withdraw(&self) {
        let message = Message::Leaves { waiter: self.waiter(), key: self.key.clone() };
        let Some(message) = message.to_wire().filter(|_| !self.announced.is_empty()) else { return };
        for (id, to) in &self.announced {
            self.parts.send(*id, Wake { to: *to, message: message.clone() });
        }
    }

    /// The wake-ups that came for it, and may have no waiter now.
    fn wakes_left(&mut self) -> InstanceSet {
        let now = self.parts.clock.now();
        let lately = |at: &Instant| now < at.saturating_add(self.parts.instance_timeout);
        let asked = self.asked.filter(|(at, _)| lately(at)).map(|(_, over)| over).unwrap_or_default();
        self.woken.take().union(asked)
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let left = self.wakes_left();
        let mut known = self.parts.known();
        let wanted = (self.key.clone(), self.access);
        let waits = known.waits.entry(wanted.clone()).or_default();
        waits.retain(|woken| !Arc::ptr_eq(woken, &self.woken));
        match waits.first().cloned() {
            None => drop(known.waits.remove(&wanted)),
            // Another one has begun for the present waiters.
            Some(_) if self.has_won => return,
            Some(other) => {
                drop(known);
                return other.note(left);
            }
        }
        let passes_on = !self.has_won && !left.is_empty();
        let waiters = passes_on.then(|| self.parts.take_waiters(&mut known, &self.key));
        drop(known);
        self.withdraw();
        if let Some(waiters) = waiters {
            self.parts.pass_on(left, &self.key, &waiters);
        }
    }
}
