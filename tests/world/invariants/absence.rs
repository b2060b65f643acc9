//! P20: once the answers that a client has show that no quorum can have kept a key, its lease is over.

use std::time::Duration;

use redquorum::testing::simulation::{Said, StepKind};

use crate::history::Hold;
use crate::judge::{Judge, Rounds, Vote};
use crate::time::now;
use crate::world::World;

/// What a client takes to draw its conclusion from an answer.
const AT_ONCE: Duration = Duration::from_millis(5);

/// An instance did or did not have the key when it was asked, as its client has heard.
#[derive(Clone, Copy, Debug)]
struct Evidence {
    server: usize,
    /// When its round was begun, and when it was sent itself.
    begun: Duration,
    sent: Duration,
    heard: Duration,
    had: bool,
    has_since: bool,
}

/// For how long a server may have been without the key: from the last request to which it had it until the one to which it
/// had it again, each so that it is rather too short.
#[derive(Clone, Copy, Debug)]
struct Absence {
    server: usize,
    from: Duration,
    seen: Duration,
    until: Duration,
}

impl World {
    pub(super) fn check_absences(&self, number: usize) {
        let Some((value, _)) = self.relied_on(number) else { return };
        let history = self.history();
        let hold = &history.holds[number];
        let (client, life, resources, token) = (hold.client, hold.life, hold.resources, hold.token.proposed_us());
        // What it has of the same key since is another's, and keys are checked for that one.
        let is_of_it = |hold: &Hold| (hold.client, hold.life) == (client, life) && hold.resources & resources != 0;
        let is_followed = history.holds[number + 1..].iter().any(is_of_it);
        drop(history);
        if is_followed {
            return;
        }
        // Of several keys one is as good as all, but which of them was read is not told here.
        if resources.count_ones() > 1 || self.machines[client].was_disturbed_since(now().saturating_sub(AT_ONCE)) {
            return;
        }
        let judge = self.judge();
        let Some(rounds) = judge.rounds.get(&value) else { return };
        let known = self.evidence(&judge, rounds, ((client, life), token));
        if known.iter().all(|evidence| evidence.had) {
            return;
        }
        let absences = absences(known);
        let absent_at = |moment: Duration| {
            let covers = |absence: &&Absence| absence.from <= moment && moment < absence.until;
            let mut servers: Vec<usize> = absences.iter().filter(covers).map(|absence| absence.server).collect();
            servers.sort_unstable();
            servers.dedup();
            servers.len()
        };
        let most = absences.iter().map(|absence| absent_at(absence.from)).max().unwrap_or(0);
        if most > self.servers.len() - self.scenario.quorum {
            let what = format!("lock {number} of client {client} is gone: {absences:?}: {}", judge.told(&value));
            drop(judge);
            self.violate("a lease ends with its evidence", what);
        }
    }

    /// All that the client of a lease has heard of its key, in the order in which it did.
    fn evidence(&self, judge: &Judge, rounds: &Rounds, (client, token): ((usize, u64), u64)) -> Vec<Evidence> {
        let settled = now().saturating_sub(AT_ONCE);
        let in_time = self.scenario.instance_timeout * 9 / 10;
        let is_its = |vote: &Vote| vote.token.is_some_and(|of_vote| of_vote.proposed_us() == token);
        let acquires = rounds.votes.iter().filter(|vote| !vote.extends() && is_its(vote));
        let Some(first) = acquires.map(|vote| vote.sent.at).min() else { return Vec::new() };
        let is_doubted =
            |vote: &Vote| judge.is_doubted(Some(vote.server), vote.sent.at.saturating_sub(self.scenario.max_ttl * 3));
        let mut known = Vec::new();
        for vote in &rounds.votes {
            let (had, has_since) = match (vote.kind, vote.said) {
                (StepKind::Set | StepKind::Acquire, _) if !is_its(vote) => continue,
                (_, Said::Yes) => (true, true),
                // Whoever doubts the server takes nothing of that.
                (_, Said::Repaired) => (is_doubted(vote), true),
                (StepKind::Extend, Said::No) => (false, false),
                (StepKind::Set | StepKind::Acquire, Said::No) if vote.is_others && !is_doubted(vote) => (false, false),
                _ => continue,
            };
            let Some(heard) = judge.heard(vote).filter(|heard| heard.at <= settled) else { continue };
            // What may have come too late to count can only speak for the lease.
            let counts = heard.at <= vote.sent.at + in_time;
            if !counts && !has_since {
                continue;
            }
            let had = had || !counts;
            let begun = begun(rounds, vote, self.scenario.instance_timeout);
            known.push(Evidence { server: vote.server, begun, sent: vote.sent.at, heard: heard.at, had, has_since });
        }
        for reading in judge.readings.iter().filter(|reading| reading.client == client && reading.key == rounds.key) {
            let heard = judge.heard_reading(reading).filter(|heard| heard.at <= settled);
            let Some(heard) = heard else { continue };
            let had = reading
                .found
                .as_ref()
                .is_some_and(|found| judge.rounds.get(found).is_some_and(|its| std::ptr::eq(its, rounds)));
            let sent = reading.sent.at;
            let is_for_it = reading.is_check && rounds.watched.is_some_and(|watched| watched <= sent);
            if had || (is_for_it && sent > first && heard.at <= sent + in_time) {
                let server = reading.server;
                known.push(Evidence { server, begun: sent, sent, heard: heard.at, had, has_since: had });
            }
        }
        known.sort_by_key(|evidence| evidence.heard);
        known
    }
}

/// When its round was begun, or sooner: an extend by itself follows one of many that has found no key, or is one of a round
/// whose others may have gone out before it, up to an instance timeout.
fn begun(rounds: &Rounds, vote: &Vote, timeout: Duration) -> Duration {
    let is_before = |other: &&Vote| other.server == vote.server && other.extends() && other.command < vote.command;
    let before = rounds.votes.iter().rev().find(is_before);
    let missed =
        before.filter(|other| other.kind == StepKind::ExtendMany && !other.grants()).map(|other| other.sent.at);
    let earliest = vote.sent.at.saturating_sub(timeout);
    let is_of_round = |other: &&Vote| other.kind == StepKind::Extend && other.sent.at >= earliest;
    let others = rounds.votes.iter().filter(is_of_round).map(|other| other.sent.at);
    others.chain(missed).chain([vote.sent.at]).min().unwrap_or_default().saturating_sub(AT_ONCE)
}

/// When servers may have been without the key.
fn absences(known: Vec<Evidence>) -> Vec<Absence> {
    let (mut had_at, mut absences) = ([Duration::ZERO; 8], Vec::<Absence>::new());
    for Evidence { server, begun, sent, had, has_since, .. } in known {
        if !had && begun > had_at[server] {
            let open = absences.iter_mut().find(|absence| absence.server == server && absence.until == Duration::MAX);
            match open {
                Some(absence) => absence.seen = absence.seen.max(sent),
                None => absences.push(Absence { server, from: had_at[server], seen: sent, until: Duration::MAX }),
            }
        }
        if has_since {
            had_at[server] = had_at[server].max(sent);
            // What was sent at the same time may have been carried out in any order.
            let is_over = |absence: &&mut Absence| {
                absence.server == server && absence.until == Duration::MAX && absence.seen <= sent
            };
            absences.iter_mut().filter(is_over).for_each(|absence| absence.until = begun);
        }
    }
    absences
}
