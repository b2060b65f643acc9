//! P6, P28: what was released is not set again by a copy that comes late.

use redquorum::testing::simulation::{Said, Step, StepKind};

use crate::judge::Judge;

impl Judge {
    pub(crate) fn is_behind_its_release(&mut self, server: usize, step: &Step) -> Option<(&'static str, String)> {
        let asks = usize::try_from(step.connection).ok().and_then(|at| self.connections.get(at));
        let is_denied = self.denied(server, step).is_some();
        let client = asks.map(|connected| connected.client)?;
        let rounds = self.rounds.get_mut(&step.value)?;
        let what = |what: &str| format!("{what} of {} at server {server}", String::from_utf8_lossy(&step.value));
        match step.kind {
            StepKind::Release if step.value.first() == Some(&b':') => {
                rounds.released.insert((server, client));
                // Where it was extended, another copy of an extend may still come.
                let was_extended = rounds.votes.iter().any(|vote| vote.server == server && vote.extends());
                (was_extended && !is_denied && !step.after.is_released && step.said == Said::Yes)
                    .then(|| ("a release bars late copies", what("the release")))
            }
            // No token bars it: the connection over which it comes is to be ended first, by the client that releases. Of a lease that
            // was moved (P32), a client with a copy does not end connections of another.
            StepKind::Set if step.said == Said::Yes => {
                let by_itself = rounds.released.contains(&(server, client));
                let by_any = || !rounds.has_copies && rounds.released.iter().any(|(on, _)| *on == server);
                (by_itself || by_any()).then(|| ("nothing is set behind its release", what("a set")))
            }
            _ => None,
        }
    }
}
