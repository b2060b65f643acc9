//! P2, P4: what is left of a lease is never more than what a quorum has granted, each from when it was asked for, less
//! the drift. P9: and what was over by the time that an answer came is not extended by it.

use crate::judge::Vote;
use crate::world::World;

impl World {
    pub(super) fn check_certified(&self, number: usize) {
        let Some((value, client, until)) = self.relied_on(number) else { return };
        let judge = self.judge();
        // P32: one that was moved rests on what its new client was told.
        let counts = |vote: &Vote| (vote.is_whole || vote.extends()) && judge.asked_by(vote) == Some(client);
        let certified = judge.certified(&value, self.scenario.quorum, counts);
        let kept = judge.kept_until(&value, self.scenario.quorum, counts);
        // It begins anew where it was attached, by the client that had it before, too.
        let attached = self.history().holds.get(number).and_then(|hold| hold.attached);
        let kept = attached.map_or(kept, |attached| {
            let counts = |vote: &Vote| counts(vote) && vote.sent.at >= attached.since;
            kept.max(judge.kept_until(&value, self.scenario.quorum, counts))
        });
        drop(judge);
        if until > certified {
            let votes = self.judge().told(&value);
            let what = format!("lock {number} until {until:?} instead of {certified:?}: {votes}");
            self.violate("a lease is no longer than what was granted", what);
        }
        if until > kept {
            let votes = self.judge().told(&value);
            let what = format!("lock {number} until {until:?} instead of {kept:?}: {votes}");
            self.violate("what is over is not extended", what);
        }
    }
}
