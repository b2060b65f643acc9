//! A lock that is given can be relied on for a while, and comes from a client that still gives any.

use std::time::Duration;

use redquorum::testing::simulation::value_of;

use crate::world::World;

/// Of each ttl so much is left at least when a lock is given (P2).
pub(super) const LEAST_PART: u32 = 5;

/// Longer than a user takes to say what was given before.
const AT_ONCE: Duration = Duration::from_millis(5);

impl World {
    pub(super) fn check_least_left(&self, number: usize) {
        let given =
            self.history().holds.get(number).and_then(|hold| Some((hold.client, hold.life, hold.lease.clone()?)));
        let Some((client, life, lease)) = given else { return };
        let least = self.scenario.ttl / LEAST_PART;
        // A user that was suspended in between hears of it late.
        let is_disturbed = self.machines[client].was_disturbed_since(self.at().saturating_sub(AT_ONCE));
        let left = lease.remaining();
        // One that is handed over may be lost in the instant in which its user is given it.
        let is_lost = || left.is_zero() && self.may_be_found_lost(&value_of(&lease));
        // The users of a process that is gone go on in the simulation alone.
        let is_gone = || left.is_zero() && self.history().crashed.contains(&(client, life));
        if left < least && !is_disturbed && !is_lost() && !is_gone() {
            let what = format!("lock {number} of client {client}: {left:?} of at least {least:?}");
            self.violate("a lock is given with enough of it left", what);
        }
    }

    /// A client's shutdown has ended.
    pub(crate) async fn note_shut_down(&self, client: (usize, u64)) {
        tokio::time::sleep(AT_ONCE).await;
        self.history().shut_down.push(client);
    }

    pub(super) fn check_not_shut_down(&self, number: usize) {
        let at = self.at();
        let mut history = self.history();
        let Some((client, life)) = history.holds.get(number).map(|hold| (hold.client, hold.life)) else { return };
        if history.shut_down.contains(&(client, life)) {
            history.violate(at, "no lock is given after a shutdown", format!("lock {number} of client {client}"));
        }
    }
}
