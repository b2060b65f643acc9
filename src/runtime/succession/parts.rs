//! What a client knows of others that wait, and what it does about their messages.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::woken::Woken;
use crate::clock::Clock;
use crate::foreign::contain;
use crate::instance::{Instance, ReceivedMessage, Relay, Successors};
use crate::protocol::{
    Announcement, ClientId, InstanceId, InstanceSet, Instant, MAX_MESSAGE_KEY, Message, Quorum, Waiter, Waiters,
};
use crate::resource::Resources;
use crate::runtime::held_lease::HeldLease;
use crate::runtime::wait_events;

/// The keys under which those who wait are announced; `None` if one is too long for a message.
pub(super) fn announced_keys(resources: &Resources) -> Option<impl Iterator<Item = &[u8]>> {
    let fit = resources.lock_keys().all(|key| key.len() <= MAX_MESSAGE_KEY);
    fit.then(|| resources.lock_keys())
}

/// Over so many instances a client is told something that one of them may be slow to pass on.
pub(super) const TOLD_OVER: usize = 2;

/// What the client's task and its waits share.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) client: ClientId,
    pub(super) instances: Arc<[Arc<dyn Instance>]>,
    pub(super) clock: Arc<dyn Clock>,
    /// For how long a key is kept for a successor: the instance timeout.
    pub(super) grace: Duration,
    pub(super) known: Mutex<Known>,
    /// Tells the client's task of what a wait has put into `known`: it is to be forgotten too.
    pub(super) grew: Notify,
}

/// What is known, by key.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) waiters: Waiters,
    /// The waits of this client, in order.
    pub(super) waits: BTreeMap<Vec<u8>, Vec<Arc<Woken>>>,
    /// The waits that have won their lock already.
    pub(super) won: BTreeMap<Vec<u8>, Won>,
}

/// A wait that has won its lock, for which a slower instance may still keep it.
#[derive(Debug)]
pub(super) struct Won {
    /// Until when.
    pub(super) until: Instant,
    pub(super) held: Weak<HeldLease>,
}

impl Won {
    /// Whether what the instance keeps is of use to nobody. Where it granted, the value has taken its place.
    fn is_kept_in_vain(&self, instance: InstanceId) -> bool {
        self.held.upgrade().is_none_or(|held| held.lacks(instance))
    }
}

impl Parts {
    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this client hears what is said to it, over a quorum of instances.
    pub(super) fn hears(&self, quorum: Quorum) -> bool {
        self.instances.iter().filter(|instance| instance.hears()).count() >= quorum.votes()
    }

    /// Those who get a key that is given up here.
    pub(super) fn take_successors(&self, key: &[u8], own_too: bool) -> Option<Successors> {
        let now = self.clock.now();
        let mut known = self.known();
        let own = known.next_own_wait(key, self.grace, now).filter(|_| own_too);
        if let Some(own) = &own {
            known.waiters.inherit(key, &[Waiter { ticket: own.ticket(), client: self.client }], now);
        }
        if known.waiters.is_empty() {
            return None;
        }
        let waiters = known.waiters.take(key, now);
        if waiters.first()?.client == self.client {
            known.waiters.hold(key); // another wait of this very client
            // Whoever else of this client asks first may take what is kept for it: then others come before it.
            own.into_iter().for_each(|own| own.begin_anew(now));
            self.grew.notify_one();
        }
        drop(known);
        wait_events::named(key, waiters.first()?.client, waiters.len());
        Successors::new(key, &waiters, self.grace)
    }

    /// Has a key that was let go kept for whoever has waited longest, where it is free.
    pub(super) fn keep_for_next(&self, key: &[u8], own_too: bool) {
        let Some(successors) = self.take_successors(key, own_too) else { return };
        for instance in InstanceId::all(self.instances.len()) {
            let (key, successors) = (key.to_vec(), successors.clone());
            self.relay(instance, Relay::Keep { key, instead_of: None, successors });
        }
        // Nothing is free yet where the release still waits in front of the connection: the next one is woken all the same.
        let Some(to) = successors.clients.first().copied() else { return };
        for instance in InstanceId::all(self.instances.len()).take(TOLD_OVER) {
            self.relay(instance, Relay::Message { to, message: successors.message.clone() });
        }
    }

    /// What instances keep for a wait of this client goes to the next, who may ask at once elsewhere too. Where it was
    /// `asked` for since, it may have been kept no more.
    pub(super) fn pass_on(&self, key: &[u8], kept: InstanceSet, asked: InstanceSet) {
        let waiters = self.known().waiters.take(key, self.clock.now());
        for instance in kept.union(asked).iter() {
            self.decline(instance, key.to_vec(), &waiters);
        }
        let Some(Successors { clients, message, .. }) = Successors::new(key, &waiters, self.grace) else { return };
        let Some(to) = clients.first().copied() else { return };
        for instance in InstanceId::all(self.instances.len()).filter(|id| !kept.contains(*id)) {
            self.relay(instance, Relay::Message { to, message: message.clone() });
        }
    }

