//! A user that has a lock has it for as long as it wants, and who comes next need not wait.

use redquorum::{Redlock, Released};
use tokio::time::sleep;

use crate::world::World;

impl World {
    /// Each client in turn.
    pub(in crate::invariants) async fn check_kept(&self, clients: &[(usize, Redlock)]) {
        for (index, client) in clients {
            let Some(guard) = self.must_give("after a release", client.lock("kept").try_acquire().await) else {
                continue;
            };
            sleep(self.scenario.ttl * 3 / 2).await;
            if !guard.is_valid() {
                let what = format!("client {index}: {}", guard.lost().await);
                self.violate("a lease is renewed for as long as it is wanted", what);
            }
            match guard.release().await {
                Ok(Released { was_still_held: true, .. }) => {}
                other => self.violate("a release is confirmed when all is well", format!("client {index}: {other:?}")),
            }
        }
    }

    /// Keys that are left to run out do so, and not before.
    pub(super) async fn check_left_to_run_out(&self, one: &Redlock, other: &Redlock) {
        let Some(guard) = self.must_give("to be left", one.lock("left").try_acquire().await) else { return };
        let _ = guard.keep_for(std::time::Duration::ZERO).await;
        sleep(self.scenario.ttl / 4).await;
        self.must_refuse("left to run out", other.lock("left").try_acquire().await);
        sleep(self.scenario.ttl).await;
        drop(self.must_give("has run out", other.lock("left").try_acquire().await));
    }
}
