//! Order between the clients that wait for the same lock (P25–P27).
//!
//! The clients tell each other who waits, over the instances; whoever releases the lock has it kept for the one
//! that has waited longest. All of it is about time: an ask that nothing here says anything about is as good.

mod parts;
mod task;
mod wait;
mod woken;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot};

use crate::clock::Clock;
use crate::instance::{Claim, Instance, ReceivedMessage, Request};
use crate::protocol::{ClientId, Quorum, Waiter};
use crate::resource::Resources;
use crate::runtime::held_lease::HeldLease;
use parts::{Parts, announced_keys};
pub(crate) use wait::Wait;

/// What a client knows of others that wait, and its own waits.
#[derive(Debug)]
pub(crate) struct Succession {
    parts: Arc<Parts>,
    /// Dropped, it ends the task that takes messages in.
    _alive: oneshot::Sender<()>,
}

impl Succession {
    /// Begins to take in messages.
    pub(crate) fn start(
        client: ClientId,
        instances: Arc<[Arc<dyn Instance>]>,
        clock: Arc<dyn Clock>,
        grace: Duration,
        messages: mpsc::Receiver<ReceivedMessage>,
    ) -> Self {
        let parts = Arc::new(Parts { client, instances, clock, grace, known: Mutex::default(), grew: Notify::new() });
        let (alive, ended) = oneshot::channel();
        tokio::spawn(task::run(Arc::clone(&parts), messages, ended));
        Self { parts, _alive: alive }
    }

    /// How many keys this client waits for, how much it knows of others that wait or were served, and for how many keys
    /// that it has won a wake-up may still come. All but the first go when they are too old.
    #[cfg(feature = "testing")]
    pub(crate) fn table_sizes(&self) -> [usize; 3] {
        let known = self.parts.known();
        [known.waits.len(), known.waiters.len(), known.won.len()]
    }

    /// Begins to wait, at `wall_us` of the clock by which tokens are proposed. `None` for waits that
    /// only ask.
    pub(crate) fn wait(&self, resources: &Resources, quorum: Quorum, wall_us: u64) -> Option<Wait> {
        Wait::begin(&self.parts, resources, quorum, wall_us)
    }

    /// How many are known to wait for these resources beside the line of this client; `None` if other clients could not
    /// make themselves heard.
    pub(crate) fn others_waiting(&self, resources: &Resources, quorum: Quorum) -> Option<usize> {
        let heard = announced_keys(resources).is_some() && self.parts.hears(quorum);
        heard.then(|| self.known_waiters(resources).0 + usize::from(self.waits_too(resources)))
    }

    /// Whether this client waits for any of these resources beside the line of the lock: for more of them.
    fn waits_too(&self, resources: &Resources) -> bool {
        let (known, now) = (self.parts.known(), self.parts.clock.now());
        resources.lock_keys().any(|key| known.next_own_wait(key, self.parts.grace, now).is_some())
    }

    /// The client has these resources by this lease: those who are known to wait for them are its own to serve.
    pub(crate) fn hold(&self, resources: &Resources, held: &Arc<HeldLease>) {
        let mut known = self.parts.known();
        if !known.waiters.is_empty() {
            resources.lock_keys().for_each(|key| known.waiters.hold(key));
        }
        if !known.waits.is_empty() {
            let waits = resources.lock_keys().filter_map(|key| known.waits.get(key)).flatten();
            waits.for_each(|wait| wait.note_won_here(held));
        }
    }

    /// Whether other clients are known to wait for any of these resources, or to have been named for one lately.
    pub(crate) fn is_wanted(&self, resources: &Resources) -> bool {
        let known = self.parts.known();
        !known.waiters.is_empty() && resources.lock_keys().any(|key| known.waiters.knows_of(key))
    }

    /// How many other clients are known to wait for any of these resources, and which of them comes first.
    pub(crate) fn known_waiters(&self, resources: &Resources) -> (usize, Option<ClientId>) {
        let now = self.parts.clock.now();
        let known = self.parts.known();
        let others = |key| known.waiters.others(key, self.parts.client, now);
        let first_tickets: BTreeMap<ClientId, u64> =
            resources.lock_keys().flat_map(others).map(|Waiter { client, ticket }| (client, ticket)).collect();
        let first = first_tickets.iter().min_by_key(|(_, ticket)| **ticket);
        (first_tickets.len(), first.map(|(client, _)| *client))
    }

    /// The release of a lease, which names the client that has waited longest for its key, if any has (P26). Where there are
    /// several keys they are [kept behind it](Self::keep_for_successors).
    ///
    /// Other waits of this client are named too if they are `own_too`.
    pub(crate) fn name_successor(&self, request: Request, own_too: bool) -> Request {
        match request {
            Request::Release(claim) if names_successor(&claim) => {
                let key = claim.resources.lock_keys().next();
                match key.and_then(|key| self.parts.take_successors(key, own_too)) {
                    Some(successors) => Request::PassOn(claim, Arc::new(successors)),
                    None => Request::Release(claim),
                }
            }
            request => request,
        }
    }

    /// Has the keys of a lease whose release was queued, and names nobody, kept for those who have waited longest.
    pub(crate) fn keep_for_successors(&self, request: &Request, own_too: bool) {
        let Request::Release(claim) = request else { return };
        if !names_successor(claim) {
            announced_keys(&claim.resources)
                .into_iter()
                .flatten()
                .for_each(|key| self.parts.keep_for_next(key, own_too));
        }
    }
}

/// Whether the release of a lease says who gets its key.
fn names_successor(claim: &Claim) -> bool {
    claim.resources.len() == 1
}
