//! P6, P28: what was released is not set again by a copy that comes late.

use redquorum::testing::simulation::{Said, Step, StepKind};

use crate::judge::Judge;

impl Judge {
    pub(crate) fn is_behind_its_release(&mut self, server: usize, step: &Step) -> Option<(&'static str, String)> {
        let rounds = self.rounds.get_mut(&step.value)?;
        let what = |what: &str| format!("{what} of {} at server {server}", String::from_utf8_lossy(&step.value));
        match step.kind {
            StepKind::Release if step.value.first() == Some(&b':') => {
                rounds.released |= 1 << server;
                // Where it was extended, another copy of an extend may still come.
                let was_extended = rounds.votes.iter().any(|vote| vote.server == server && vote.extends());
                let bar = step.token.map(redquorum::FencingToken::tombstone);
                let is_bare = step.token.is_some() && step.after.token < bar;
                (was_extended && is_bare && step.said == Said::Yes)
                    .then(|| ("a release bars late copies", what("the release")))
            }
            // No token bars it: the connection over which it comes is to be ended first.
            StepKind::Set if step.said == Said::Yes && rounds.released & (1 << server) != 0 => {
                Some(("nothing is set behind its release", what("a set")))
            }
            _ => None,
        }
    }
}
