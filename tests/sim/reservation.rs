//! A key that is given up and kept for the client that waited longest, as `pass_on.lua` and `reservation.lua`
//! say it (P26).

use std::rc::Rc;

use redquorum::protocol::{ClientId, Message, Value};

use crate::instance::{Answer, Lock, Request, Script, Store, keys};
use crate::mutants::Mutant;

/// Who gets a key that is given up: the first that hears the message.
#[derive(Clone, Debug)]
pub(crate) struct Successors {
    pub(crate) clients: Vec<ClientId>,
    pub(crate) message: Message,
    pub(crate) grace_ms: u64,
}

impl Store {
    /// Whether to the client of this request the key is free.
    pub(crate) fn is_kept_for(&self, request: &Request, lock: &Lock) -> bool {
        let kept_for = ClientId::of_reservation(lock.value.as_bytes());
        let is_own = kept_for == ClientId::of_value(request.value.as_bytes()) || self.is(Mutant::ReservationForAll);
        request.script == Script::Acquire && kept_for.is_some() && is_own
    }

    /// As a release that keeps the key for `heard_by`.
    pub(crate) fn pass_on(&mut self, now_us: u64, request: &Request, heard_by: Option<ClientId>) -> Answer {
        let now_ms = now_us / 1000;
        self.drop_expired(now_ms, request.keys);
        let grace_ms = request.successors.as_ref().map_or(0, |successors| successors.grace_ms);
        let mut deleted = 0;
        for key in keys(request.keys) {
            let own = self.holds(now_ms, key, request) || self.is(Mutant::PassOnUncompared);
            if own {
                let until_ms = if self.is(Mutant::ReservationStays) { u64::MAX } else { now_ms + grace_ms };
                let reservation =
                    |client: ClientId| Lock { value: Rc::new(Value::from_wire(&client.reservation())), until_ms };
                self.locks[key] = heard_by.map(reservation);
            }
            deleted += usize::from(own);
            if request.script == Script::PassOn && (request.resent || !own) {
                self.mark(now_ms, key, request); // P6
            }
        }
        Answer::Released { deleted }
    }
}
