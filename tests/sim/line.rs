//! What the same holder has under a key of an instance: a line of values, each behind the one that
//! took it over, as `former_values.lua` and `take_over.lua` say it (P23).

use std::rc::Rc;

use redquorum::protocol::Value;

use crate::instance::{Lock, Request, Script, Store, keys};
use crate::mutants::Mutant;

/// As in `former_values.lua`.
const LONGEST_LINE: usize = 32;

/// Whether the same holder has it.
pub(crate) fn may_take_over(request: &Request, lock: &Lock) -> bool {
    let is_former = request.value.is_of_same_holder(lock.value.as_bytes()) && lock.value != request.value;
    request.script == Script::Acquire && is_former
}

impl Store {
    /// What stands under the key itself, or behind this value.
    fn place(&self, now_ms: u64, key: usize, behind: Option<&Rc<Value>>) -> Option<Lock> {
        match behind {
            None => self.lock(now_ms, key).cloned(),
            Some(value) => {
                self.formers[key].iter().find(|(before, _)| before == value).map(|(_, former)| former.clone())
            }
        }
    }

    fn set_place(&mut self, key: usize, behind: Option<&Rc<Value>>, lock: Option<Lock>) {
        match behind {
            None => self.locks[key] = lock,
            Some(value) => {
                self.formers[key].retain(|(before, _)| before != value);
                self.formers[key].extend(lock.map(|lock| (value.clone(), lock)));
            }
        }
    }

    pub(crate) fn leave_line(
        &mut self,
        now_ms: u64,
        key: usize,
        mut behind: Option<Rc<Value>>,
        value: &Rc<Value>,
        forgets: bool,
    ) -> bool {
        let mut found_at = None;
        for step in 0..LONGEST_LINE {
            let Some(here) = self.place(now_ms, key, behind.as_ref()) else { break };
            if here.value == *value {
                found_at = Some(step);
            }
            if step > 0 && self.is(Mutant::LineForgotten) {
                break;
            }
            if found_at.is_some() && !forgets {
                let former = self.place(now_ms, key, Some(value));
                self.set_place(key, Some(value), None);
                self.set_place(key, behind.as_ref(), former);
                break;
            }
            if found_at.is_some() {
                self.set_place(key, behind.as_ref(), None);
            }
            behind = Some(here.value);
        }
        found_at == Some(0)
    }

    /// Whether there was something to take over.
    pub(crate) fn take_over(&mut self, now_ms: u64, key: usize, request: &Request) -> bool {
        let Some(former) = self.lock(now_ms, key).filter(|lock| may_take_over(request, lock)).cloned() else {
            return false;
        };
        self.leave_line(now_ms, key, Some(former.value.clone()), &request.value, false);
        let until_ms = now_ms + request.ttl_ms;
        let until_ms = if self.is(Mutant::TakeoverShortens) { until_ms } else { until_ms.max(former.until_ms) };
        self.set_place(key, Some(&request.value), Some(former));
        self.locks[key] = Some(Lock { value: request.value.clone(), until_ms });
        true
    }

    /// The planted bug.
    pub(crate) fn leave_lines(&mut self, now_ms: u64, request: &Request) {
        for key in keys(request.keys) {
            if let Some(former) = self.lock(now_ms, key).filter(|lock| may_take_over(request, lock)).cloned() {
                self.leave_line(now_ms, key, Some(former.value), &request.value, false);
            }
        }
    }
}
