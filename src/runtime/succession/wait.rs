//! One wait for a lock that others have or wait for as well.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::parts::{Parts, TOLD_OVER, Won, announced_keys};
use super::woken::Woken;
use crate::instance::{Relay, RelayFuture};
use crate::protocol::{
    ClientId, InstanceId, InstanceSet, Instant, Message, Quorum, Reply, RetryDelay, Round, RoundFailure, Waiter,
    reconnect_delay,
};
use crate::random;
use crate::resource::Resources;
use crate::runtime::held_lease::HeldLease;
use crate::runtime::wait_events::{self, AskReason};

/// The pause of a waiter that is known to whoever stands in its way: doubled with each, and cut by up to half at
/// random (P27).
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// By so much at most an ask is later than the expiry for which it waits, so that those who wait for the same do not
/// ask together.
const EXPIRY_SPREAD: Duration = Duration::from_millis(20);

/// The part of the grace for which a waiter that was woken over one instance waits for the others.
const SETTLE_DIVISOR: u32 = 40;

/// The part of the grace after which what is kept in vain goes to the next.
const KEPT_DIVISOR: u32 = 2;

/// A wait for one or several resources. Dropped before it has won, it passes on what was kept for it.
#[derive(Debug)]
pub(crate) struct Wait {
    parts: Arc<Parts>,
    quorum: Quorum,
    /// In key order.
    keys: Vec<WaitedKey>,
    /// Told of each instance that keeps one of the keys.
    came: Arc<Notify>,
    /// The lease that it has won.
    won: Option<Arc<HeldLease>>,
}

/// One of the keys that are waited for.
#[derive(Debug)]
struct WaitedKey {
    key: Vec<u8>,
    woken: Arc<Woken>,
    /// When it was woken for this key last, and which instances kept it then.
    kept: Option<(Instant, InstanceSet)>,
}

impl Wait {
    /// Begins a wait at `wall_us` of the clock by which tokens are proposed. `None` for a key that is too long for a
    /// message: such waits only ask.
    pub(super) fn begin(parts: &Arc<Parts>, resources: &Resources, quorum: Quorum, wall_us: u64) -> Option<Self> {
        let (came, now) = (Arc::<Notify>::default(), parts.clock.now());
        let mut known = parts.known();
        let waited = |key: &[u8]| {
            let woken = Arc::new(Woken::new(wall_us, now, Arc::clone(&came)));
            known.waits.entry(key.to_vec()).or_default().push(Arc::clone(&woken));
            WaitedKey { key: key.to_vec(), woken, kept: None }
        };
        let keys = announced_keys(resources)?.map(waited).collect();
        drop(known);
        Some(Self { parts: Arc::clone(parts), quorum, keys, came, won: None })
    }

