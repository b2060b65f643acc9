//! The lines of a client, by what they wait for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::places::Joined;
use super::state::Line;
use crate::clock::Clock;
use crate::protocol::Value;
use crate::resource::Resources;
use crate::runtime::acquire::failure::AcquireFailure;
use crate::runtime::acquire::params::AcquireParams;
use crate::runtime::held_lease::HeldLease;

/// The locks that somebody of this client holds or waits for.
#[derive(Debug)]
pub(crate) struct Lines {
    /// The most hand-overs in a row (P24).
    local_hand_overs: u32,
    /// A line is in it for as long as it has anything to know.
    lines: Mutex<HashMap<Resources, Arc<Line>>>,
}

/// Tells a line, once dropped, that a lease was let go: its release is queued by then, so that what is asked next
/// stands behind it.
#[derive(Debug)]
pub(crate) struct LeftLine {
    lines: Arc<Lines>,
    line: Option<Arc<Line>>,
    held: Arc<HeldLease>,
}

impl Lines {
    pub(crate) fn new(local_hand_overs: u32) -> Self {
        Self { local_hand_overs, lines: Mutex::default() }
    }

    /// A place at the end of the line for what is asked for.
    pub(crate) fn join(&self, params: &Arc<AcquireParams>) -> (Arc<Line>, Joined) {
        loop {
            let line = self.line(&params.resources);
            // A line that was removed since is not used any more.
            if let Some(joined) = line.join(params) {
                return (line, joined);
            }
        }
    }

    /// From now on somebody of this client has this lease.
    pub(crate) fn put_held(&self, held: &Arc<HeldLease>) {
        let claim = held.claim();
        while !self.line(&claim.resources).put_held(held) {}
    }

    /// One more guard, which no caller has collected yet, of the lease that the same holder has for the same resources;
    /// `None` if it has none.
    pub(crate) fn share(&self, params: &AcquireParams) -> Option<Arc<HeldLease>> {
        if params.holder.is_empty() {
            return None;
        }
        self.find(&params.resources)?.share(&params.holder)
    }

    /// One more guard, which no caller has collected yet, of the lease with this value; `None` if nobody of this client has
    /// it.
    pub(crate) fn share_value(&self, resources: &Resources, value: &Value) -> Option<Arc<HeldLease>> {
        self.find(resources)?.share_value(value)
    }

    /// Why a single try is not sent: somebody of this client has the lock or waits for it.
    pub(crate) fn refusal(
        &self,
        resources: &Resources,
        patience: Duration,
        clock: &dyn Clock,
    ) -> Option<AcquireFailure> {
        self.find(resources)?.refusal(patience, clock)
    }

    /// How many of this client wait for the lock.
    pub(crate) fn waiting(&self, resources: &Resources) -> usize {
        self.find(resources).map_or(0, |line| line.waiting())
    }

    /// How many of this client wait, whatever for.
    pub(crate) fn all_waiting(&self) -> usize {
        let lines: Vec<Arc<Line>> = self.lock().values().cloned().collect();
        lines.iter().map(|line| line.waiting()).sum()
    }

    /// Passes a lease on to whoever of this client waits for it; `false` if it is to be released. `others` tells how
    /// many are known to wait elsewhere, if that can be known.
    pub(crate) fn hand_over(&self, left: &LeftLine, others: impl FnOnce() -> Option<usize>, clock: &dyn Clock) -> bool {
        left.line.as_ref().is_some_and(|line| line.hand_over(&left.held, (self.local_hand_overs, others), clock))
    }

    /// For a lease that is about to be let go.
    pub(crate) fn leave(self: &Arc<Self>, held: &Arc<HeldLease>) -> LeftLine {
        let line = self.find(&held.claim().resources);
        LeftLine { lines: Arc::clone(self), line, held: Arc::clone(held) }
    }

    /// Removes a line that has nothing to know.
    pub(crate) fn remove_if_idle(&self, line: &Line) {
        let mut lines = self.lock();
        let removed = if line.retire() { lines.remove(line.resources()) } else { None };
        drop(lines);
        drop(removed);
    }

    /// How many there are.
    #[cfg(feature = "testing")]
    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    fn line(&self, resources: &Resources) -> Arc<Line> {
        let mut lines = self.lock();
        if let Some(line) = lines.get(resources) {
            return Arc::clone(line);
        }
        let line = Arc::new(Line::new(resources.clone()));
        lines.insert(resources.clone(), Arc::clone(&line));
        line
    }

    fn find(&self, resources: &Resources) -> Option<Arc<Line>> {
        self.lock().get(resources).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Resources, Arc<Line>>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LeftLine {
    /// The lease is not let go after all.
    pub(crate) fn stay(mut self) {
        self.line = None;
    }
}

impl Drop for LeftLine {
    fn drop(&mut self) {
        if let Some(line) = &self.line
            && line.let_go(&self.held)
        {
            self.lines.remove_if_idle(line);
        }
    }
}
