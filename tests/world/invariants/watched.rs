//! P20: an instance that says that a watched key has changed, or that has extended it, which ends its watch, is asked for the key.

use std::time::Duration;

use redquorum::testing::simulation::Step;

use crate::history::Hold;
use crate::judge::{Judge, Vote};
use crate::time::now;
use crate::world::World;

/// What a client takes to ask.
const AT_ONCE: Duration = Duration::from_millis(10);

/// The longest that anything took on its way until then.
const BEFORE_THE_CALM: Duration = Duration::from_millis(500);

/// What is to be followed by a key check, once it was heard.
#[derive(Clone, Debug)]
pub(crate) struct ToCheck {
    why: &'static str,
    client: (usize, u64),
    server: usize,
    connection: u64,
    ends: u64,
    /// Of one lease, or of all that are watched; under one key, or under all if it is empty.
    value: Option<Vec<u8>>,
    key: Vec<u8>,
    /// A check that was sent then may be meant; `None` if it is to be sent when this was heard.
    sent: Option<Duration>,
}

impl Judge {
    pub(crate) fn note_told(&mut self, step: &Step) {
        let Some(connected) = usize::try_from(step.connection).ok().and_then(|at| self.connections.get(at)) else {
            return;
        };
        let (client, server, connection, ends) = (connected.client, connected.server, step.connection, step.ends);
        let (why, key) = ("a push leads to a key check", step.key.clone());
        self.to_check.push(ToCheck { why, client, server, connection, ends, value: None, key, sent: None });
    }

    pub(crate) fn note_to_check(&mut self, step: &Step, vote: &Vote) {
        if !vote.extends() || !vote.grants() {
            return;
        }
        let is_watched = |watched: Duration| watched < vote.sent.at;
        if !self.rounds.get(&step.value).and_then(|rounds| rounds.watched).is_some_and(is_watched) {
            return;
        }
        let Some(client) = self.asked_by(vote) else { return };
        let (why, value, key) = ("what was extended is watched again", Some(step.value.clone()), step.key.clone());
        let (server, connection, ends, sent) = (vote.server, vote.connection, step.ends, Some(vote.sent.at));
        self.to_check.push(ToCheck { why, client, server, connection, ends, value, key, sent });
    }

    fn is_checked(&self, what: &ToCheck, since: Duration, key: &[u8]) -> bool {
        self.readings.iter().rev().any(|reading| {
            (reading.client, reading.server) == (what.client, what.server)
                && reading.key == key
                && reading.sent.at >= since
        })
    }
}

impl World {
    /// All that a client has heard so long ago that it has asked.
    pub(super) fn check_watched(&self) {
        let judge = self.judge();
        if judge.to_check.is_empty() {
            return;
        }
        let (is_calm, mut judge) = (self.is_calm(), judge);
        let (mut due, mut later) = (Vec::new(), Vec::new());
        for what in std::mem::take(&mut judge.to_check) {
            // An extend by hand is followed by checks once it is decided.
            // What went out before the calm takes as long as it did then.
            let calm = if is_calm { BEFORE_THE_CALM } else { Duration::ZERO };
            let way = self.links[what.client.0][what.server].slowest() + calm;
            let patience =
                AT_ONCE + way + what.sent.map_or(Duration::ZERO, |_| self.scenario.instance_timeout * 51 / 50);
            match judge.heard_by(what.connection, what.ends) {
                Some(heard) if heard.at + patience <= now() => due.push((what, heard.at)),
                _ => later.push(what),
            }
        }
        // What is not heard in a while will never be.
        let skipped = later.len().saturating_sub(64);
        judge.to_check = later.split_off(skipped);
        drop(judge);
        due.iter().for_each(|(what, heard)| self.check_asked(what, *heard));
    }

    fn check_asked(&self, what: &ToCheck, heard: Duration) {
        let (client, life) = what.client;
        let before = heard.saturating_sub(self.scenario.instance_timeout * 2);
        let in_time = self.scenario.instance_timeout * 9 / 10;
        let is_late = what.sent.is_some_and(|sent| heard > sent + in_time);
        let is_reachable = self.servers[what.server].is_running()
            && self.links[client][what.server].is_undisturbed_since(before)
            && !self.machines[client].was_disturbed_since(before)
            && self.client(client).is_some_and(|(_, present)| present == life);
        if is_late || !is_reachable {
            return;
        }
        // Whoever doubts an instance takes nothing of it for an extend, and may take it for silent.
        let since = heard.saturating_sub(self.scenario.max_ttl * 3);
        if self.judge().is_doubted(None, since) {
            return;
        }
        let is_meant = |hold: &Hold| {
            let is_theirs =
                (hold.client, hold.life) == what.client && hold.is_valid() && hold.resources.is_power_of_two();
            is_theirs && what.value.as_ref().is_none_or(|value| *value == hold.value)
        };
        let history = self.history();
        let values: Vec<Vec<u8>> =
            history.holds.iter().filter(|hold| is_meant(hold)).map(|hold| hold.value.clone()).collect();
        drop(history);
        let judge = self.judge();
        let missing = values.iter().find(|value| {
            judge.rounds.get(*value).is_some_and(|rounds| {
                let is_about = what.key.is_empty() || what.key == rounds.key;
                let was_watched = rounds.watched.is_some_and(|watched| watched < what.sent.unwrap_or(heard));
                is_about && was_watched && !judge.is_checked(what, what.sent.unwrap_or(heard), &rounds.key)
            })
        });
        let told = missing.map(|value| format!("heard at {heard:?}: {what:?}: {}", judge.told(value)));
        drop(judge);
        if let Some(told) = told {
            self.violate(what.why, told);
        }
    }
}