    /// Waits until it is worth asking again: until the lock is kept for this client, or for a while (P27). `lost` is
    /// the round that was lost, if there was one. Returns why it is.
    pub(crate) async fn pause(&mut self, lost: Option<&Round>, failures: u32, retry: RetryDelay) -> AskReason {
        let began = self.parts.clock.now();
        self.give_up_what_is_kept_too_long(began);
        let announced = lost.map(|round| self.announce(round)).unwrap_or_default();
        let (parts, gives_up_in) = (Arc::clone(&self.parts), self.gives_up_in(began));
        let hears = self.parts.hears(self.quorum) && gives_up_in.is_none() && !lost.is_some_and(is_split);
        let longest = gives_up_in.unwrap_or(Duration::MAX);
        let expiry = lost.and_then(earliest_expiry);
        let key = lost.and_then(|round| self.keys.get(first_in_the_way(round)?)).map(|waited| &waited.key);
        let asks_again = async {
            let is_heard = join_all(announced).await.contains(&true);
            key.inspect(|key| wait_events::announced(key, is_heard));
            let pause = if hears && is_heard {
                reconnect_delay(failures, FIRST_PAUSE, LONGEST_PAUSE, random::spread())
            } else {
                retry.after(failures, random::spread()).min(longest)
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

    /// It has the lock, and those who are known to wait are its own to serve.
    pub(crate) fn won(mut self, held: &Arc<HeldLease>) {
        self.won = Some(Arc::clone(held));
        let now = self.parts.clock.now();
        let mut known = self.parts.known();
        for WaitedKey { key, kept, .. } in &self.keys {
            known.waiters.hold(key);
            if kept.is_some() {
                let until = now.saturating_add(self.parts.grace);
                known.won.insert(key.clone(), Won { until, held: Arc::downgrade(held) });
                self.parts.grew.notify_one();
            }
        }
    }

    /// Returns once a quorum keeps one of the keys, or a little after the first instance does.
    async fn enough_woken(&self) {
        let settle = self.parts.grace / SETTLE_DIVISOR;
        loop {
            let count = self.keys.iter().map(|waited| waited.woken.count()).max().unwrap_or(0);
            if count >= self.quorum.votes() {
                return;
            }
            if count == 0 {
                self.came.notified().await;
                continue;
            }
            tokio::select! {
                biased;
                () = sleep(settle) => return,
                () = self.came.notified() => {}
            }
        }
    }

    /// Takes in which instances keep what; whether any does.
    fn take_woken(&mut self) -> bool {
        let now = self.parts.clock.now();
        let mut any = false;
        for waited in &mut self.keys {
            let woken = waited.woken.take();
            if !woken.is_empty() {
                any = true;
                wait_events::woken(&waited.key, woken);
                let (since, before) =
                    waited.kept_within(self.parts.grace, now).unwrap_or((now, InstanceSet::default()));
                waited.kept = Some((since, before.union(woken)));
            }
        }
        any
    }

    /// Tells the other clients that stand in the way that this one waits (P25). What is left of its own tries goes by
    /// itself, and nobody is woken then.
    fn announce(&self, round: &Round) -> Vec<RelayFuture> {
        let mut announced = Vec::new();
        let mut times: BTreeMap<usize, usize> = BTreeMap::new();
        for (id, answer) in InstanceId::all(round.replies().len()).zip(round.replies()) {
            let Some(Reply::Refused(refusal)) = answer.as_ref().map(|answer| &answer.reply) else { continue };
            let to = refusal.value.as_deref().and_then(ClientId::of_value).filter(|to| *to != self.parts.client);
            let (Some(to), Some(waited)) = (to, self.keys.get(refusal.resource)) else { continue };
            let times = times.entry(refusal.resource).or_default();
            if *times >= TOLD_OVER {
                continue;
            }
            let waiter = Waiter { ticket: waited.woken.ticket(), client: self.parts.client };
            let message = Message::Waiting { waiter, forwarded: false, key: waited.key.clone() };
            if let (Some(instance), Some(message)) = (self.parts.instances.get(id.index()), message.to_wire()) {
                announced.push(instance.relay(Relay::Message { to, message }));
                *times += 1;
            }
        }
        announced
    }

    /// After how long something that is kept for it is to be given up, if anything is.
    fn gives_up_in(&self, now: Instant) -> Option<Duration> {
        let longest = self.parts.grace / KEPT_DIVISOR;
        let since =
            self.keys.iter().filter_map(|waited| waited.kept_within(self.parts.grace, now)).map(|(at, _)| at).min();
        since.map(|at| at.saturating_add(longest).saturating_since(now))
    }

    /// Several resources: what is kept of one of them while another one is in the way is kept from others in vain, in
    /// the end. A part of the grace is enough for a turn that is near. The wait pays for that with its rank.
    fn give_up_what_is_kept_too_long(&mut self, now: Instant) {
        let longest = self.parts.grace / KEPT_DIVISOR;
        for waited in self.keys.iter_mut().filter(|waited| waited.kept_within(longest, now).is_none()) {
            if let Some((at, kept)) = waited.kept.take() {
                waited.woken.postpone(now.saturating_since(at));
                let next = self.parts.known().own_wait_behind(&waited.key, &waited.woken, self.parts.grace, now);
                waited.give_up(&self.parts, (InstanceSet::default(), kept), next);
            }
        }
    }
}

impl WaitedKey {
    /// Since when, and by which instances, it may be kept still.
    fn kept_within(&self, time: Duration, now: Instant) -> Option<(Instant, InstanceSet)> {
        self.kept.filter(|(at, _)| now < at.saturating_add(time))
    }

    /// What is `kept` for this wait, and may be kept where it was `asked` for since, goes to the `next` of this client, or of
    /// another; to nobody if this client has won it meanwhile.
    fn give_up(&self, parts: &Parts, (kept, asked): (InstanceSet, InstanceSet), next: Option<Arc<Woken>>) {
        let all = kept.union(asked);
        if let Some(held) = self.woken.held_here() {
            // Those who wait are for whoever of this client has it. Elsewhere its value has taken the place.
            return all.iter().filter(|id| held.lacks(*id)).for_each(|id| parts.decline(id, self.key.clone(), &[]));
        }
        if let Some(next) = next {
            let now = parts.clock.now();
            return all.iter().for_each(|id| next.note(id, now));
        }
        parts.known().waiters.remove(&self.key, parts.client);
        parts.pass_on(&self.key, kept, asked);
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let now = self.parts.clock.now();
        for waited in &self.keys {
            let mut known = self.parts.known();
            let next = known.own_wait_behind(&waited.key, &waited.woken, self.parts.grace, now);
            remove(&mut known.waits, &waited.key, &waited.woken);
            if !known.waits.contains_key(&waited.key) {
                known.waiters.remove(&waited.key, self.parts.client);
            }
            drop(known);
            let woken = waited.woken.take();
            match &self.won {
                Some(held) => {
                    let kept = woken.iter().filter(|id| held.lacks(*id)); // elsewhere its value has taken the place
                    kept.for_each(|id| self.parts.decline(id, waited.key.clone(), &[]));
                }
                // It is over without the lock: what was kept for it goes to the next, who may ask at once.
                None => {
                    let asked = waited.kept_within(self.parts.grace, now).map(|(_, asked)| asked).unwrap_or_default();
                    if !woken.union(asked).is_empty() {
                        waited.give_up(&self.parts, (woken, asked), next);
                    }
                }
            }
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

/// The resource that stands in the way on the first instance that refused.
fn first_in_the_way(round: &Round) -> Option<usize> {
    round.replies().iter().flatten().find_map(|answer| match &answer.reply {
        Reply::Refused(refusal) => Some(refusal.resource),
        _ => None,
    })
}
