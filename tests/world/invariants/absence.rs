//! P20: once the answers that a client has show that no quorum can have kept a key, its lease is over.

use std::collections::HashSet;
use std::time::Duration;

use redquorum::testing::simulation::{Said, StepKind};

use crate::history::Hold;
use crate::judge::{Reading, Vote};
use crate::net::Passed;
use crate::sharers::ELECTION_BIT;
use crate::time::now;
use crate::world::World;

/// What a client takes to draw its conclusion from an answer.
const AT_ONCE: Duration = Duration::from_millis(5);

/// An instance did or did not have the key when it was asked, as its client has heard.
#[derive(Clone, Copy, Debug)]
struct Evidence {
    server: usize,
    /// When its client began to ask, or sooner.
    begun: Duration,
    sent: Duration,
    heard: Duration,
    had: bool,
    has_since: bool,
}

/// For how long a server was without the key: from the request to which it did not have it until the answer that says that it has it
/// again. Where that is in doubt it is rather too short.
#[derive(Clone, Copy, Debug)]
struct Absence {
    server: usize,
    from: Duration,
    seen: Duration,
    until: Duration,
}

impl World {
    pub(super) fn check_absences(&self, number: usize) {
        let Some((value, ..)) = self.relied_on(number) else { return };
        let history = self.history();
        let hold = &history.holds[number];
        // Nor does what others have heard of one that was moved.
        if hold.reads || hold.attached.is_some() {
            return; // what a client reads of a key says nothing of its readers
        }
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
        // A user that asks this client who leads has it read the key too, and keeps the answer.
        let is_read_for_others = resources == ELECTION_BIT;
        let known = self.evidence(&value, client, since, is_read_for_others);
        let (most, absences) = most_absent(known, self.servers.len(), self.scenario.quorum);
        if most > self.servers.len() - self.scenario.quorum {
            let what =
                format!("lock {number} of client {client:?} is gone: {absences:?}: {}", self.judge().told(&value));
            self.violate("a lease ends with its evidence", what);
        }
    }

    /// Whether the answers that its client has, or is about to get, may show that a lease was lost (P20).
    pub(super) fn may_be_found_lost(&self, value: &[u8]) -> bool {
        self.absorb();
        let was_missing =
            |vote: &&Vote| matches!((vote.kind, vote.said), (_, Said::Repaired) | (StepKind::Extend, Said::No));
        let judge = self.judge();
        let granted = judge.granted_by(value, self.scenario.quorum);
        let (Some(rounds), Some(granted)) = (judge.rounds.get(value), granted) else { return false };
        let mut without: HashSet<_> = rounds.votes.iter().filter(was_missing).map(|vote| vote.server).collect();
        let is_without = |reading: &&Reading| {
            (Some(reading.client), &reading.key) == (rounds.client, &rounds.key)
                && reading.sent.at >= granted
                && reading.found.as_deref() != Some(value)
        };
        without.extend(judge.readings.iter().filter(is_without).map(|reading| reading.server));
        without.len() > self.servers.len() - self.scenario.quorum
    }

    /// All that the client of a lease has heard of its key, in the order in which it did. What is read for others as well
    /// can only speak for the lease.
    fn evidence(&self, value: &[u8], client: (usize, u64), since: Duration, is_read_for_others: bool) -> Vec<Evidence> {
        let judge = self.judge();
        let settled = now().saturating_sub(AT_ONCE);
        let (timeout, doubted) = (self.scenario.instance_timeout, self.scenario.max_ttl * 3);
        let in_time = timeout * 9 / 10;
        let mut known = Vec::new();
        let Some(rounds) = judge.rounds.get(value) else { return known };
        for vote in &rounds.votes {
            let Some(heard) = judge.heard(vote).filter(|heard| heard.at <= settled) else { continue };
            // What may have come too late to count, or is withheld, can only speak for the lease.
            let is_in_time = heard.at <= judge.may_be_asked_at(vote) + in_time;
            let counts = is_in_time && !judge.may_be_given_up(vote.connection, heard.at);
            let (had, has_since) = match (vote.kind, vote.said) {
                (_, Said::Yes | Said::Kept) => (true, true),
                (_, Said::Repaired) => {
                    (!counts || judge.is_doubted(Some(vote.server), vote.sent.at.saturating_sub(doubted)), true)
                }
                (StepKind::Extend, Said::No) if counts => (false, false),
                _ => continue,
            };
            // It may wait for the one before it, and be sent once more for one that was begun with others.
            let (server, sent, begun) = (vote.server, vote.sent.at, vote.sent.at.saturating_sub(timeout * 2));
            known.push(Evidence { server, begun, sent, heard: heard.at, had, has_since });
        }
        for reading in judge.readings.iter().filter(|reading| reading.client == client && reading.key == rounds.key) {
            let heard = judge.heard_reading(reading).filter(|heard| heard.at <= settled);
            let had = reading.found.as_deref() == Some(value);
            let (server, sent) = (reading.server, reading.sent.at);
            let counts = |heard: &Passed| !is_read_for_others && sent > since && heard.at <= sent + in_time;
            if let Some(heard) = heard.filter(|heard| had || counts(heard)) {
                known.push(Evidence { server, begun: sent, sent, heard: heard.at, had, has_since: had });
            }
        }
        known.retain(|evidence| evidence.had || evidence.sent >= since);
        // Of answers that come at one moment those for the lease may be read first.
        known.sort_by_key(|evidence| (evidence.heard, !evidence.had));
        known
    }
}

/// How many servers were without the key at one moment, at most, and when they were. What was over before a round that a quorum has
/// confirmed counts no more.
fn most_absent(known: Vec<Evidence>, servers: usize, quorum: usize) -> (usize, Vec<Absence>) {
    let (mut had_at, mut absences) = (vec![Duration::ZERO; servers], Vec::<Absence>::new());
    let mut most = (0, Vec::new());
    for Evidence { server, begun, sent, heard, had, has_since } in known {
        let is_open = |absence: &&mut Absence| absence.server == server && absence.until == Duration::MAX;
        if !had && begun > had_at[server] {
            match absences.iter_mut().find(is_open) {
                Some(absence) => absence.seen = absence.seen.max(sent),
                None => absences.push(Absence { server, from: sent, seen: sent, until: Duration::MAX }),
            }
        }
        if has_since {
            had_at[server] = had_at[server].max(sent);
            // What was sent at the same time may have been carried out in any order.
            let is_over = |absence: &&mut Absence| is_open(absence) && absence.seen <= sent;
            absences.iter_mut().filter(is_over).for_each(|absence| absence.until = heard);
        }
        let count = together(&absences);
        if count > most.0 {
            most = (count, absences.clone());
        }
        if has_since {
            let mut latest = had_at.clone();
            latest.sort_unstable_by(|one, other| other.cmp(one));
            absences.retain(|absence| absence.until > latest[quorum - 1]);
        }
    }
    most
}

/// How many servers were without the key at one moment, at most.
fn together(absences: &[Absence]) -> usize {
    let absent_at = |moment: Duration| {
        let covers = |absence: &&Absence| absence.from <= moment && moment < absence.until;
        let servers = absences.iter().filter(covers).fold(0_u8, |servers, absence| servers | 1 << absence.server);
        servers.count_ones() as usize
    };
    absences.iter().map(|absence| absent_at(absence.from)).max().unwrap_or(0)
}
