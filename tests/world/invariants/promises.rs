//! What is not promised: the only excuses there are, each with the assumption of `docs/safety.md` that is broken. What is excused is
//! counted by its excuse.
//!
//! Two quorums share a server, and one server that keeps its word keeps the second user out. So there is an excuse only if each server
//! that voted for both has lost the first one's key, between its two votes, in a way that no rule prevents.

use std::collections::BTreeSet;
use std::time::Duration;

use redquorum::FencingToken;

use super::grants::TOKENS_OF_A_GRANT;
use crate::faults::FaultKind;
use crate::history::{History, Hold};
use crate::judge::{Judge, Vote};
use crate::world::World;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Excuse {
    /// A8: nobody deletes keys by hand. (A forced release is of that kind.)
    TakenAway,
    /// A3 and A4: steps of clocks are seen, and no majority is stepped together.
    ClockStep,
    /// A2: the client's clock counts suspended time.
    ClockStoodStill,
    /// A7: old data comes back only while a connected client notices.
    OldCopyUnseen,
    /// A10: all clients have admission on.
    AdmissionOff,
    /// A13: wall clocks agree, after instances lost tokens.
    WallClocksApart,
    /// A10 for tokens: with admission off nothing is waited out.
    OrderWithoutAdmission,
    /// P32: a lease is attached within its ttl.
    AttachedLate,
}

impl Excuse {
    pub(crate) const ALL: [Self; 8] = [
        Self::TakenAway,
        Self::ClockStep,
        Self::ClockStoodStill,
        Self::OldCopyUnseen,
        Self::AdmissionOff,
        Self::WallClocksApart,
        Self::OrderWithoutAdmission,
        Self::AttachedLate,
    ];

    /// Of a thousand locks that are given so many may be excused by it. Narrow runs have more than one deletion each.
    pub(crate) const fn most_permille(self) -> u64 {
        match self {
            Self::TakenAway => 20,
            _ => 3,
        }
    }
}

/// So far ahead of the clocks of instances a client still proposes tokens by its own.
const PROPOSED_AHEAD_US: i64 = 1_000_000;

pub(crate) const fn loses_data(kind: FaultKind) -> bool {
    use FaultKind::{FailOver, Flush, Kill, LoadNothing, RestartEmpty, RestartOld, Restore, Resynchronise};
    matches!(kind, FailOver | Flush | Kill | LoadNothing | Restore | RestartEmpty | RestartOld | Resynchronise)
}

pub(crate) const fn is_about_a_clock(kind: FaultKind) -> bool {
    matches!(kind, FaultKind::StepForward | FaultKind::StepBack | FaultKind::StandStill)
}

impl World {
    /// Why two may rely on a resource now, if they may.
    pub(super) fn excuses_overlap(&self, pair: [&Hold; 2]) -> Option<Excuse> {
        let judge = self.judge();
        let standing = pair.map(|hold| self.standing(&judge, hold));
        self.excuse_everywhere(|server| {
            let [one, other] = standing.each_ref().map(|votes| votes.iter().filter(move |vote| vote.server == server));
            let first = [one.clone(), other.clone()].map(|votes| votes.min_by_key(|vote| vote.command));
            let [first_of_one, first_of_other] = [first[0]?, first[1]?];
            let (hold, votes, second) = if first_of_one.command < first_of_other.command {
                (pair[0], one, first_of_other)
            } else {
                (pair[1], other, first_of_one)
            };
            let last = votes.filter(|vote| vote.command < second.command).max_by_key(|vote| vote.command)?;
            Some(self.excuse_between(&judge, hold, [last, second]))
        })
    }

    /// Why the later of two that were given a resource may have the smaller token, if it may.
    pub(super) fn excuses_order(&self, [former, later]: [&Hold; 2]) -> Option<Excuse> {
        if former.value == later.value {
            return None;
        }
        let judge = self.judge();
        self.excuse_everywhere(|server| {
            let of_former = grant_of(&judge, former, server)?;
            let of_later = grant_of(&judge, later, server).filter(|of_later| of_former.command < of_later.command);
            if let Some(of_later) = of_later {
                return Some(self.excuses_forgotten_token(&judge, [of_former, of_later]));
            }
            // The later was won first, and its user has it still: both have the lock at once.
            if !self.counts(&judge, former, of_former) {
                return None;
            }
            let votes = judge.votes(&later.value);
            let before = |vote: &&Vote| vote.server == server && vote.grants() && vote.command < of_former.command;
            let last = votes.iter().filter(before).max_by_key(|vote| vote.command)?;
            // By then it did not rest on what had run out here, but on a quorum of others, on which it was extended.
            let stands = |vote: &&Vote| vote.grants() && vote.at < of_former.at && !has_run_out([vote, of_former]);
            let standing: BTreeSet<usize> = votes.iter().filter(stands).map(|vote| vote.server).collect();
            if !standing.contains(&server) && standing.len() >= self.scenario.quorum {
                return None;
            }
            Some(self.excuse_between(&judge, later, [last, of_former]))
        })
    }

    /// The excuse that there is on every server that has to do with both; none if there is no such server.
    fn excuse_everywhere(&self, excuse: impl Fn(usize) -> Option<Option<Excuse>>) -> Option<Excuse> {
        let mut found = None;
        for on_server in (0..self.servers.len()).filter_map(excuse) {
            found = found.or(Some(on_server?));
        }
        found
    }

