//! No key is left after its bound, and none is renewed after its release.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::exclusion::LONGEST_FAULT;
use crate::faults::FaultKind;
use crate::history::History;
use crate::users::names;
use crate::world::World;

/// A key on a server: its name and its value.
type Key = (usize, Vec<u8>, Vec<u8>);

impl World {
    /// The keys of a lock that a client has now: nobody else can have set them.
    pub(crate) fn keys_of(&self, client: usize, resources: u8) -> Vec<Key> {
        let label = format!(":c{client}");
        let names = names(resources);
        let is_of_lock = |key: &Key| {
            names.iter().any(|name| name.as_bytes() == key.1)
                && key.2.ends_with(label.as_bytes())
                && key.2.starts_with(b":")
        };
        self.all_keys().filter(is_of_lock).collect()
    }

    fn all_keys(&self) -> impl Iterator<Item = Key> {
        self.servers
            .iter()
            .enumerate()
            .flat_map(|(index, server)| server.locks().into_iter().map(move |(key, value)| (index, key, value)))
    }

    /// What was let go runs out: late copies may set it once more, and nobody renews it.
    pub(crate) fn check_goes(self: &Arc<Self>, keys: Vec<Key>) {
        if keys.is_empty() {
            return;
        }
        let world = Arc::clone(self);
        tokio::spawn(async move {
            sleep(world.scenario.max_ttl * 3 + LONGEST_FAULT).await;
            let set_back = world.set_back();
            sleep(set_back).await;
            let has_old_data = world.history().marks.iter().any(|mark| {
                use FaultKind::{FailOver, Kill, RestartOld, Restore, Resynchronise};
                matches!(mark.what, FailOver | Kill | RestartOld | Restore | Resynchronise)
            });
            let left = world.all_keys().find(|key| keys.contains(key));
            if let Some((server, key, _)) = left.filter(|_| !has_old_data) {
                let what = format!("{:?} at server {server}", String::from_utf8_lossy(&key));
                world.violate("what was let go is not renewed", what);
            }
        });
    }

    /// At the end, when all that was held was let go long ago.
    pub(crate) fn check_no_keys(&self) {
        if let Some((server, key, _)) = self.all_keys().next() {
            let what = format!("{:?} at server {server}", String::from_utf8_lossy(&key));
            self.violate("no key is left", what);
        }
    }

    pub(crate) fn set_back_in(&self, history: &History) -> Duration {
        let steps = history.marks.iter().filter(|mark| mark.what == FaultKind::StepBack).count();
        crate::chaos::LONGEST_STEP.saturating_mul(u32::try_from(steps).unwrap_or(u32::MAX))
    }
}
