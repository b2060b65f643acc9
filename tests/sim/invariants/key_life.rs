//! No key outlives its ttl: each has an expiry, at most the longest ttl away, and when everybody
//! has let go for that long no key is left.

use crate::instance::{Request, Script, keys};
use crate::world::World;

impl World {
    pub(super) fn check_key_life(&mut self, i: usize, request: &Request) {
        if request.script == Script::Release {
            return;
        }
        self.history.longest_ttl_ms = self.history.longest_ttl_ms.max(request.ttl_ms);
        let now_ms = self.server_ms(i);
        for key in keys(request.keys) {
            let left = self.servers[i].store.lock(now_ms, key).map_or(0, |lock| lock.until_ms - now_ms);
            let promised = self.scenario.kind != crate::scenario::Kind::Steps;
            if promised && left > self.history.longest_ttl_ms {
                self.violate("no key outlives its ttl", format!("resource {key} on instance {i}: {left} ms left"));
            }
        }
    }

    /// Long after everybody has let go.
    pub(crate) fn check_nothing_left(&mut self) {
        for i in 0..self.servers.len() {
            let now_ms = self.server_ms(i);
            let left = (0..crate::instance::RESOURCES).any(|key| self.servers[i].store.lock(now_ms, key).is_some());
            if left && self.scenario.kind != crate::scenario::Kind::Steps {
                self.violate("no key outlives its ttl", format!("instance {i} still holds a key"));
            }
        }
    }
}
