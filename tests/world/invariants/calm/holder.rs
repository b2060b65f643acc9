//! A holder comes back: in its client it has one lease, and a try from elsewhere that it gives up harms nobody.

use std::time::Duration;

use redquorum::Redlock;
use tokio::time::sleep;

use super::{MOMENTS, asks};
use crate::world::World;

/// Longer than anything is on its way.
const SETTLED: Duration = Duration::from_millis(20);

impl World {
    pub(super) async fn check_holder(&self, one: &Redlock, other: &Redlock) {
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
            let given_up = moment.carry_out(ask(other)).await;
            if given_up.is_some() {
                break; // the holder goes on there, and has let the lock go
            }
            sleep(SETTLED).await;
            let stranger = other.lock("mine").try_acquire().await;
            if stranger.is_ok() && second.is_valid() {
                self.violate("exclusion", format!("beside {second:?}: {stranger:?}"));
            }
        }
        let _ = second.release().await;
    }
}
