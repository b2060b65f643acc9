//! One wait for a lock that others have or wait for as well.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::sleep;

use super::parts::{Parts, Won, announced_key};
use super::woken::Woken;
use crate::instance::{Relay, RelayFuture, Successors};
use crate::protocol::{
    ClientId, InstanceId, InstanceSet, Instant, Message, Quorum, Reply, RetryDelay, Round, RoundFailure, Waiter,
    reconnect_delay,
};
use crate::random;
use crate::resource::Resources;
use crate::runtime::held_lease::HeldLease;
use crate::runtime::wait_events::{self, AskReason};

/// Over so many instances a waiter is announced: over more than one, for one may be slow.
const ANNOUNCED_OVER: usize = 2;

/// The pause of a waiter that is known to whoever stands in its way: doubled with each, and cut by up to half at
/// random (P27).
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// By so much at most an ask is later than the expiry for which it waits, so that those who wait for the same do not
/// ask together.
const EXPIRY_SPREAD: Duration = Duration::from_millis(20);

/// The part of the grace for which a waiter that was woken over one instance waits for the others.
const SETTLE_DIVISOR: u32 = 40;

/// A wait for one resource. Dropped before it has won, it passes on what was kept for it.
#[derive(Debug)]
pub(crate) struct Wait {
    parts: Arc<Parts>,
    quorum: Quorum,
    key: Vec<u8>,
    woken: Arc<Woken>,
    /// When it was woken last.
    woken_at: Option<Instant>,
    /// The lease that it has won.
    won: Option<Arc<HeldLease>>,
}

impl Wait {
    /// Begins a wait at `wall_us` of the clock by which tokens are proposed. `None` for several resources, or a key
    /// that is too long for a message: those waits only ask.
    pub(super) fn begin(parts: &Arc<Parts>, resources: &Resources, quorum: Quorum, wall_us: u64) -> Option<Self> {
        let key = announced_key(resources)?;
        let woken = Arc::new(Woken::new(wall_us));
        parts.known().waits.entry(key.to_vec()).or_default().push(Arc::clone(&woken));
        let (parts, key) = (Arc::clone(parts), key.to_vec());
        Some(Self { parts, quorum, key, woken, woken_at: None, won: None })
    }

    /// Waits until it is worth asking again: until the lock is kept for this client, or for a while (P27). `lost` is
    /// the round that was lost, if there was one. Returns why it is.
    pub(crate) async fn pause(&mut self, lost: Option<&Round>, failures: u32, retry: RetryDelay) -> AskReason {
        let began = self.parts.clock.now();
        let announced = lost.map(|round| self.announce(round)).unwrap_or_default();
        let (parts, recently_woken) = (Arc::clone(&self.parts), self.was_woken_recently(began));
        let hears = self.parts.hears(self.quorum) && !recently_woken && !lost.is_some_and(is_split);
        let expiry = lost.and_then(earliest_expiry);
        let key = &self.key;
        let asks_again = async {
            let is_heard = join_all(announced).await.contains(&true);
            wait_events::announced(key, is_heard);
            let pause = if hears && is_heard {
                reconnect_delay(failures, FIRST_PAUSE, LONGEST_PAUSE, random::spread())
            } else {
                retry.after(failures, random::spread())
            };
            let spread = RetryDelay::new(Duration::ZERO, EXPIRY_SPREAD).next(random::spread());
            let until_expiry = expiry.map(|expiry| expiry.saturating_add(spread));
            let (pause, why) = match until_expiry.filter(|until| *until <= pause) {
                Some(until) => (until, AskReason::Expired),
                None => (pause, AskReason::Pause),
            };
            sleep(pause.saturating_sub(parts.clock.now().saturating_since(began))).await;
            why
        };
        let settle = self.parts.grace / SETTLE_DIVISOR;
        let why = tokio::select! {
            biased;
            () = self.woken.enough(self.quorum, settle) => AskReason::Woken,
            why = asks_again => why,
        };
        let woken = self.woken.take();
        if woken.is_empty() {
            return why;
        }
        wait_events::woken(&self.key, woken);
        self.woken_at = Some(self.parts.clock.now());
        AskReason::Woken
    }

