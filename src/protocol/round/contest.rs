//! When an attempt without a winner is repeated (P31).

use std::time::Duration;

use crate::protocol::retry::RetryDelay;
use crate::protocol::round::Round;
use crate::protocol::time::Instant;

/// How often an attempt is repeated. Two that began together are apart after one or two, hundreds after five or six.
const MOST_REPEATS: u32 = 8;

/// The least that pauses are spread over: timers count whole milliseconds, and attempts that wake together collide again.
const LEAST_SPREAD: Duration = Duration::from_millis(1);

/// An attempt of several clients at the same moment, as one of them sees it: each has some votes and none a quorum, so all release
/// them, and try again after pauses that bring them apart.
#[derive(Clone, Debug, Default)]
pub struct Contest {
    repeats: u32,
    /// How long the longest round took until its votes were released.
    longest_round: Duration,
}

impl Contest {
    /// How long to wait before the next round under a new value, after `round` was lost and released, at `now`. `None` if it
    /// was the last.
    ///
    /// Twice what the longest round so far took: within that a rival that has lost releases its votes, also one that
    /// has waited for silent instances. To that comes a random part that doubles each time, up to `longest`; `random` is drawn evenly
    /// from all of `u32`. A rival that refuses for the second time is waited for until it shows whether it stays.
    #[must_use]
    pub fn pause(&mut self, round: &Round, now: Instant, longest: Duration, random: u32) -> Option<Duration> {
        if self.repeats >= MOST_REPEATS {
            return None;
        }
        let took = now.saturating_since(round.started_at());
        self.longest_round = self.longest_round.max(took);
        let least = self.longest_round.saturating_mul(2);
        let spread = least.max(LEAST_SPREAD).saturating_mul(1 << self.repeats).min(longest.max(LEAST_SPREAD));
        self.repeats += 1;
        let pause = least.saturating_add(RetryDelay::new(Duration::ZERO, spread).next(random));
        Some(round.shows_in(now).map_or(pause, |shows_in| pause.max(shows_in)))
    }
}
