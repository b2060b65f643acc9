//! Order between the clients that wait for the same lock (P25–P27).
//!
//! The clients announce their waiters to each other, over the instances; a client that releases the lock wakes the one that has
//! waited longest, and backs off for a moment. All of it is about time: an attempt that no message has caused counts the same.

mod known;
mod wait;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::sleep;

use crate::clock::Clock;
use crate::instance::redis::RedisInstance;
use crate::instance::{ReceivedMessage, Wake};
use crate::protocol::{Access, ClientId, Instant, Quorum, RetryDelay};
use crate::resource::{Resource, display_name};
use crate::runtime::tasks::ran_to_its_end;
use crate::runtime::wait_events::TARGET;
use known::{Parts, announced_key};
pub(crate) use wait::Wait;

/// How often what is too old is forgotten.
const EXPIRE_INTERVAL: Duration = Duration::from_secs(1);

/// What a client knows of others that wait, and its own waits.
#[derive(Debug)]
pub(crate) struct Order {
    parts: Arc<Parts>,
    /// Dropped, it ends the task that takes messages in.
    _alive: oneshot::Sender<()>,
}

impl Order {
    /// Begins to take in messages.
    pub(crate) fn start(
        client: ClientId,
        instances: Arc<[RedisInstance]>,
        clock: Arc<dyn Clock>,
        (instance_timeout, retry): (Duration, RetryDelay),
        messages: mpsc::Receiver<ReceivedMessage>,
    ) -> Self {
        let (known, grew) = (Mutex::default(), Notify::new());
        let [least, most] = [retry.least(), retry.least().saturating_mul(2)].map(|pause| pause.min(instance_timeout));
        let back_off = RetryDelay::new(least, most);
        let parts = Arc::new(Parts { client, instances, clock, instance_timeout, back_off, known, grew });
        let (alive, ended) = oneshot::channel();
        tokio::spawn(run(Arc::clone(&parts), messages, ended));
        Self { parts, _alive: alive }
    }

    /// How many keys this client waits for, how much it knows of others that wait or were woken, and for how many keys
    /// that it has won a wake-up may still come. All but the first go when they are too old.
    #[cfg(feature = "testing")]
    pub(crate) fn table_sizes(&self) -> [usize; 3] {
        let known = self.parts.known();
        [known.waits.len(), known.waiters.len(), known.won.len()]
    }

    /// Begins to wait, at `wall_us` of the clock by which tokens are proposed. `None` for waits that
    /// only poll.
    pub(crate) fn wait(&self, resource: &Resource, access: Access, quorum: Quorum, wall_us: u64) -> Option<Wait> {
        Some(Wait::begin(&self.parts, (announced_key(resource)?, access), quorum, wall_us))
    }

    /// How many other clients are known to wait for this lock; `None` if they could not announce themselves.
    pub(crate) fn others_waiting(&self, resource: &Resource, quorum: Quorum) -> Option<usize> {
        let heard = announced_key(resource).is_some() && self.parts.hears(quorum);
        heard.then(|| self.known_waiters(resource).0)
    }

    /// The client has this lock: it wakes the known waiters.
    pub(crate) fn hold(&self, resource: &Resource) {
        let mut known = self.parts.known();
        if !known.waiters.is_empty() {
            known.waiters.hold(resource.key());
        }
    }

    /// Whether other clients are known to wait for this lock, or to have been woken for it lately.
    pub(crate) fn is_wanted(&self, resource: &Resource) -> bool {
        let known = self.parts.known();
        known.waiters.knows_of(resource.key())
    }

    /// How many other clients are known to wait for this lock, and which of them comes first.
    pub(crate) fn known_waiters(&self, resource: &Resource) -> (usize, Option<ClientId>) {
        let Some(key) = announced_key(resource) else { return (0, None) };
        let (known, now) = (self.parts.known(), self.parts.clock.now());
        let mut waiting = known.waiters.waiting(key, now);
        let first = waiting.next().map(|waiter| waiter.client);
        (usize::from(first.is_some()) + waiting.count(), first)
    }

    /// A single try of this client was refused this lock.
    pub(crate) fn refused(&self, resource: &Resource) {
        let mut known = self.parts.known();
        if let Some(key) = announced_key(resource).filter(|_| !known.waiters.is_empty()) {
            known.waiters.back_off(key, self.parts.backs_off_until());
        }
    }

    /// Until when this client leaves this lock to another one, for which it has released it; `None` if it has it again, or was woken
    /// itself.
    pub(crate) fn backs_off_until(&self, resource: &Resource) -> Option<Instant> {
        let known = self.parts.known();
        if known.waiters.is_empty() {
            return None;
        }
        known.waiters.passed_on(announced_key(resource)?, self.parts.clock.now())
    }

    /// What wakes the client that has waited longest, if any has, behind the release of this lock (P26).
    pub(crate) fn next_to_wake(&self, resource: &Resource) -> Option<Arc<[Wake]>> {
        let (key, mut known) = (announced_key(resource)?, self.parts.known());
        if known.waiters.is_empty() {
            return None;
        }
        let waiters = self.parts.take_waiters(&mut known, key);
        drop(known);
        let wakes = Wake::all(key, &waiters);
        let (next, waiting_elsewhere) = (wakes.first()?.to, waiters.len());
        tracing::debug!(target: TARGET, key = display_name(key), %next, waiting_elsewhere, "wakes the next");
        Some(wakes.into())
    }
}

/// Takes messages in. Ends with the client.
async fn run(parts: Arc<Parts>, mut messages: mpsc::Receiver<ReceivedMessage>, mut ended: oneshot::Receiver<()>) {
    while !ran_to_its_end("takes messages in", serve(&parts, &mut messages, &mut ended)).await {}
}

async fn serve(parts: &Parts, messages: &mut mpsc::Receiver<ReceivedMessage>, mut ended: &mut oneshot::Receiver<()>) {
    // Not with each message: it looks at all that is known, and there may be thousands of messages a second.
    let mut expires_at = parts.clock.now();
    loop {
        let (is_empty, pause) = (parts.known().is_empty(), expires_at.saturating_since(parts.clock.now()));
        tokio::select! {
            biased;
            _ = &mut ended => return,
            message = messages.recv() => match message {
                Some(message) => parts.on_message(message),
                None => return,
            },
            () = parts.grew.notified() => {}
            () = sleep(pause), if !is_empty => {}
        }
        let now = parts.clock.now();
        if now >= expires_at {
            parts.known().expire(now);
            expires_at = now.saturating_add(EXPIRE_INTERVAL);
        }
    }
}