    /// It has the lock, and those who are known to wait are its own to serve.
    pub(crate) fn won(mut self, held: &Arc<HeldLease>) {
        self.won = Some(Arc::clone(held));
        let now = self.parts.clock.now();
        let mut known = self.parts.known();
        known.waiters.hold(&self.key);
        if self.woken_at.is_some() {
            let until = now.saturating_add(self.parts.grace);
            known.won.insert(self.key.clone(), Won { until, held: Arc::downgrade(held) });
            self.parts.grew.notify_one();
        }
    }

    /// Tells the other clients that stand in the way that this one waits (P25). What is left of its own tries goes by
    /// itself, and nobody is woken then.
    fn announce(&self, round: &Round) -> Vec<RelayFuture> {
        let waiter = Waiter { ticket: self.woken.ticket(), client: self.parts.client };
        let message = Message::Waiting { waiter, forwarded: false, key: self.key.clone() };
        let Some(message) = message.to_wire() else { return Vec::new() };
        let in_the_way = InstanceId::all(round.replies().len()).zip(round.replies()).filter_map(|(id, answer)| {
            let Reply::Refused(refusal) = &answer.as_ref()?.reply else { return None };
            Some((self.parts.instances.get(id.index())?, ClientId::of_value(refusal.value.as_deref()?)?))
        });
        let tell = in_the_way.filter(|(_, to)| *to != self.parts.client).take(ANNOUNCED_OVER);
        tell.map(|(instance, to)| instance.relay(Relay::Message { to, message: message.clone() })).collect()
    }

    /// Whether what was kept for it may be kept on other instances still.
    fn was_woken_recently(&self, now: Instant) -> bool {
        self.woken_at.is_some_and(|at| now < at.saturating_add(self.parts.grace))
    }

    /// It is over without the lock: what was kept for it goes to the next, who may ask at once.
    fn pass_on(&self, woken: InstanceSet) {
        let now = self.parts.clock.now();
        if woken.is_empty() && !self.was_woken_recently(now) {
            return;
        }
        let waiters = self.parts.known().waiters.take(&self.key, now);
        for instance in woken.iter() {
            self.parts.decline(instance, self.key.clone(), &waiters);
        }
        let Some(to) = waiters.first().map(|first| first.client) else { return };
        let Some(Successors { message, .. }) = Successors::new(&self.key, &waiters, self.parts.grace) else { return };
        for instance in InstanceId::all(self.parts.instances.len()).filter(|id| !woken.contains(*id)) {
            self.parts.relay(instance, Relay::Message { to, message: message.clone() });
        }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let mut known = self.parts.known();
        remove(&mut known.waits, &self.key, &self.woken);
        let (next, client) = (known.waits.get(&self.key).and_then(|waits| waits.first()).cloned(), self.parts.client);
        if next.is_none() {
            known.waiters.remove(&self.key, client);
        }
        drop(known);
        let woken = self.woken.take();
        match (&self.won, next) {
            (Some(held), _) => {
                let kept = woken.iter().filter(|id| held.lacks(*id)); // elsewhere its value has taken the place
                kept.for_each(|id| self.parts.decline(id, self.key.clone(), &[]));
            }
            // What is kept for this client is as good for its next wait.
            (None, Some(next)) => woken.iter().for_each(|instance| next.note(instance)),
            (None, None) => self.pass_on(woken),
        }
    }
}

fn remove(waits: &mut BTreeMap<Vec<u8>, Vec<Arc<Woken>>>, key: &[u8], woken: &Arc<Woken>) {
    if let Some(of_key) = waits.get_mut(key) {
        of_key.retain(|other| !Arc::ptr_eq(other, woken));
        if of_key.is_empty() {
            waits.remove(key);
        }
    }
}

/// The earliest expiry of what stands in the way.
fn earliest_expiry(round: &Round) -> Option<Duration> {
    let refusals = round.replies().iter().flatten().filter_map(|answer| match &answer.reply {
        Reply::Refused(refusal) => refusal.expires_in,
        _ => None,
    });
    refusals.min()
}

/// Whether nobody has the lock, though several want it.
fn is_split(round: &Round) -> bool {
    matches!(RoundFailure::of(round), RoundFailure::SplitVote(_))
}
