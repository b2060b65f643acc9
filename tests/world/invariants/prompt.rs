//! P4: the verdict falls with the quorum-th answer, and waits for no other.

use std::collections::BTreeMap;
use std::time::Duration;

use redquorum::testing::simulation::StepKind;

use crate::judge::Vote;
use crate::time::now;
use crate::world::World;

/// What a few tasks take.
const AT_ONCE: Duration = Duration::from_millis(5);

impl World {
    /// An extend by hand was won, which its user has polled since it was begun.
    pub(crate) fn check_prompt(&self, number: usize, begun: Duration) {
        self.absorb();
        let history = self.history();
        let (value, client) = (history.holds[number].value.clone(), history.holds[number].client);
        drop(history);
        let judge = self.judge();
        let since = begun.saturating_sub(self.scenario.max_ttl * 3);
        let Some(rounds) = judge.rounds.get(&value).filter(|_| !judge.is_doubted(None, since)) else { return };
        let is_its = |vote: &&Vote| vote.kind == StepKind::Extend && vote.grants() && vote.sent.at >= begun;
        let last = rounds.votes.iter().filter(is_its).map(|vote| vote.sent.at).max();
        let of_last = rounds.votes.iter().filter(is_its).filter(|vote| Some(vote.sent.at) == last);
        // Two who extend at once ask each server twice: the later answer may be the one.
        let mut heard_of: BTreeMap<usize, Duration> = BTreeMap::new();
        for vote in of_last {
            let at = judge.heard(vote).map_or(Duration::MAX, |heard| heard.at);
            heard_of.entry(vote.server).and_modify(|heard| *heard = at.max(*heard)).or_insert(at);
        }
        let mut heard: Vec<Duration> = heard_of.into_values().collect();
        heard.sort_unstable();
        let Some(decided) = heard.get(self.scenario.quorum - 1).copied() else { return };
        if decided < now().saturating_sub(AT_ONCE) && !self.machines[client].was_disturbed_since(begun) {
            let what = format!("an extend of lock {number}, decided at {decided:?}: {}", judge.told(&value));
            drop(judge);
            self.violate("a verdict falls with the quorum-th answer", what);
        }
    }
}
