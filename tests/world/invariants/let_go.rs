//! P5, P6, P7: what was never won, or was let go, is released where it is, and not left to run out.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::time::now;
use crate::world::World;

/// A release that was not confirmed is sent again after this.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// What tasks take to hear of each other.
const AT_ONCE: Duration = Duration::from_millis(10);

impl World {
    /// Wherever nothing was in the way since.
    pub(super) fn check_let_go(&self) {
        if !self.scenario.is_narrow && !self.scenario.is_together {
            return; // a user that does not poll may have won
        }
        for server in 0..self.servers.len() {
            for (key, value) in self.servers[server].locks() {
                if let Some(since) = self.left_since(server, &value) {
                    let (key, told) = (String::from_utf8_lossy(&key).into_owned(), self.judge().told(&value));
                    let what =
                        format!("{key} at server {server}, let go at {since:?}, is there at {:?}: {told}", now());
                    self.violate("what was let go is released", what);
                }
            }
        }
    }

    /// When it was let go, if that is so long ago that its release has been there.
    fn left_since(&self, server: usize, value: &[u8]) -> Option<Duration> {
        let judge = self.judge();
        let rounds = judge.rounds.get(value).filter(|_| value.first() == Some(&b':'))?;
        let sent = |vote: &crate::judge::Vote| vote.sent.at.max(vote.at);
        let granted: BTreeSet<_> = rounds.votes.iter().filter(|vote| vote.grants()).map(|vote| vote.server).collect();
        let asked = rounds.votes.iter().map(sent).max()?;
        let (client, life) = judge.asked_by(rounds.votes.first()?)?;
        let way = self.links[client][server].slowest() * 2;
        let patience = self.scenario.instance_timeout * 2 + RETRY_PAUSE + way + AT_ONCE;
        // What comes so late that the release may be repeated no more is left to its expiry (P6).
        if rounds.votes.iter().any(|vote| vote.at + patience > vote.sent.at + vote.ttl * 2) {
            return None;
        }
        let since = match rounds.given {
            // A round is over after an instance timeout; whether it was won is known to its client alone.
            0 if granted.len() < self.scenario.quorum => asked + self.scenario.instance_timeout,
            0 => return None,
            _ => rounds.let_go?.max(asked),
        };
        // Old data brings keys back, and a clock that was set back keeps them.
        let begun = rounds.votes.iter().map(|vote| vote.sent.at).min()?;
        if judge.accidents.iter().any(|accident| accident.server == server && accident.at >= begun) {
            return None;
        }
        // It was handed over to a user that has it, and waits for others.
        if judge.is_acquired_together((client, life), &rounds.key, (now(), self.scenario.instance_timeout * 3)) {
            return None;
        }
        drop(judge);
        if self.history().unpolled.contains(&(client, life)) {
            return None;
        }
        let (redlock, _) = self.client(client).filter(|(_, present)| *present == life)?;
        let undisturbed = now().checked_sub(patience)?;
        // A client that was left without an answer probes the instance, and releases once it has answered.
        let address = format!("instance-{server}");
        let is_connected = || redlock.instances().iter().any(|status| status.address == address && status.connected);
        let is_due = self.servers[server].is_running()
            && since <= undisturbed
            && self.links[client][server].is_undisturbed_since(undisturbed)
            && !self.machines[client].was_disturbed_since(undisturbed)
            && is_connected();
        is_due.then_some(since)
    }
}
