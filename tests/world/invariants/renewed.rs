//! P19: a renewal that was not won is followed by another, as long as the lease is valid and wanted.

use std::time::Duration;

use crate::judge::Vote;
use crate::net::Link;
use crate::time::now;
use crate::world::World;

/// What a timer and a few tasks take.
const SLACK: Duration = Duration::from_millis(15);

impl World {
    pub(super) fn check_renewed(&self, number: usize) {
        let history = self.history();
        let hold = &history.holds[number];
        let (client, value, has_holder) = (hold.client, hold.value.clone(), hold.has_holder);
        drop(history);
        // What many ask for at once goes in batches, which are not read where they go in parts.
        let is_crowded = self.scenario.users > self.scenario.clients + 1;
        if has_holder || is_crowded || !self.scenario.is_read {
            return;
        }
        let sent = self.links[client].iter().filter_map(|link| link.last_extend(&value)).max();
        let Some(sent) = sent else { return };
        let pace = self.scenario.instance_timeout.max(self.scenario.ttl / 10) * 51 / 50 + SLACK;
        let judge = self.judge();
        let is_due = sent + pace <= now() && !self.machines[client].was_disturbed_since(sent.saturating_sub(SLACK));
        let rounds = judge
            .rounds
            .get(&value)
            .filter(|rounds| is_due && rounds.not_after.is_none() && !rounds.is_extended_by_hand);
        let Some(rounds) = rounds else { return };
        // One whose answers came alone or together.
        let since = sent.saturating_sub(self.scenario.instance_timeout + SLACK);
        let is_its = |vote: &&Vote| vote.extends() && vote.grants() && vote.sent.at >= since;
        let mut granted = [false; 8];
        for vote in rounds.votes.iter().filter(is_its).filter(|vote| judge.heard(vote).is_some()) {
            granted[vote.server] = true;
        }
        let count = granted.iter().filter(|granted| **granted).count();
        let is_reachable = |(server, link): (usize, &Link)| {
            self.servers[server].is_running() && link.is_undisturbed_since(sent.saturating_sub(self.scenario.ttl / 2))
        };
        if count < self.scenario.quorum && self.links[client].iter().enumerate().any(is_reachable) {
            let what = format!("lock {number} of client {client}, last at {sent:?}: {}", judge.told(&value));
            drop(judge);
            self.violate("a renewal that was not won is followed by another", what);
        }
    }
}
