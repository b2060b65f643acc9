//! Acquires one of several locks: a permit of a semaphore (P35).
//!
//! Each is a lock like any other. A caller tries one that no caller of this client uses, then those that one read of all keys finds
//! free. If all are taken it waits in a queue of its client. The first of that queue waits for several locks at once, each in its
//! own queue: so the clients that have them know of it, and a lock that another caller of this client gives up comes to it without
//! a request. Of more than it can wait for at once it exchanges one now and then. With the first that is won the other waits end, and
//! the next of the queue continues.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{AbortHandle, abortable};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::sleep;

use super::try_acquire::try_acquire;
use super::uncollected::WonLease;
use super::waiter::{Deadline, Place, wait};
use super::{AcquireFailure, AcquireParams};
use crate::protocol::{ClientId, RetryDelay};
use crate::random;
use crate::resource::Resource;
use crate::runtime::ask_all::which_are_free;
use crate::runtime::held_lease::Tenure;
use crate::runtime::shared::Shared;
use crate::runtime::tasks::{TrackedAttempt, run_abort_on_drop};

/// So many locks that other clients have are waited for at once: each waiter polls once a second.
const AT_ONCE: usize = 4;

/// How often the keys of those that are not waited for are read, at most; half of it at least.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// Several locks, of which one is enough.
#[derive(Debug)]
pub(crate) struct Several {
    /// For the queue of the waiters; nothing is stored under its name.
    line: Arc<AcquireParams>,
    each: Vec<Arc<AcquireParams>>,
    /// The one with which this client begins.
    first: usize,
}

/// Which of them, and the lease.
type Won<T> = Result<(usize, T), AcquireFailure>;

impl Several {
    /// Under this name and with these terms; its id spreads clients over them.
    pub(crate) fn new(name: &AcquireParams, each: Vec<Arc<AcquireParams>>, client: ClientId) -> Self {
        let line = Arc::new(AcquireParams { resource: name.resource.line(), ..AcquireParams::clone(name) });
        let first = client.place_among(each.len());
        Self { line, each, first }
    }

    /// The name of the queue.
    pub(crate) fn line(&self) -> &Resource {
        &self.line.resource
    }

    /// Tries the free ones; none while a caller of this client waits.
    pub(crate) async fn try_acquire(&self, shared: &Arc<Shared>) -> Won<Tenure> {
        if shared.slots.waiting(self.line()) > 0 {
            yield_now().await; // a caller that tries again and again must let others run
            return Err(AcquireFailure::WAITED_FOR);
        }
        self.try_free(shared).await
    }

    /// Waits until one of them is won, the wait is over, or waiting longer cannot help.
    pub(crate) async fn acquire(self: &Arc<Self>, shared: &Arc<Shared>, limit: Option<Duration>) -> Won<Tenure> {
        let deadline = Deadline::begin(limit, &*shared.clock);
        if shared.slots.waiting(self.line()) == 0 {
            match self.try_free(shared).await {
                Err(failure) if !failure.is_of_others() && !failure.may_pass() => return Err(failure),
                Err(failure) if deadline.has_passed(&*shared.clock) => {
                    return Err(deadline.failure(failure, &*shared.clock));
                }
                Err(_) => {}
                won => return won,
            }
        }
        loop {
            let candidate = Candidate::join(shared, self, deadline)?;
            let won = async { run_abort_on_drop(&shared.runtime, |result| candidate.run(result)).await? };
            let (index, won) = deadline.while_driven(shared, won).await?;
            if let Some(collected) = won.collect(shared, self.params(index)) {
                return collected.map(|tenure| (index, tenure));
            }
        }
    }

    /// One that no caller of this client uses; if other clients have that, each that is free.
    async fn try_free(&self, shared: &Arc<Shared>) -> Won<Tenure> {
        let is_idle = |at: &usize| shared.slots.is_idle(&self.params(*at).resource, &*shared.clock);
        let mut open: Vec<usize> = self.in_order().filter(is_idle).collect();
        let Some(first) = open.first().copied() else { return Err(AcquireFailure::WAITED_FOR) };
        let mut last = match self.try_one(shared, first).await {
            Err(failure) if failure.is_of_others() => failure,
            decided => return decided,
        };
        open.remove(0);
        for at in self.free_of(shared, &open).await {
            match self.try_one(shared, at).await {
                Err(failure) if failure.is_of_others() => last = failure,
                decided => return decided,
            }
        }
        Err(last)
    }

    async fn try_one(&self, shared: &Arc<Shared>, at: usize) -> Won<Tenure> {
        try_acquire(shared, self.params(at)).await.map(|tenure| (at, tenure))
    }