    /// Takes a message in.
    pub(super) fn on_message(&self, ReceivedMessage { instance, message }: ReceivedMessage) {
        match Message::from_wire(&message) {
            Some(Message::Waiting { waiter, forwarded, key }) => self.on_waiting(instance, waiter, forwarded, key),
            Some(Message::Next { then, key }) => self.on_next(instance, &then, key),
            None => contain(|| tracing::debug!(%instance, "a message that no client of this library sends")),
        }
    }

    fn on_waiting(&self, instance: InstanceId, waiter: Waiter, forwarded: bool, key: Vec<u8>) {
        let mut known = self.known();
        if waiter.client == self.client && !known.is_waiting(&key, waiter.ticket) {
            return; // its wait has ended
        }
        let announcement = known.waiters.announce(&key, waiter, self.clock.now());
        drop(known);
        if let (Announcement::Forward(to), false) = (announcement, forwarded)
            && let Some(message) = (Message::Waiting { waiter, forwarded: true, key }).to_wire()
        {
            self.relay(instance, Relay::Message { to, message });
        }
    }

    /// An instance keeps a key for this client.
    fn on_next(&self, instance: InstanceId, then: &[Waiter], key: Vec<u8>) {
        let now = self.clock.now();
        let mut known = self.known();
        let waits = known.waits.get(&key);
        let held = waits.into_iter().flatten().find_map(|wait| wait.held_here());
        if let Some(held) = held {
            known.inherit(&key, then, now); // they wait for this client
            known.waiters.remove(&key, self.client);
            drop(known);
            if held.lacks(instance) {
                self.decline(instance, key, &[]);
            }
            return;
        }
        let first = known.next_own_wait(&key, self.grace, now).or_else(|| waits?.first().cloned());
        if let Some(first) = first {
            let others = waits.into_iter().flatten().filter(|wait| !Arc::ptr_eq(wait, &first));
            others.for_each(|wait| wait.count_as_served()); // as one, for those who named this client
            known.inherit(&key, then, now);
            drop(known);
            wait_events::kept(&key, instance);
            return first.note(instance, now);
        }
        let won = known.won.get(&key).filter(|won| now < won.until).map(|won| won.is_kept_in_vain(instance));
        if won.is_some() {
            known.inherit(&key, then, now); // they wait for this client
            known.waiters.remove(&key, self.client); // which waits no more
        }
        drop(known);
        match won {
            None => self.decline(instance, key, then),
            Some(true) => self.decline(instance, key, &[]),
            Some(false) => {}
        }
    }

    /// Gives up what an instance keeps for this client: it goes to the first of `waiters`.
    pub(super) fn decline(&self, instance: InstanceId, key: Vec<u8>, waiters: &[Waiter]) {
        let nobody = || Successors { clients: Vec::new(), message: Vec::new(), grace: self.grace };
        let successors = if waiters.is_empty() { None } else { Successors::new(&key, waiters, self.grace) };
        let successors = successors.unwrap_or_else(nobody);
        wait_events::passed_on(&key, instance, successors.clients.first().copied());
        self.relay(instance, Relay::Keep { key, instead_of: Some(self.client), successors });
    }

    /// Sends something over one instance. Whether it arrives is not waited for.
    pub(super) fn relay(&self, instance: InstanceId, relay: Relay) {
        if let Some(instance) = self.instances.get(instance.index()) {
            drop(instance.relay(relay));
        }
    }
}

impl Known {
    /// The key comes to this client, with what others knew.
    fn inherit(&mut self, key: &[u8], then: &[Waiter], now: Instant) {
        self.waiters.hold(key);
        self.waiters.inherit(key, then, now);
    }

    /// The wait of this client whose turn it is: the first that has not left a wake-up where it is for `patience` (P22).
    pub(super) fn next_own_wait(&self, key: &[u8], patience: Duration, now: Instant) -> Option<Arc<Woken>> {
        self.waits.get(key)?.iter().find(|wait| !wait.is_unheard(patience, now)).cloned()
    }

    /// As [`next_own_wait`](Self::next_own_wait), of those behind this one: what is handed back goes round no more than once.
    pub(super) fn own_wait_behind(
        &self,
        key: &[u8],
        wait: &Arc<Woken>,
        patience: Duration,
        now: Instant,
    ) -> Option<Arc<Woken>> {
        let behind = self.waits.get(key)?.iter().skip_while(|other| !Arc::ptr_eq(other, wait)).skip(1);
        behind.into_iter().find(|other| !other.is_unheard(patience, now)).cloned()
    }

    fn is_waiting(&self, key: &[u8], ticket: u64) -> bool {
        self.waits.get(key).is_some_and(|waits| waits.iter().any(|wait| wait.ticket() == ticket))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty() && self.won.is_empty()
    }

    pub(super) fn expire(&mut self, now: Instant) {
        self.waiters.expire(now);
        self.won.retain(|_, won| now < won.until);
    }
}
