//! A key that is kept for a client gives way to that client only, until its grace is over (P26).

use std::rc::Rc;

use redquorum::protocol::{ClientId, Value};

use crate::instance::{Request, keys};
use crate::world::World;

impl World {
    /// The reservations under the keys of a request.
    pub(crate) fn reservations(&self, i: usize, request: &Request) -> Vec<(usize, Rc<Value>)> {
        let (now_ms, store) = (self.server_ms(i), &self.servers[i].store);
        let kept = |key: usize| store.lock(now_ms, key).map(|lock| (key, lock.value.clone()));
        let is_reservation = |value: &Value| ClientId::of_reservation(value.as_bytes()).is_some();
        keys(request.keys).filter_map(kept).filter(|(_, value)| is_reservation(value)).collect()
    }

    pub(crate) fn check_reservations(&mut self, i: usize, request: &Request, before: &[(usize, Rc<Value>)]) {
        let now_ms = self.server_ms(i);
        for (key, reservation) in before {
            let is_there = self.servers[i].store.lock(now_ms, *key).is_some_and(|lock| lock.value == *reservation);
            let is_own = ClientId::of_value(request.value.as_bytes()) == ClientId::of_value(reservation.as_bytes());
            if !is_there && !is_own {
                let what = format!("{:?} of somebody else on instance {i}, resource {key}", request.script);
                self.violate("a reservation is kept for its client", what);
            }
            self.stats.taken_up += u64::from(!is_there && is_own && !request.script.is_release());
        }
    }
}
