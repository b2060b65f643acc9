//! P20: once the answers that a client has show that no quorum can have kept a key, its lease is over.

use std::time::Duration;

use redquorum::testing::simulation::{Said, StepKind};

use crate::history::Hold;
use crate::time::now;
use crate::world::World;

/// What a client takes to draw its conclusion from an answer.
const AT_ONCE: Duration = Duration::from_millis(5);

/// An instance did or did not have the key when it was asked.
#[derive(Clone, Copy, Debug)]
struct Evidence {
    sent: Duration,
    had: bool,
    has_since: bool,
}

impl World {
    pub(super) fn check_absences(&self, number: usize) {
        let Some((value, _)) = self.relied_on(number) else { return };
        let history = self.history();
        let hold = &history.holds[number];
        let (client, resources, since) = ((hold.client, hold.life), hold.resources, hold.won_by);
        // What its client has of the same key since, or still from before, is another lock, and keys are checked for that one.
        let is_of_it = |hold: &Hold| (hold.client, hold.life) == client && hold.resources & resources != 0;
        let is_still_had = |hold: &Hold| is_of_it(hold) && hold.lease.is_some();
        if history.holds[number + 1..].iter().any(is_of_it) || history.holds[..number].iter().any(is_still_had) {
            return;
        }
        drop(history);
        // Of several keys one is as good as all, but which of them was read is not told here.
        if resources.count_ones() > 1 || self.machines[client.0].was_disturbed_since(now().saturating_sub(AT_ONCE)) {
            return;
        }
        let mut absent = Vec::new();
        for server in 0..self.servers.len() {
            let known = self.evidence(&value, (client, server), since);
            let last = known.iter().max_by_key(|evidence| evidence.sent);
            let is_absent = last.is_some_and(|last| !last.has_since);
            // What was sent at the same time may have been carried out in any order.
            let is_sure = is_absent
                && last.is_some_and(|last| !known.iter().any(|other| other.has_since && other.sent >= last.sent));
            if is_sure {
                absent.push(server);
            }
        }
        if absent.len() > self.servers.len() - self.scenario.quorum {
            let what =
                format!("lock {number} of client {client:?} is gone on {absent:?}: {}", self.judge().told(&value));
            self.violate("a lease ends with its evidence", what);
        }
    }

    /// All that the client of a lease has heard of its key on a server.
    fn evidence(&self, value: &[u8], (client, server): ((usize, u64), usize), since: Duration) -> Vec<Evidence> {
        let judge = self.judge();
        let settled = now().saturating_sub(AT_ONCE);
        let in_time = self.scenario.instance_timeout * 9 / 10;
        let mut known = Vec::new();
        let Some(rounds) = judge.rounds.get(value) else { return known };
        let mut key = None;
        for vote in rounds.votes.iter().filter(|vote| vote.server == server) {
            let Some(heard) = judge.heard(vote).filter(|heard| heard.at <= settled) else { continue };
            let (had, has_since) = match (vote.kind, vote.said) {
                (_, Said::Yes | Said::Kept) => (true, true),
                (_, Said::Repaired) => (false, true),
                (StepKind::Extend, Said::No) => (false, false),
                _ => continue,
            };
            // What may have come too late to count can only speak for the lease.
            if !has_since && heard.at > judge.may_be_asked_at(vote) + in_time {
                continue;
            }
            known.push(Evidence { sent: vote.sent.at, had, has_since });
        }
        for reading in judge.readings.iter().filter(|reading| (reading.client, reading.server) == (client, server)) {
            if reading.found.as_deref() == Some(value) {
                key = Some(&reading.key);
            }
        }
        for reading in judge.readings.iter().filter(|reading| (reading.client, reading.server) == (client, server)) {
            let is_its = key == Some(&reading.key) && reading.sent.at > since;
            let heard = judge.heard_reading(reading).filter(|heard| heard.at <= settled);
            let had = reading.found.as_deref() == Some(value);
            if is_its && heard.is_some_and(|heard| had || heard.at <= reading.sent.at + in_time) {
                known.push(Evidence { sent: reading.sent.at, had, has_since: had });
            }
        }
        known.retain(|evidence| evidence.had || evidence.sent >= since);
        known
    }
}
