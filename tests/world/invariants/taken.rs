//! Whoever's lock was taken away by force has it no more, one ttl later at most.

use std::time::Duration;

use redquorum::{CurrentHolder, ForcedRelease};
use tokio::time::sleep;

use super::promises::{is_about_a_clock, loses_data};
use crate::history::Hold;
use crate::world::World;

/// What a timer may take.
const SLACK: Duration = Duration::from_millis(20);

/// A lock that a user wants to take away.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    resources: u8,
    /// The machine of a user that is to lose it; `None` if it is kept for a user.
    client: Option<usize>,
    has_holder: bool,
}

impl Taken {
    pub(crate) fn new(resources: u8, by: &CurrentHolder) -> Self {
        let client = by.label.as_ref().and_then(|label| label.strip_prefix('c')?.parse().ok());
        Self { resources, client, has_holder: by.holder.is_some() }
    }

    /// Whether this may be what was taken away.
    fn may_be(&self, hold: &Hold) -> bool {
        self.resources & hold.resources != 0 && self.client == Some(hold.client) && self.has_holder == hold.has_holder
    }
}

impl World {
    /// The locks that a user has who was seen, at this moment.
    pub(crate) fn held_by(&self, taken: &Taken, by: &CurrentHolder) -> Vec<usize> {
        let Some(index) = taken.client else { return Vec::new() };
        let present = self.client(index).filter(|(client, _)| by.client == Some(client.client_id()));
        let Some((_, life)) = present else { return Vec::new() };
        let is_held = |hold: &Hold| taken.may_be(hold) && (hold.client, hold.life) == (index, life) && hold.is_valid();
        let history = self.history();
        (0..history.holds.len()).filter(|number| is_held(&history.holds[*number])).collect()
    }

    /// What was taken away is over once the last extend before that has run out.
    pub(crate) async fn check_taken(&self, forced: &ForcedRelease, held: Vec<usize>) {
        if forced.released_on.len() + forced.not_theirs_on.len() + forced.unknown.len() != self.servers.len() {
            self.violate("a forced release tells of every instance", format!("{forced:?}"));
        }
        let is_everywhere = forced.released_on.len() == self.servers.len();
        if held.is_empty() || !is_everywhere {
            return;
        }
        sleep(self.scenario.ttl * 51 / 50 + SLACK).await;
        let history = self.history();
        // A clock that was stepped or stood still meanwhile counts that time otherwise, and what was forgotten lets it in again.
        let since = self.at().saturating_sub(self.scenario.max_ttl * 3 + SLACK);
        let may_return = history
            .marks
            .iter()
            .filter(|mark| mark.at >= since)
            .any(|mark| is_about_a_clock(mark.what) || (!self.scenario.admission && loses_data(mark.what)));
        let valid = held.into_iter().find(|number| history.holds.get(*number).is_some_and(Hold::is_valid));
        drop(history);
        if let Some(number) = valid.filter(|_| !may_return) {
            self.violate("a lock that was taken away is lost", format!("lock {number}: {forced:?}"));
        }
    }
}
