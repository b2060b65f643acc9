//! What a client knows of others that wait, and what it does about their messages.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::Clock;
use crate::instance::redis::RedisInstance;
use crate::instance::{ReceivedMessage, Wake};
use crate::protocol::{
    Access, Announcement, ClientId, InstanceId, InstanceSet, Instant, MAX_MESSAGE_KEY, Message, Quorum, RetryDelay,
    Waiter, Waiters,
};
use crate::random;
use crate::resource::{Resource, display_name};
use crate::runtime::wait_events::TARGET;

/// The key under which waiters are announced; `None` if it is too long for a message.
pub(super) fn announced_key(resource: &Resource) -> Option<&[u8]> {
    Some(resource.key()).filter(|key| key.len() <= MAX_MESSAGE_KEY)
}

/// What the client's task and its waits share.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) client: ClientId,
    pub(super) instances: Arc<[RedisInstance]>,
    pub(super) clock: Arc<dyn Clock>,
    /// After so long no wake-up comes late.
    pub(super) instance_timeout: Duration,
    /// For how long it leaves a lock to a client that it has woken. With a random part: clients that take the lock again and again would
    /// come back in step, each time in the moment of a release, ahead of the one that is woken.
    pub(super) back_off: RetryDelay,
    pub(super) known: Mutex<Known>,
    /// Notifies the client's task that a wait has put something into `known`: it is to be removed in time, too.
    pub(super) grew: Notify,
}

/// For which key, and what for.
pub(super) type WaitKey = (Vec<u8>, Access);

/// What is known, by key.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) waiters: Waiters,
    /// The waits of this client: of its writers that of their queue, and that of each reader.
    pub(super) waits: BTreeMap<WaitKey, Vec<Arc<Woken>>>,
    /// The waits that have won, whose wake-ups may still come over slower instances.
    pub(super) won: BTreeMap<WaitKey, LateWakes>,
}

/// The wake-ups of a wait that has won which have not come yet.
#[derive(Debug)]
pub(super) struct LateWakes {
    /// One over each of these. What comes after it is a wake-up of a later wait.
    pub(super) over: InstanceSet,
    /// Until then.
    pub(super) until: Instant,
}

/// Over which instances a wait was woken.
#[derive(Debug)]
pub(super) struct Woken {
    ticket: AtomicU64,
    /// Those that the wait has not taken yet.
    over: Mutex<InstanceSet>,
    pub(super) came: Notify,
}

impl Woken {
    /// Over none, so far, for the wait that begins now, with this ticket.
    pub(super) fn new(ticket: u64) -> Self {
        Self { ticket: AtomicU64::new(ticket), over: Mutex::default(), came: Notify::new() }
    }

    /// When it began to wait. Each wake-up makes it larger by one: a wait that continues is a new one to the clients that woke it.
    pub(super) fn ticket(&self) -> u64 {
        self.ticket.load(Ordering::Relaxed)
    }

    /// The instances so far, which are forgotten.
    pub(super) fn take(&self) -> InstanceSet {
        let over = std::mem::take(&mut *self.over());
        if !over.is_empty() {
            self.ticket.fetch_add(1, Ordering::Relaxed);
        }
        over
    }

    pub(super) fn count(&self) -> usize {
        self.over().len()
    }

    pub(super) fn note(&self, over: InstanceSet) {
        let mut noted = self.over();
        *noted = noted.union(over);
        drop(noted);
        self.came.notify_one();
    }

    fn over(&self) -> MutexGuard<'_, InstanceSet> {
        self.over.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Parts {
    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether messages reach this client over a quorum of instances.
    pub(super) fn hears(&self, quorum: Quorum) -> bool {
        self.instances.iter().filter(|instance| instance.hears()).count() >= quorum.votes()
    }

    /// Takes the waiters for a lock that is released for the first of them; this client backs off for it (P26).
    pub(super) fn take_waiters(&self, known: &mut Known, key: &[u8]) -> Vec<Waiter> {
        let waiters = known.waiters.take(key, self.clock.now());
        if !waiters.is_empty() {
            known.waiters.back_off(key, self.backs_off_until());
        }
        waiters
    }

    /// Until when this client leaves a lock to another one from now on.
    pub(super) fn backs_off_until(&self) -> Instant {
        self.clock.now().saturating_add(self.back_off.next(random::spread()))
    }

    /// Takes a message in.
    pub(super) fn on_message(&self, ReceivedMessage { instance, message }: ReceivedMessage) {
        match Message::from_wire(&message) {
            Some(Message::Waiting { waiter, forwarded, key }) => self.on_waiting(instance, waiter, forwarded, key),
            Some(Message::Leaves { waiter, key }) => self.known().waiters.leave(&key, waiter, self.clock.now()),
            Some(Message::Next { access, then, key }) => self.on_next(instance, &then, (key, access)),
            None => {
                tracing::debug!(instance = ?RedisInstance::addresses(&self.instances, InstanceSet::only(instance)), "a message that no client of this library sends")
            }
        }
    }

    fn on_waiting(&self, instance: InstanceId, waiter: Waiter, forwarded: bool, key: Vec<u8>) {
        if waiter.client == self.client {
            return; // forwarded by a client that has woken this one meanwhile
        }
        let announcement = self.known().waiters.announce(&key, waiter, self.clock.now());
        if let (Announcement::Forward(to), false) = (announcement, forwarded)
            && let Some(message) = (Message::Waiting { waiter, forwarded: true, key }).to_wire()
        {
            self.send(instance, Wake { to, message });
        }
    }

    /// A key was released on an instance, and this client is next. It wakes the waiters in `then`.
    fn on_next(&self, instance: InstanceId, then: &[Waiter], wanted: WaitKey) {
        let now = self.clock.now();
        let mut known = self.known();
        let key = &*wanted.0;
        if let Some(woken) = known.waits.get(&wanted).cloned() {
            known.waiters.hold(key);
            known.waiters.take_in(key, then, self.client, now);
            drop(known);
            return woken.iter().for_each(|woken| woken.note(std::iter::once(instance).collect()));
        }
        let late = known.won.get_mut(&wanted).filter(|late| now < late.until && late.over.contains(instance));
        if let Some(late) = late {
            late.over.remove(instance);
            if known.waiters.passed_on(key, now).is_none() {
                known.waiters.take_in(key, then, self.client, now);
            }
            return;
        }
        drop(known);
        self.pass_on(std::iter::once(instance).collect(), key, then);
    }

    /// A wake-up that came over these instances, without a waiter of this client, goes to the next.
    pub(super) fn pass_on(&self, over: InstanceSet, key: &[u8], waiters: &[Waiter]) {
        let wakes = Wake::all(key, waiters);
        let next = wakes.first().map(|wake| wake.to.to_string());
        tracing::debug!(target: TARGET, key = display_name(key), over = ?RedisInstance::addresses(&self.instances, over), next, "passed on");
        for (instance, wake) in over.iter().flat_map(|instance| wakes.iter().map(move |wake| (instance, wake))) {
            self.send(instance, wake.clone());
        }
    }

    /// Sends something over one instance. Whether it arrives is not waited for.
    pub(super) fn send(&self, instance: InstanceId, message: Wake) {
        if let Some(instance) = self.instances.get(instance.index()) {
            drop(instance.publish(message));
        }
    }
}

impl Known {
    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty() && self.won.is_empty()
    }

    pub(super) fn expire(&mut self, now: Instant) {
        self.waiters.expire(now);
        self.won.retain(|_, late| now < late.until);
    }
}
