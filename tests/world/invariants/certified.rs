//! P2, P4: what is left of a lease is never more than what a quorum has granted, each from when it was asked for, less
//! the drift. P9: and what was over by the time that an answer came is not extended by it.

use crate::world::World;

impl World {
    pub(super) fn check_certified(&self, number: usize) {
        let Some((value, until)) = self.relied_on(number) else { return };
        let certified = self.judge().certified(&value, self.scenario.quorum, |vote| vote.is_whole || vote.extends());
        if until > certified {
            let votes = self.judge().told(&value);
            let what = format!("lock {number} until {until:?} instead of {certified:?}: {votes}");
            self.violate("a lease is no longer than what was granted", what);
        }
        let kept = self.judge().kept_until(&value, self.scenario.quorum, |vote| vote.is_whole || vote.extends());
        if until > kept {
            let votes = self.judge().told(&value);
            let what = format!("lock {number} until {until:?} instead of {kept:?}: {votes}");
            self.violate("what is over is not extended", what);
        }
    }
}
