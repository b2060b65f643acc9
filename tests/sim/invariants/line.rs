//! What a holder has under a key stays there until it ends, or is released: whatever becomes of the tries
//! of the same holder that have its place (P23).

use std::rc::Rc;

use redquorum::protocol::Value;

use crate::instance::{Answer, Request, Script, keys};
use crate::world::World;

impl World {
    /// The values of the request's holder under its keys.
    pub(crate) fn line_of_holder(&self, i: usize, request: &Request) -> Vec<(usize, Rc<Value>)> {
        let (now_ms, store) = (self.server_ms(i), &self.servers[i].store);
        let of_holder = |value: &Rc<Value>| request.value.is_of_same_holder(value.as_bytes());
        let under = |key: usize| {
            let formers =
                store.formers[key].iter().map(|(_, former)| former).filter(|former| now_ms <= former.until_ms);
            store.lock(now_ms, key).into_iter().chain(formers).map(move |lock| (key, lock.value.clone()))
        };
        let mut line: Vec<_> = keys(request.keys).flat_map(under).filter(|(_, value)| of_holder(value)).collect();
        line.sort_by(|(one, a), (other, b)| (one, a.as_bytes()).cmp(&(other, b.as_bytes())));
        line
    }

    pub(crate) fn check_line(&mut self, i: usize, request: &Request, answer: &Answer, before: &[(usize, Rc<Value>)]) {
        // Its own comes and goes with what is granted, and with its end.
        let may_move = request.script.is_release() || matches!(answer, Answer::Granted | Answer::Repaired);
        let after = self.line_of_holder(i, request);
        let fixed = |line: &[(usize, Rc<Value>)]| {
            line.iter().filter(|(_, value)| !may_move || *value != request.value).cloned().collect::<Vec<_>>()
        };
        // A lease that is released forgets what it took over.
        if request.script != Script::Release && fixed(&after) != fixed(before) {
            self.violate("what a holder has stays", format!("{:?} changed it on instance {i}", request.script));
        }
    }
}
