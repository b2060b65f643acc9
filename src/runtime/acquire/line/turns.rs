//! When a line gives those of other clients their turn (P24).

use std::time::Duration;

use crate::protocol::Instant;

/// For how long a line keeps a lock at most while nobody is known to wait elsewhere: those who only ask again and
/// again are not known.
const LONGEST_UNSHARED: Duration = Duration::from_secs(1);

/// How often a line has handed its lock over, and whether it is somebody else's turn.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// How often the lease was handed over since it was won.
    in_a_row: u32,
    /// Whether the others get their turn before this client asks again.
    pause_due: bool,
    /// The lock was given up for others who wait, and none of them was seen to have it since.
    is_given: bool,
    /// Since when it counts how long nobody elsewhere had a turn.
    unshared_since: Option<Instant>,
}

impl Turns {
    pub(super) const fn handed_over(&mut self) {
        self.in_a_row = self.in_a_row.saturating_add(1);
    }

    /// How often the lease was handed over since it was won.
    pub(super) const fn in_a_row(&self) -> u32 {
        self.in_a_row
    }

    /// A lease was won.
    pub(super) const fn won(&mut self) {
        (self.in_a_row, self.pause_due) = (0, false);
    }

    /// Somebody elsewhere has the lock.
    pub(super) const fn others_have_it(&mut self) {
        (self.is_given, self.unshared_since) = (false, None);
    }

    /// Whether the lock is to be given up for others after `most` hand-overs in a row. `others` tells how many are known
    /// to wait elsewhere, if that can be known.
    pub(super) fn is_over(&mut self, most: u32, others: impl FnOnce() -> Option<usize>, now: Instant) -> bool {
        if self.in_a_row < most {
            return false;
        }
        match others() {
            Some(0) if most > 0 => {
                let unshared = now.saturating_since(*self.unshared_since.get_or_insert(now));
                self.pause_due = unshared >= LONGEST_UNSHARED;
                return self.pause_due;
            }
            // The lock is kept for the first of them. Unless that was in vain the last time: then they ask like anybody.
            Some(1..) => self.pause_due = std::mem::replace(&mut self.is_given, true),
            _ => self.pause_due = true,
        }
        true
    }

    pub(super) const fn is_pause_due(&self) -> bool {
        self.pause_due
    }

    /// Whether to pause now.
    pub(super) fn take_pause(&mut self) -> bool {
        if self.pause_due {
            self.unshared_since = None;
        }
        std::mem::take(&mut self.pause_due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: Instant = Instant::from_millis(10_000);

    fn after(seconds: u64) -> Instant {
        BEGIN.saturating_add(Duration::from_secs(seconds))
    }

    /// Whether the turn of a line is over, and whether it pauses then.
    fn next(turns: &mut Turns, others: Option<usize>, now: Instant) -> (bool, bool) {
        let is_over = turns.is_over(2, || others, now);
        (is_over, turns.take_pause())
    }

    fn after_two() -> Turns {
        let mut turns = Turns::default();
        turns.handed_over();
        assert_eq!(next(&mut turns, Some(9), BEGIN), (false, false), "not yet");
        turns.handed_over();
        turns
    }

    #[test]
    fn those_who_are_known_to_wait_get_their_turn_and_nobody_pauses_for_them() {
        let mut turns = after_two();
        assert_eq!(next(&mut turns, Some(1), BEGIN), (true, false));
        turns.others_have_it();
        assert_eq!(next(&mut turns, Some(1), BEGIN), (true, false));
    }

    #[test]
    fn those_whom_no_message_reaches_get_a_pause_from_the_second_time_on() {
        let mut turns = after_two();
        assert_eq!(next(&mut turns, Some(1), BEGIN), (true, false));
        for _ in 0..3 {
            turns.won();
            turns.handed_over();
            turns.handed_over();
            assert_eq!(next(&mut turns, Some(1), BEGIN), (true, true));
        }
    }

    #[test]
    fn a_line_that_nobody_is_known_to_wait_for_pauses_once_a_second() {
        let mut turns = after_two();
        assert_eq!(next(&mut turns, Some(0), BEGIN), (false, false));
        assert_eq!(next(&mut turns, Some(0), after(1)), (true, true));
        assert_eq!(next(&mut turns, Some(0), after(1)), (false, false), "it counts anew");
        assert_eq!(next(&mut turns, Some(0), after(2)), (true, true));
    }

    #[test]
    fn where_nobody_can_be_known_to_wait_it_is_always_assumed() {
        let mut turns = after_two();
        assert_eq!(next(&mut turns, None, BEGIN), (true, true));
        assert!(Turns::default().is_over(0, || Some(0), BEGIN), "hand-overs are turned off");
    }
}
