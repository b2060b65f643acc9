//! P20: a wait for a loss ends with the loss, at once.

use std::sync::Arc;
use std::time::Duration;

use crate::time::now;
use crate::world::World;

/// What a few tasks may take.
const AT_ONCE: Duration = Duration::from_millis(10);

/// A user waits for the loss of a lock, and polls as often as it is woken.
pub(crate) struct Listening(Arc<World>, usize);

impl Listening {
    pub(crate) fn begin(world: &Arc<World>, number: usize) -> Self {
        world.history().holds[number].is_listened_to = true;
        Self(Arc::clone(world), number)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.history().holds[self.1].is_listened_to = false;
    }
}

impl World {
    pub(super) fn check_told_of_losses(&self) {
        let mut history = self.history();
        let mut late = None;
        for (number, hold) in history.holds.iter_mut().enumerate() {
            if !hold.is_listened_to || hold.lease.is_none() || hold.is_valid() {
                continue;
            }
            let over_at = *hold.over_at.get_or_insert(now());
            if over_at + AT_ONCE <= now()
                && !self.machines[hold.client].was_disturbed_since(over_at.saturating_sub(AT_ONCE))
            {
                late = late.or(Some((number, over_at)));
            }
        }
        if let Some((number, over_at)) = late {
            history.violate(now(), "a loss is reported at once", format!("lock {number} is over since {over_at:?}"));
        }
    }
}
