//! P14, P15, P17: a lease rests on servers that have forgotten nothing and waited, and whose clocks were not put forward;
//! and, P10, on others for what the same process has kept of it.

use crate::judge::Vote;
use crate::world::World;

impl World {
    pub(super) fn check_votes(&self, number: usize) {
        if !self.scenario.admission {
            return;
        }
        let Some((value, until)) = self.relied_on(number) else { return };
        let judge = self.judge();
        let kept = judge.kept(&value);
        let stands = |vote: &Vote| judge.may_vote(vote) || kept.contains(&(vote.server, vote.command));
        let certified = judge.certified(&value, self.scenario.quorum, stands);
        if until > certified {
            let what = format!("lock {number} until {until:?} instead of {certified:?}: {}", judge.told(&value));
            drop(judge);
            self.violate("only who may vote votes", what);
        }
    }
}
