//! Nobody's progress depends on a future that its caller does not poll.

use std::sync::Arc;
use std::time::Duration;

use redquorum::Redlock;
use tokio::time::sleep;

use super::bounds::Watch;
use crate::world::World;

impl World {
    /// While a future of the client is left unpolled, another user asks it for another lock.
    pub(crate) async fn check_unpolled(self: Arc<Self>, index: usize, client: Redlock, pause: Duration) {
        sleep(pause).await;
        self.machines[index].awake().await;
        let watch = Watch::begin(&self, index);
        let guard = client.lock("beside").try_acquire().await;
        watch.try_acquire();
        if let Ok(guard) = guard {
            let watch = Watch::begin(&self, index);
            let _ = guard.release().await;
            watch.round("a release ends in time");
        }
    }
}
