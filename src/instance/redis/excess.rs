//! How seldom an instance is connected to that says too much.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::reply_limit::TooMuch;
use crate::protocol::reconnect_delay;
use crate::random;

/// The first pause behind a connection that broke for that reason, and the longest.
const LEAST: Duration = Duration::from_millis(50);
const MOST: Duration = Duration::from_secs(120);

/// An instance that was connected for so long without it has behaved: the pause begins anew.
const BEHAVED: Duration = Duration::from_secs(60);

/// How often it happened.
#[derive(Debug, Default)]
pub(super) struct Excess {
    /// Of the present connection.
    watched: Option<Arc<OnceLock<TooMuch>>>,
    times: u32,
    /// Whether the last connection broke for it.
    is_recent: bool,
}

impl Excess {
    /// There is another connection, which says so here.
    pub(super) fn watch(&mut self, too_much: &Arc<OnceLock<TooMuch>>) {
        self.watched = Some(Arc::clone(too_much));
    }

    /// Counts it if the present connection has broken for that reason.
    pub(super) fn take(&mut self) -> Option<TooMuch> {
        let too_much = self.watched.take().and_then(|watched| watched.get().copied());
        self.is_recent = too_much.is_some();
        self.times = self.times.saturating_add(u32::from(self.is_recent));
        too_much
    }

    /// What was counted last was not its fault.
    pub(super) fn forgive_last(&mut self) {
        self.times = self.times.saturating_sub(1);
        self.is_recent = false;
    }

    /// The pause before the next connection, behind one that lasted so long: it doubles each time until the instance has
    /// behaved for a while, however its connections end meanwhile.
    pub(super) fn pause(&mut self, lasted: Duration) -> Duration {
        if lasted >= BEHAVED {
            self.times = u32::from(self.is_recent);
        }
        match self.times.checked_sub(1) {
            Some(before) => reconnect_delay(before, LEAST, MOST, random::spread()),
            None => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One more connection that breaks so, or otherwise, after so long.
    fn next(excess: &mut Excess, is_excess: bool, lasted: Duration) -> Duration {
        let too_much = Arc::<OnceLock<TooMuch>>::default();
        excess.watch(&too_much);
        if is_excess {
            too_much.get_or_init(|| TooMuch::Depth);
        }
        assert_eq!(excess.take().is_some(), is_excess);
        excess.pause(lasted)
    }

    #[test]
    fn the_pause_doubles_until_the_instance_has_behaved_for_a_while() {
        let mut excess = Excess::default();
        assert_eq!(next(&mut excess, false, Duration::ZERO), Duration::ZERO);
        let within = |pause: Duration, full: Duration| full / 2 <= pause && pause <= full;
        for times in 0..20 {
            let full = (LEAST * (1 << times)).min(MOST);
            assert!(within(next(&mut excess, true, Duration::from_secs(5)), full), "{times}");
            assert!(within(next(&mut excess, false, Duration::from_secs(5)), full), "it is not forgotten");
        }
        assert!(within(next(&mut excess, true, BEHAVED), LEAST), "it had behaved, and does it again");
        assert!(within(next(&mut excess, true, Duration::ZERO), LEAST * 2));
        assert_eq!(next(&mut excess, false, BEHAVED), Duration::ZERO);
    }
}
