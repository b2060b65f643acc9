//! No key is left after its bound.

use crate::world::World;

impl World {
    /// At the end, when all that was held was let go long ago.
    pub(crate) fn check_no_keys(&self) {
        for (index, server) in self.servers.iter().enumerate() {
            for (key, _) in server.locks() {
                let what = format!("{:?} at server {index}", String::from_utf8_lossy(&key));
                self.violate("no key is left", what);
            }
        }
    }
}
