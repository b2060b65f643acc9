//! Old tokens are removed now and then, by any client (P13).

use std::rc::Rc;

use crate::instance::{Request, Script};
use crate::mutants::Mutant;
use crate::world::{Sender, World};

impl World {
    pub(super) fn forget_old_tokens(&mut self, c: usize) {
        let is_time = self.scenario.retention_ms < u64::MAX / 2 && self.probing.is_none() && self.rng.percent(50);
        let script = if self.is(Mutant::ForgetByName) { Script::ReadOldTokens } else { Script::ForgetTokens };
        for i in (0..self.servers.len()).filter(|_| is_time) {
            let request = Rc::new(Request { script, ..Request::clone(&self.blank) });
            let _ = self.send(c, i, Sender::OldTokens, &request, None);
        }
    }

    /// The planted bug: what was old when it was read is removed by name.
    pub(super) fn on_old_tokens(&mut self, c: usize, i: usize, old: u8) {
        if self.is(Mutant::ForgetByName) && old != 0 {
            let request = Request { script: Script::ForgetNamed, keys: old, ..Request::clone(&self.blank) };
            let _ = self.send(c, i, Sender::Write, &Rc::new(request), None);
        }
    }
}
