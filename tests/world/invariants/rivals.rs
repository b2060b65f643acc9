//! P31: a try ends as contended only by what shows that a user holds the lock. P12: a round that stored tokens alone have
//! lost is repeated under its own value. Both where each client has one user, who waits for every answer.

use std::collections::BTreeSet;
use std::time::Duration;

use redquorum::testing::simulation::{Said, Step, StepKind};

use crate::demand::NAMES;
use crate::history::Hold;
use crate::judge::{Judge, Vote};
use crate::world::World;

/// The part of an instance timeout after which a rival that still stands in the way has not lost.
const PATIENCE_DIVISOR: u32 = 8;

/// A step of a timer.
const TICK: Duration = Duration::from_millis(1);

/// So often a round is repeated at most, on three servers.
const REPEATS: usize = 3;

/// A value that stood in the way of a round.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    client: (usize, u64),
    server: usize,
    key: Vec<u8>,
    rival: Vec<u8>,
    sent: Duration,
}

impl Judge {
    pub(crate) fn note_refusal(&mut self, step: &Step, vote: &Vote) {
        let is_it = matches!(vote.kind, StepKind::Set | StepKind::Acquire) && vote.said == Said::No && vote.is_others;
        let (Some(client), Some(rival), true) = (self.asked_by(vote), step.before.value.clone(), is_it) else { return };
        let (server, key, sent) = (vote.server, step.key.clone(), vote.sent.at);
        self.refusals.push(Refusal { client, server, key, rival, sent });
    }

    /// A release of what was never won, although it was worth a repeat.
    pub(crate) fn is_not_repeated(
        &self,
        step: &Step,
        (quorum, in_time, [least, doubted]): (usize, Duration, [Duration; 2]),
    ) -> Option<(&'static str, String)> {
        let rounds = self.rounds.get(&step.value).filter(|rounds| rounds.given == 0)?;
        let connected = self.connections.get(usize::try_from(step.connection).ok()?)?;
        let sent = connected.sent(step.begins).filter(|_| step.kind == StepKind::Release)?;
        if self.is_doubted(None, sent.at.saturating_sub(doubted)) {
            return None;
        }
        let asks = |vote: &&Vote| matches!(vote.kind, StepKind::Set | StepKind::Acquire);
        let tokens: BTreeSet<_> = rounds.votes.iter().filter(asks).filter_map(|vote| vote.token).collect();
        let last = tokens.last().copied().filter(|_| tokens.len() <= REPEATS)?;
        let of_last = || rounds.votes.iter().filter(asks).filter(|vote| vote.token == Some(last));
        let begun = of_last().map(|vote| vote.sent.at).min()?;
        let (mut answered, mut stale, mut could) = (0_u8, 0, 0);
        for vote in of_last() {
            let is_clear = |at: Duration, until: Duration| at + TICK * 2 < until;
            let heard = self.heard(vote).filter(|heard| is_clear(heard.at, sent.at + TICK * 3))?;
            if heard.at > begun + in_time {
                return None;
            }
            if heard.reading + least >= vote.until() || vote.said == Said::NotAdmitted || vote.said == Said::Other {
                return None;
            }
            answered |= 1 << vote.server;
            stale += usize::from(vote.is_stale);
            could += usize::from(vote.is_stale || vote.grants());
        }
        let is_due =
            answered.count_ones() as usize == self.servers_of(connected.client) && stale > could - quorum.min(could);
        (is_due && could >= quorum && stale > 0)
            .then(|| ("a round that stale tokens alone have lost is repeated", self.told(&step.value)))
    }

    /// How many servers a client has been connected to.
    fn servers_of(&self, client: (usize, u64)) -> usize {
        let servers = self.connections.iter().filter(|connected| connected.client == client);
        servers.map(|connected| connected.server).collect::<BTreeSet<_>>().len()
    }
}

impl World {
    /// A try that was begun then has ended as contended.
    pub(crate) fn check_contended(&self, client: (usize, u64), resources: u8, begun: Duration) {
        if resources.count_ones() > 1 {
            return; // of those behind the first it is not noted who refused them
        }
        self.absorb();
        let has_it = |hold: &Hold| hold.resources & resources != 0 && (hold.given_at >= begun || hold.is_valid());
        if self.history().holds.iter().any(has_it) {
            return; // a user does hold it, or did meanwhile
        }
        let key = NAMES[resources.trailing_zeros() as usize].as_bytes();
        let judge = self.judge();
        if judge.is_doubted(None, begun.saturating_sub(self.scenario.max_ttl * 3)) {
            return; // a clock that is put forward counts as time that has passed
        }
        let its = |refusal: &&Refusal| refusal.client == client && refusal.key == key && refusal.sent >= begun;
        let refusals: Vec<&Refusal> = judge.refusals.iter().filter(its).collect();
        let patience = (self.scenario.instance_timeout / PATIENCE_DIVISOR).saturating_sub(TICK);
        let holds = |rival: &&Refusal| {
            let same = || refusals.iter().filter(|refusal| refusal.rival == rival.rival);
            let on = same().map(|refusal| refusal.server).collect::<BTreeSet<_>>().len();
            on >= self.scenario.quorum || same().any(|later| later.sent >= rival.sent + patience)
        };
        // A plain acquire that is refused may find that what refused it has just gone, and cannot tell whose it was.
        let refused_at = |sent: Duration| refusals.iter().filter(|refusal| refusal.sent == sent).count();
        let is_refused = refusals.iter().any(|refusal| refused_at(refusal.sent) >= self.scenario.quorum);
        let shows = is_refused || refusals.iter().copied().any(|rival| holds(&rival));
        let told = (!shows).then(|| format!("client {client:?} since {begun:?}: {refusals:?}"));
        drop(judge);
        if let Some(told) = told {
            self.violate("a try is contended only by who holds the lock", told);
        }
    }
}
