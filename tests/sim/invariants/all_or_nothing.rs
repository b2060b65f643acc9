//! On each instance a round holds all of its resources or none (P11).

use crate::instance::{Request, keys};
use crate::world::World;

impl World {
    pub(super) fn check_all_or_nothing(&mut self, i: usize, request: &Request) {
        let now_ms = self.server_ms(i);
        let store = &self.servers[i].store;
        let own = |key: &usize| store.lock(now_ms, *key).is_some_and(|lock| lock.value == request.value);
        let held = keys(request.keys).filter(own).count();
        // Its own holder may have taken one of them over.
        if !request.value.holder_prefix().is_empty() {
            return;
        }
        // Of two keys that were over, one may have been deleted before the clock was set back.
        if self.servers[i].was_set_back {
            return;
        }
        if held != 0 && held != keys(request.keys).count() {
            self.violate("all or nothing", format!("instance {i} holds {held} of {:03b}", request.keys));
        }
    }
}
