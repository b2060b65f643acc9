//! P19, P22: nothing is renewed for a user that never had it, is gone, or wanted it for a shorter time.

use std::sync::Arc;
use std::time::Duration;

use redquorum::testing::simulation::{Step, StepKind};

use crate::demand::NAMES;
use crate::judge::Judge;
use crate::movers::Moved;
use crate::world::World;

/// What a task may take to hear of it.
const AT_ONCE: Duration = Duration::from_millis(30);

/// A user that acquires several names together, and has some of them meanwhile.
pub(crate) struct Together(Arc<World>, usize);

/// The same, as the judge knows it.
#[derive(Debug)]
pub(crate) struct AcquiredTogether {
    client: (usize, u64),
    resources: u8,
    begun: Duration,
    ended: Option<Duration>,
}

impl Together {
    pub(crate) fn begin(world: &Arc<World>, client: (usize, u64), resources: u8) -> Self {
        let (begun, mut judge) = (world.at(), world.judge());
        judge.together.push(AcquiredTogether { client, resources, begun, ended: None });
        Self(Arc::clone(world), judge.together.len() - 1)
    }
}

impl Drop for Together {
    fn drop(&mut self) {
        let at = self.0.at();
        self.0.judge().together[self.1].ended = Some(at);
    }
}

impl Judge {
    /// Whether this client acquires the name together with others, or did so until shortly before.
    pub(super) fn is_acquired_together(
        &self,
        client: (usize, u64),
        key: &[u8],
        (at, at_once): (Duration, Duration),
    ) -> bool {
        let bit = NAMES.iter().position(|name| name.as_bytes() == key).map_or(0, |bit| 1 << bit);
        let is_by = |it: &AcquiredTogether| {
            it.client == client
                && it.resources & bit != 0
                && at >= it.begun
                && it.ended.is_none_or(|end| at <= end + at_once)
        };
        self.together.iter().any(is_by)
    }

    pub(crate) fn is_for_nobody(&self, step: &Step, timeout: Duration) -> Option<(&'static str, String)> {
        // A holder's lease has several guards, and what users do has three keys: all else is of a scene.
        let renews = matches!(step.kind, StepKind::Extend | StepKind::Keep | StepKind::ReaderStays);
        if !renews || step.value.first() != Some(&b':') {
            return None;
        }
        if !matches!(&*step.key, b"a" | b"b" | b"space:c") {
            return None;
        }
        // It may have been on its way to be sent before, to wait there for a connection.
        let at_once = AT_ONCE + timeout;
        let (rounds, connected) = (self.rounds.get(&step.value)?, self.connections.get(step.connection as usize)?);
        let sent = connected.sent(step.begins)?;
        let what = || {
            let value = String::from_utf8_lossy(&step.value);
            format!("{:?} of {value} at {:?}: {}", step.kind, sent.at, self.told(&step.value))
        };
        if self.is_acquired_together(connected.client, &step.key, (sent.at, at_once)) {
            return None; // by a user that has some of several names, and waits for the others
        }
        if rounds.given == 0 {
            return Some(("nothing is renewed for nobody", what()));
        }
        let has_left = |moved: &Moved| moved.by == connected.client && sent.at > moved.at + at_once;
        if rounds.moved.as_ref().is_some_and(has_left) {
            return Some(("nothing is renewed for who has detached it", what()));
        }
        if rounds.let_go.is_some_and(|let_go| sent.at > let_go + at_once) {
            return Some(("nothing is renewed for who is gone", what()));
        }
        let is_over = |end: Duration| sent.reading > end + at_once;
        if rounds.not_after.is_some_and(is_over) {
            return Some(("nothing is renewed past its time", what()));
        }
        None
    }
}
