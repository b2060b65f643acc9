//! A holder comes back: in its client it has one lease, and elsewhere it is refused like anybody.

use std::time::Duration;

use redquorum::{Guard, Redlock};
use tokio::time::sleep;

use super::{MOMENTS, asks};
use crate::world::World;

/// Longer than anything is on its way.
const SETTLED: Duration = Duration::from_millis(20);

impl World {
    pub(in crate::invariants) async fn check_holder(&self, one: &Redlock, other: &Redlock) {
        let ask = |client: &Redlock| asks(client, "mine", Some("calm"));
        let Some(first) = self.must_give("of a holder", ask(one).await) else { return };
        let Some(second) = self.must_give("entered again", ask(one).await) else { return };
        if !first.is_valid() || first.fencing_token() != second.fencing_token() {
            self.violate("a holder has one lease in a client", format!("{first:?}, {second:?}"));
        }
        drop(first);
        sleep(SETTLED).await;
        if !second.is_valid() {
            self.violate("only its own user lets a lock go", format!("{second:?}"));
        }
        for moment in MOMENTS {
            let elsewhere = moment.carry_out(ask(other)).await;
            if second.is_valid() && elsewhere.is_some_and(|elsewhere| elsewhere.is_ok()) {
                self.violate("exclusion", format!("beside {second:?}: its holder elsewhere"));
            }
            sleep(SETTLED).await;
        }
        self.check_left_as_it_is(&second);
        let _ = second.release().await;
    }

    /// After tries of its holder elsewhere.
    pub(in crate::invariants) fn check_left_as_it_is(&self, guard: &Guard) {
        if !guard.is_valid() {
            self.violate("a refused try of its holder elsewhere leaves a lock as it is", format!("{guard:?}"));
        }
    }
}