    /// Those of `open` that are free, by one read of all their keys.
    async fn free_of(&self, shared: &Arc<Shared>, open: &[usize]) -> Vec<usize> {
        if open.is_empty() {
            return Vec::new();
        }
        let resources: Vec<Resource> = open.iter().map(|at| self.params(*at).resource.clone()).collect();
        let are_free = which_are_free(shared, &resources).await;
        open.iter().zip(are_free).filter(|(_, is_free)| *is_free).map(|(at, _)| *at).collect()
    }

    /// All of them, from the one with which this client begins.
    fn in_order(&self) -> impl Iterator<Item = usize> + use<> {
        (self.first..self.each.len()).chain(0..self.first)
    }

    fn params(&self, at: usize) -> &Arc<AcquireParams> {
        self.each.get(at).unwrap_or(&self.line) // which is not asked for: every index is of `each`
    }
}

/// One wait, in a task of the client (P22). Dropped at any time it leaves nothing behind.
struct Candidate {
    place: Place,
    shared: Arc<Shared>,
    several: Arc<Several>,
    deadline: Deadline,
    tracked: TrackedAttempt,
}

impl Candidate {
    fn join(shared: &Arc<Shared>, several: &Arc<Several>, deadline: Deadline) -> Result<Self, AcquireFailure> {
        let tracked = TrackedAttempt::begin(&shared.attempts).ok_or(AcquireFailure::ShutDown)?;
        let place = Place::join(shared, &several.line, true);
        let (shared, several) = (Arc::clone(shared), Arc::clone(several));
        Ok(Self { place, shared, several, deadline, tracked })
    }

    async fn run(mut self, result: oneshot::Sender<Won<Arc<WonLease>>>) {
        let gained = self.gain().await;
        drop(self.place); // the next of the queue continues
        let _ = result.send(gained); // if the caller is gone, the lease is let go here
        drop(self.tracked);
    }

    async fn gain(&mut self) -> Won<Arc<WonLease>> {
        self.deadline
            .in_time(Duration::ZERO, &self.shared, self.place.wait_for_turn(), &AcquireFailure::WAITED_FOR)
            .await?;
        let (mut waits, mut open) = (FuturesUnordered::new(), self.several.in_order().collect());
        // Those that other clients have, from the one that is waited for longest.
        let mut elsewhere: VecDeque<(usize, AbortHandle)> = VecDeque::new();
        loop {
            for at in self.choose(&mut open, elsewhere.len()).await {
                let is_elsewhere = !self.is_held(at);
                let (won, ends) = abortable(wait(&self.shared, self.several.params(at), self.deadline)?);
                waits.push(async move { (at, won.await) });
                elsewhere.extend(is_elsewhere.then_some((at, ends)));
            }
            let pause = sleep(RetryDelay::new(LOOK_INTERVAL / 2, LOOK_INTERVAL).next(random::spread()));
            let mut pause = std::pin::pin!(pause);
            loop {
                tokio::select! {
                    biased;
                    () = self.shared.attempts.closed() => return Err(AcquireFailure::ShutDown),
                    Some((at, outcome)) = waits.next() => {
                        if let Ok(outcome) = outcome {
                            return outcome.map(|won| (at, won));
                        } // else it was aborted
                    }
                    () = &mut pause, if !open.is_empty() => break,
                }
            }
            if elsewhere.len() >= AT_ONCE
                && let Some((at, ends)) = elsewhere.pop_front()
            {
                ends.abort();
                open.push(at);
            }
        }
    }

    fn is_held(&self, at: usize) -> bool {
        self.shared.slots.is_held(&self.several.params(at).resource, &*self.shared.clock)
    }

    /// Takes out of `open` what is waited for from now on: what this client has, one that is free, and some of the others, beside those
    /// that are waited for `elsewhere`. Not all that are free: it would win more than one.
    async fn choose(&self, open: &mut Vec<usize>, elsewhere: usize) -> Vec<usize> {
        let (mut chosen, mut others): (Vec<usize>, Vec<usize>) = open.drain(..).partition(|at| self.is_held(*at));
        let free = self.several.free_of(&self.shared, &others).await;
        chosen.extend(free.first());
        others.retain(|at| free.first() != Some(at));
        let mut more = AT_ONCE.saturating_sub(elsewhere + usize::from(!free.is_empty()));
        others.retain(|at| {
            let is_taken = more > 0 && !free.contains(at);
            more -= usize::from(is_taken);
            chosen.extend(Some(*at).filter(|_| is_taken));
            !is_taken
        });
        *open = others;
        chosen
    }
}
