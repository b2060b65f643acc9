//! How seldom an instance is connected to that says what no answer is.

use std::time::Duration;

use super::conn::Conn;
use super::resp::Broken;
use crate::protocol::reconnect_delay;
use crate::random;

/// How seldom an instance is connected to that says what no answer is.
#[derive(Debug, Default)]
pub(super) struct Excess {
    /// The present connection.
    watched: Option<Conn>,
    times: u32,
    /// Whether the last connection broke for it.
    is_recent: bool,
}

/// The first pause behind a connection that broke for that reason, and the longest.
const EXCESS_LEAST: Duration = Duration::from_millis(50);
const EXCESS_MOST: Duration = Duration::from_secs(120);

/// An instance that was connected for so long without it has behaved: the pause begins anew.
const BEHAVED: Duration = Duration::from_secs(60);

impl Excess {
    /// There is another connection.
    pub(super) fn watch(&mut self, conn: &Conn) {
        self.watched = Some(conn.clone());
    }

    /// Counts it if the present connection has broken for that reason.
    pub(super) fn take(&mut self) -> Option<Broken> {
        let broken = self.watched.take().and_then(|conn| conn.broken_by().cloned());
        self.note(broken.as_ref().is_some_and(|broken| !broken.is_another_protocol()));
        broken
    }

    fn note(&mut self, is_excess: bool) {
        self.is_recent = is_excess;
        self.times = self.times.saturating_add(u32::from(is_excess));
    }

    /// The pause before the next connection, behind one that lasted so long: it doubles each time until the instance has
    /// behaved for a while, however its connections end meanwhile.
    pub(super) fn pause(&mut self, lasted: Duration) -> Duration {
        if lasted >= BEHAVED {
            self.times = u32::from(self.is_recent);
        }
        match self.times.checked_sub(1) {
            Some(before) => reconnect_delay(before, EXCESS_LEAST, EXCESS_MOST, random::spread()),
            None => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One more connection that breaks so, or otherwise, after so long.
    fn next(excess: &mut Excess, is_excess: bool, lasted: Duration) -> Duration {
        excess.note(is_excess);
        excess.pause(lasted)
    }

    #[test]
    fn the_pause_doubles_until_the_instance_has_behaved_for_a_while() {
        let mut excess = Excess::default();
        assert_eq!(next(&mut excess, false, Duration::ZERO), Duration::ZERO);
        let within = |pause: Duration, full: Duration| full / 2 <= pause && pause <= full;
        for times in 0..20 {
            let full = (EXCESS_LEAST * (1 << times)).min(EXCESS_MOST);
            assert!(within(next(&mut excess, true, Duration::from_secs(5)), full), "{times}");
            assert!(within(next(&mut excess, false, Duration::from_secs(5)), full), "it is not forgotten");
        }
        assert!(within(next(&mut excess, true, BEHAVED), EXCESS_LEAST), "it had behaved, and does it again");
        assert!(within(next(&mut excess, true, Duration::ZERO), EXCESS_LEAST * 2));
        assert_eq!(next(&mut excess, false, BEHAVED), Duration::ZERO);
    }
}
