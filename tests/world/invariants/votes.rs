//! P14, P15, P17: a lease rests on servers that have forgotten nothing and waited, and whose clocks were not put forward;
//! and, P10, on others for what the same process has kept of it.

use crate::judge::Vote;
use crate::world::World;

impl World {
    pub(super) fn check_votes(&self, number: usize) {
        if !self.scenario.admission {
            return;
        }
        let Some((value, client, until)) = self.relied_on(number) else { return };
        let judge = self.judge();
        let kept = judge.kept(&value);
        let stands = |vote: &Vote| {
            let is_its = judge.asked_by(vote) == Some(client);
            is_its && (judge.may_vote(vote) || kept.contains(&(vote.server, vote.command)))
        };
        let certified = judge.certified(&value, self.scenario.quorum, stands);
        // P29: a client of which all is known that it asks for, and that does not go by the records.
        let is_allowed = |vote: &Vote| {
            let (longest, allowed) = (self.scenario.longest_of(client.0), vote.longest_ttl.unwrap_or_default());
            judge.asked_by(vote) == Some(client) && longest <= allowed && allowed <= self.scenario.max_ttl
        };
        let is_judged = self.scenario.is_operated && client.1 > 0;
        let allowed = if is_judged { judge.certified(&value, self.scenario.quorum, is_allowed) } else { until };
        if until > certified || until > allowed {
            let least = certified.min(allowed);
            let what = format!("lock {number} until {until:?} instead of {least:?}: {}", judge.told(&value));
            drop(judge);
            let allowed = "a vote counts only under a record that allows its client's ttls";
            self.violate(if until > certified { "only who may vote votes" } else { allowed }, what);
        }
    }
}
