//! A client whose runtime has ended gives nothing, and lets nobody wait.

use std::sync::Arc;
use std::time::Duration;

use redquorum::Redlock;
use tokio::time::timeout;

use crate::deeds::Deed;
use crate::world::World;

/// What nobody has to wait for.
const AT_ONCE: Duration = Duration::from_millis(50);

impl World {
    /// Asks it from another runtime.
    pub(crate) async fn check_ended(self: Arc<Self>, client: Redlock) {
        self.history().stats.did(Deed::AskEnded);
        match timeout(AT_ONCE, client.lock("a").try_acquire()).await {
            Ok(Err(_)) => {}
            Ok(Ok(guard)) => self.violate("a client whose runtime has ended gives nothing", format!("{guard:?}")),
            Err(_) => self.violate("a client whose runtime has ended lets nobody wait", "a try".to_owned()),
        }
        if timeout(AT_ONCE, client.lock("a").acquire()).await.is_err() {
            self.violate("a client whose runtime has ended lets nobody wait", "an acquire".to_owned());
        }
        if !matches!(timeout(AT_ONCE, client.wait_connected(AT_ONCE * 2)).await, Ok(Err(_))) {
            self.violate("a client whose runtime has ended is not connected", format!("{:?}", client.instances()));
        }
        if timeout(AT_ONCE * 3, client.shutdown(AT_ONCE)).await.is_err() {
            self.violate("a shutdown ends in time", "after the runtime has ended".to_owned());
        }
    }
}
