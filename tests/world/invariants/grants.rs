//! P12: a lock is given under a token that a quorum has stored, and that was larger than all before it there.

use redquorum::testing::simulation::StepKind;

use crate::world::World;

/// Tokens of hand-overs are between those of grants (P24).
const TOKENS_OF_A_GRANT: u64 = 4096;

impl World {
    pub(super) fn check_grants(&self, number: usize) {
        let history = self.history();
        let hold = &history.holds[number];
        let (value, token) = (hold.value.clone(), hold.token.get() / TOKENS_OF_A_GRANT);
        drop(history);
        let judge = self.judge();
        let mut granted = [false; 8];
        let is_it = |kind| matches!(kind, StepKind::Set | StepKind::Acquire);
        for vote in judge.rounds.get(&value).map_or(&[][..], |rounds| &rounds.votes) {
            let is_its = vote.token.is_some_and(|of_vote| of_vote.get() / TOKENS_OF_A_GRANT == token);
            if is_it(vote.kind) && vote.grants() && vote.is_whole && is_its && judge.heard(vote).is_some() {
                granted[vote.server] = true;
            }
        }
        drop(judge);
        let count = granted.iter().filter(|granted| **granted).count();
        if count < self.scenario.quorum {
            self.violate("a grant is above every token of its quorum", format!("lock {number}: on {granted:?}"));
        }
    }
}
