//! No key outlives its ttl: each has an expiry, at most the longest ttl away, and when everybody
//! has let go for that long no key is left. And none dies before its time: a lease may rely on it.

use crate::instance::{RESOURCES, Request, keys};
use crate::world::World;

/// For each resource the end of the key that holds the request's own value.
pub(crate) type Ends = [Option<u64>; RESOURCES];

impl World {
    pub(crate) fn own_ends(&self, i: usize, request: &Request) -> Ends {
        let own = |key: &Option<crate::instance::Lock>| {
            key.as_ref().filter(|lock| lock.value == request.value).map(|lock| lock.until_ms)
        };
        self.servers[i].store.locks.each_ref().map(own)
    }

    /// Only a release takes time from a key: what is repeated or late does not.
    pub(crate) fn check_nothing_shortened(&mut self, i: usize, request: &Request, before: Ends) {
        if request.script.is_release() || self.is(crate::mutants::Mutant::ExtendShortens) {
            return;
        }
        let after = self.own_ends(i, request);
        let shortened = (0..RESOURCES).find(|key| after[*key].is_some() && after[*key] < before[*key]);
        if let Some(key) = shortened {
            self.violate("nothing late shortens a key", format!("resource {key} on instance {i}"));
        }
    }

    pub(super) fn check_key_life(&mut self, i: usize, request: &Request) {
        if request.script.is_release() {
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
