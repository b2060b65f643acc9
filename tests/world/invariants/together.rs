//! P35, P36: never more permits than there are, and a leader is told under the token that it was given.

use std::time::Duration;

use redquorum::{FencingToken, Leader};

use crate::deeds::Deed;
use crate::history::Hold;
use crate::sharers::{MOST_PERMITS, PERMITS};
use crate::time::now;
use crate::world::World;

/// The bits of all permits among resources.
const PERMIT_BITS: u8 = 0b101_1000;

impl World {
    /// A user was given the lead under this token.
    pub(crate) fn leads(&self, info: &str, token: FencingToken) {
        self.history().leaders.insert(info.to_owned(), (token, now()));
    }

    /// A user that asked at this time was told of a leader. One that nobody was given yet is no business of anybody.
    ///
    /// Who asked before it was given may see the value of an earlier try, whose answers were lost.
    pub(crate) fn check_leader(&self, leader: &Leader, asked: Duration) {
        let Some((given, since)) = self.history().leaders.get(&leader.info).copied() else { return };
        if leader.token > given || since < asked && leader.token != given {
            self.violate("a leader is shown under its token", format!("{leader:?}, given {given}"));
        }
    }

    /// Of permits and readers, when one more is given.
    pub(super) fn check_together(&self, number: usize) {
        let mut history = self.history();
        let Some(new) = history.holds.get(number) else { return };
        let others = |of: fn(&Hold) -> bool| {
            let others = history.holds[..number].iter().filter(|hold| of(hold) && hold.is_valid());
            others.count()
        };
        if new.reads && others(|hold| hold.reads) > 0 {
            history.stats.did(Deed::ReadTogether);
        } else if new.resources & PERMIT_BITS != 0 {
            // Two of one index are an overlap, which is judged as such.
            let is_beside = |number: usize| {
                let pairs = history.excused_pairs.iter();
                pairs.into_iter().any(|[one, other]| *other == number && history.holds[*one].is_valid())
            };
            let is_permit = |hold: &Hold| hold.resources & PERMIT_BITS != 0 && hold.is_valid();
            let counts = |number: &usize| is_permit(&history.holds[*number]) && !is_beside(*number);
            let permits = (0..=number).filter(counts).count();
            let most = if self.scenario.is_moved { MOST_PERMITS } else { PERMITS };
            if permits > most as usize {
                history.violate(self.at(), "never more permits than there are", format!("{permits} are valid"));
            }
        }
    }
}
