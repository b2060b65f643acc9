//! Whose turn a lock is: that of the next caller of this client, or that of another client (P24).

use std::time::Duration;

use crate::protocol::Instant;

/// So often in a row a lock is handed over while others are known to wait for it, or cannot be known.
const MOST_IN_A_ROW: u32 = 16;

/// For how long a lock is handed over at most: clients that only poll are not known.
const LONGEST_ROW: Duration = Duration::from_secs(1);

/// How often a lock was handed over, and whether it is the turn of another client.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// How often the lease was handed over since it was won, and since when.
    in_a_row: u32,
    since: Option<Instant>,
    /// Whether other clients get their turn before this one tries again.
    pause_due: bool,
}

impl Turns {
    /// How often it was handed over by now.
    pub(super) const fn handed_over(&mut self) -> u32 {
        self.in_a_row = self.in_a_row.saturating_add(1);
        self.in_a_row
    }

    /// A lease was won.
    pub(super) fn won(&mut self) {
        *self = Self::default();
    }

    /// Whether the lock is to be given up for other clients, after so many hand-offs in a row, or a second of them. `others` returns
    /// how many are known to wait elsewhere, if that can be known.
    pub(super) fn is_over(&mut self, others: impl FnOnce() -> Option<usize>, now: Instant) -> bool {
        let is_long = now.saturating_since(*self.since.get_or_insert(now)) >= LONGEST_ROW;
        if self.in_a_row < MOST_IN_A_ROW && !is_long {
            return false;
        }
        match others() {
            Some(0) if !is_long => return false,
            Some(1..) => {} // the first of them is woken, and this client backs off for it (P26)
            _ => self.pause_due = true,
        }
        true
    }

    /// Whether to pause now.
    pub(super) fn take_pause(&mut self) -> bool {
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

    /// Whether the turn of a client is over, and whether it pauses then.
    fn next(turns: &mut Turns, others: Option<usize>, now: Instant) -> (bool, bool) {
        let is_over = turns.is_over(|| others, now);
        (is_over, turns.take_pause())
    }

    fn after_as_many_as_are_allowed() -> Turns {
        let mut turns = Turns::default();
        for _ in 0..MOST_IN_A_ROW {
            assert_eq!(next(&mut turns, Some(9), BEGIN), (false, false), "not yet");
            turns.handed_over();
        }
        turns
    }

    #[test]
    fn those_who_are_known_to_wait_get_their_turn() {
        let mut turns = after_as_many_as_are_allowed();
        assert_eq!(next(&mut turns, Some(1), BEGIN), (true, false));
        turns.won();
        assert_eq!(next(&mut turns, Some(1), BEGIN), (false, false));
        assert_eq!(next(&mut turns, Some(1), after(1)), (true, false), "however few had it");
    }

    #[test]
    fn a_lock_that_nobody_elsewhere_is_known_to_wait_for_is_let_go_once_a_second() {
        let mut turns = after_as_many_as_are_allowed();
        assert_eq!(next(&mut turns, Some(0), BEGIN), (false, false));
        assert_eq!(next(&mut turns, Some(0), after(1)), (true, true));
        turns.won();
        assert_eq!(next(&mut turns, Some(0), after(1)), (false, false), "it counts anew");
        assert_eq!(next(&mut turns, Some(0), after(2)), (true, true));
    }

    #[test]
    fn where_nobody_can_be_known_to_wait_it_is_always_assumed() {
        let mut turns = after_as_many_as_are_allowed();
        assert_eq!(next(&mut turns, None, BEGIN), (true, true));
    }
}
