//! P10: where a lease is renewed, a key that is found missing is asked for by an extend of its own, which sets it again.

use std::time::Duration;

use redquorum::testing::simulation::{Said, Step, StepKind};

use super::promises::is_about_a_clock;
use crate::judge::{Judge, Vote};

/// So many renewals may have found it missing before: an extend may be lost on its way.
const MOST: usize = 2;

/// What was sent at the same time is of one renewal.
const TOGETHER: Duration = Duration::from_millis(1);

impl Judge {
    pub(crate) fn is_not_repaired(
        &self,
        server: usize,
        step: &Step,
        (quorum, timeout): (usize, Duration),
    ) -> Option<(&'static str, String)> {
        if step.kind != StepKind::ExtendMany || step.said != Said::No || step.before.value.is_some() {
            return None;
        }
        // P17: while a clock is in doubt no answer counts.
        if self.accidents.iter().any(|accident| is_about_a_clock(accident.what)) {
            return None;
        }
        let connected = self.connections.get(usize::try_from(step.connection).ok()?)?;
        let (votes, sent) = (&self.rounds.get(&step.value)?.votes, connected.sent(step.begins)?);
        let is_heard = |vote: &Vote| self.heard(vote).is_some_and(|heard| heard.at <= vote.sent.at + timeout / 2);
        let is_renewed = |missing: &Vote| {
            let together =
                |vote: &&Vote| vote.extends() && vote.grants() && vote.sent.at.abs_diff(missing.sent.at) <= TOGETHER;
            votes.iter().filter(|vote| vote.server != server).filter(together).filter(|vote| is_heard(vote)).count()
                >= quorum
        };
        let own = votes.iter().rev().filter(|vote| vote.server == server && vote.extends() && vote.sent.at < sent.at);
        let is_missed = |vote: &&Vote| vote.kind == StepKind::ExtendMany && vote.said == Said::No;
        let missed = own.take_while(is_missed).filter(|vote| is_heard(vote) && is_renewed(vote)).count();
        let what =
            || format!("{} at server {server}: {}", String::from_utf8_lossy(&step.value), self.told(&step.value));
        (missed >= MOST).then(|| ("a missing key is set again", what()))
    }
}
