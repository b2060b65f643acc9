//! When a command must end so that it does not outlive the validity of its lock.

use std::time::Duration;

use crate::exit::{Code, Failure};
use crate::settings::duration;

/// Below this too little is left of a ttl for a command to end in.
const SHORTEST_TTL: Duration = Duration::from_secs(1);

/// As long as a key may live.
const LONGEST_KEEP: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// Refuses a mark that could not be left, before the command runs and not after it.
pub(super) fn check_keep(time: Duration) -> Result<(), Failure> {
    if time <= LONGEST_KEEP {
        return Ok(());
    }
    Err(Failure::new(Code::Usage, format!("a lock is kept for {} at most", duration::shown(LONGEST_KEEP))))
}

/// How much validity is left when a command gets SIGTERM, and when it is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// SIGTERM at so much.
    pub(super) terminate: Duration,
    /// SIGKILL at so much. What comes late in the kernel, on a machine that is busy, has this much time.
    pub(super) kill: Duration,
    /// How often validity is looked at.
    pub(super) interval: Duration,
}

impl Limits {
    /// A lease is renewed from a third of its ttl on, every tenth: that leaves three tries before SIGTERM.
    pub(super) fn new(ttl: Duration) -> Result<Self, Failure> {
        if ttl < SHORTEST_TTL {
            let message = format!(
                "a ttl of {} ms leaves a command no time to end; use at least {SHORTEST_TTL:?}",
                ttl.as_millis()
            );
            return Err(Failure::new(Code::Usage, message));
        }
        Ok(Self {
            terminate: ttl.saturating_mul(3) / 10,
            kill: ttl / 10,
            interval: (ttl / 50).min(Duration::from_millis(100)),
        })
    }

    /// From SIGTERM to SIGKILL.
    pub(super) fn grace(self) -> Duration {
        self.terminate.saturating_sub(self.kill)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_asked_to_end_before_it_is_killed_and_killed_before_validity_ends() {
        assert!(Limits::new(Duration::from_millis(999)).is_err());
        for seconds in [1, 10, 3600] {
            let limits = Limits::new(Duration::from_secs(seconds)).unwrap();
            assert!(limits.terminate > limits.kill && limits.kill > limits.interval);
            assert_eq!(limits.grace(), Duration::from_secs(seconds) / 5);
        }
    }
}
