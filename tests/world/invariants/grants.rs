//! P12, P2: a lock is given under a token that a quorum has stored, that was larger than all before it there, and in time.

use redquorum::testing::simulation::StepKind;

use super::given::LEAST_PART;
use crate::world::World;

/// Tokens of hand-overs are between those of grants (P24).
pub(super) const TOKENS_OF_A_GRANT: u64 = 4096;

impl World {
    pub(super) fn check_grants(&self, number: usize) {
        let history = self.history();
        let hold = &history.holds[number];
        let (value, token, reads) = (hold.value.clone(), hold.token.get() / TOKENS_OF_A_GRANT, hold.reads);
        drop(history);
        let judge = self.judge();
        let (mut granted, mut in_time) = ([false; 8], [false; 8]);
        let is_it = |kind| matches!(kind, StepKind::Set | StepKind::Acquire | StepKind::ReaderComes);
        for vote in judge.votes(&value) {
            let is_its = reads || vote.token.is_some_and(|of_vote| of_vote.get() / TOKENS_OF_A_GRANT == token);
            let heard = judge.heard(vote).filter(|_| is_it(vote.kind) && vote.grants() && vote.is_whole && is_its);
            if let Some(heard) = heard {
                granted[vote.server] = true;
                // Less than this is not worth it (P2).
                in_time[vote.server] |= heard.reading <= vote.until().saturating_sub(self.scenario.ttl / LEAST_PART);
            }
        }
        drop(judge);
        let count = granted.iter().filter(|granted| **granted).count();
        if count < self.scenario.quorum {
            self.violate("a grant is above every token of its quorum", format!("lock {number}: on {granted:?}"));
        } else if in_time.iter().filter(|in_time| **in_time).count() < self.scenario.quorum {
            self.violate("no lock is given by answers that came too late", format!("lock {number}: {in_time:?}"));
        }
    }
}