    /// The votes by which a user may still rely on what it was given.
    fn standing<'a>(&self, judge: &'a Judge, hold: &Hold) -> Vec<&'a Vote> {
        let reading = self.machines[hold.client].clock.reading();
        let stands = |vote: &&Vote| {
            vote.grants() && (vote.is_whole || vote.extends()) && vote.until() > reading && judge.heard(vote).is_some()
        };
        let votes = judge.votes(&hold.value);
        votes.iter().filter(stands).filter(|vote| self.counts(judge, hold, vote)).collect()
    }

    /// Whether what a server granted was a vote: it may vote, or has kept what it had voted for (P10).
    fn counts(&self, judge: &Judge, hold: &Hold, vote: &Vote) -> bool {
        !self.scenario.admission
            || judge.may_vote(vote)
            || judge.kept(&hold.value).contains(&(vote.server, vote.command))
    }

    /// Why a server may vote for another although its vote for a lease has not run out by the clock of the client.
    pub(super) fn excuse_between(&self, judge: &Judge, hold: &Hold, [first, second]: [&Vote; 2]) -> Option<Excuse> {
        if judge.is_taken_away(&hold.value, Some((hold.client, hold.life)), [first, second]) {
            return Some(Excuse::TakenAway);
        }
        let has = |is_of: fn(FaultKind) -> bool| {
            judge.accidents_between([first, second]).any(|accident| is_of(accident.what))
        };
        // Who had seen the clock before does not count the vote; such votes are none of these.
        if has(|what| what == FaultKind::StepForward) {
            return Some(Excuse::ClockStep);
        }
        if !self.scenario.admission && has(loses_data) {
            return Some(Excuse::AdmissionOff);
        }
        if has(|what| matches!(what, FaultKind::LoadNothing | FaultKind::Restore | FaultKind::Resynchronise)) {
            return Some(Excuse::OldCopyUnseen);
        }
        (has_run_out([first, second]) && self.has_stood_still(hold.client, first)).then_some(Excuse::ClockStoodStill)
    }

    /// Why a server may have voted for a smaller token.
    fn excuses_forgotten_token(&self, judge: &Judge, votes: [&Vote; 2]) -> Option<Excuse> {
        let has = |is_of: fn(FaultKind) -> bool| judge.accidents_between(votes).any(|accident| is_of(accident.what));
        if judge.has_odd_token(votes) {
            return Some(Excuse::TakenAway); // it has taken the place of the one that was stored
        }
        if !has(loses_data) {
            return None;
        }
        if !self.scenario.admission {
            return Some(Excuse::OrderWithoutAdmission);
        }
        self.were_apart(judge, votes).then_some(Excuse::WallClocksApart)
    }

    /// A13: whether the wall clock by which a token was made, at any time before the second vote, and that of an instance which has set
    /// its floor since the first one were apart by a quarantine. Steps count by what they change; and a client by as much as it is ahead,
    /// up to the second that it may be (P12).
    fn were_apart(&self, judge: &Judge, [first, second]: [&Vote; 2]) -> bool {
        let walls = |range: std::ops::Range<usize>| {
            let clocks = self.scenario.clocks[range].iter();
            clocks.map(|(_, wall_us)| wall_us.cast_signed()).collect::<Vec<_>>()
        };
        let servers = self.servers.len();
        let mut present = walls(0..servers);
        let ahead = |present: &[i64]| {
            let latest = present.iter().max().copied().unwrap_or_default();
            let clients = walls(servers..self.scenario.clocks.len()).into_iter().max().unwrap_or_default();
            latest.max(clients.min(latest + PROPOSED_AHEAD_US))
        };
        let behind = |present: &[i64]| present.iter().min().copied().unwrap_or_default();
        let (mut latest, mut earliest) = (ahead(&present), i64::MAX);
        for accident in judge.accidents.iter().filter(|accident| accident.step_us != 0 && accident.at <= second.at) {
            if accident.at >= first.at {
                earliest = earliest.min(behind(&present));
            }
            present[accident.server] += accident.step_us;
            latest = latest.max(ahead(&present));
        }
        earliest = earliest.min(behind(&present));
        u128::from((latest - earliest).unsigned_abs()) >= self.scenario.max_ttl.as_micros()
    }

    /// Whether the clock of a client did not count some of the time since it asked for this.
    pub(super) fn has_stood_still(&self, client: usize, since: &Vote) -> bool {
        let passed = self.at().saturating_sub(since.sent.at);
        let counted = self.machines[client].clock.reading().saturating_sub(since.sent.reading);
        passed > counted + passed / 100 + Duration::from_millis(2)
    }

    /// How far servers' clocks were set back, in all.
    pub(crate) fn set_back_in(&self, history: &History) -> Duration {
        let steps = history.marks.iter().filter(|mark| mark.what == FaultKind::StepBack).count();
        crate::chaos::LONGEST_STEP.saturating_mul(u32::try_from(steps).unwrap_or(u32::MAX))
    }
}

/// Whether what the first vote set had run out by the second, or may have.
fn has_run_out([first, second]: [&Vote; 2]) -> bool {
    second.at + Duration::from_millis(2) >= first.at + first.ttl * 98 / 100
}

/// The last vote of a server that granted a lock under its token.
fn grant_of<'a>(judge: &'a Judge, hold: &Hold, server: usize) -> Option<&'a Vote> {
    let is_its = |token: FencingToken| token.get() / TOKENS_OF_A_GRANT == hold.token.get() / TOKENS_OF_A_GRANT;
    let votes = judge.votes(&hold.value);
    let is_grant = |vote: &&Vote| vote.server == server && vote.grants() && vote.is_whole && !vote.extends();
    votes.iter().filter(is_grant).rfind(|vote| vote.token.is_some_and(is_its))
}
