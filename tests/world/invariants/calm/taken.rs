//! A lock is taken away by force from a user that was seen to have it, and from nobody else.

use redquorum::{CurrentHolder, ForcedRelease, Redlock};
use tokio::time::timeout;

use crate::world::World;

/// The lock of this scene.
const NAME: &str = "taken";

impl World {
    pub(in crate::invariants) async fn check_taken_away(&self, one: &Redlock, other: &Redlock) {
        let Some(first) = self.must_give("to be seen", one.lock(NAME).try_acquire().await) else { return };
        let Some(former) = self.seen_by(other, one).await else { return };
        let _ = first.release().await;
        let Some(second) = self.must_give("after who was seen", other.lock(NAME).try_acquire().await) else { return };
        let forced = one.force_release(NAME, &former).await;
        if !forced.is_ok_and(|forced| forced.released_on.is_empty()) || second.extend().await.is_err() {
            self.violate("only a holder that was seen is taken away", format!("{second:?}"));
        }
        let Some(present) = self.seen_by(one, other).await else { return };
        let forced = one.force_release(NAME, &present).await;
        // It may be missing where a packet is slow: the release before it, or what set it, is still on its way there.
        let is_gone =
            |forced: &ForcedRelease| forced.unknown.is_empty() && forced.released_on.len() >= self.scenario.quorum;
        if !forced.as_ref().is_ok_and(is_gone) {
            self.violate("a lock is taken away on every instance", format!("{forced:?}"));
        }
        // It is told by push, or by its next renewal, a third of the ttl later at most.
        if timeout(self.scenario.ttl / 2, second.lost()).await.is_err() {
            self.violate("a lock that was taken away is lost", format!("{second:?}"));
        }
        drop(self.must_give("was taken away", one.lock(NAME).try_acquire().await));
    }

    /// Who has the lock, as a client sees it: this one.
    async fn seen_by(&self, client: &Redlock, holder: &Redlock) -> Option<CurrentHolder> {
        let seen = client.inspect(NAME).await;
        let by = seen.as_ref().ok()?.holder().map(|holder| holder.by.clone());
        let by = by.filter(|by| by.client == Some(holder.client_id()));
        if by.is_none() {
            self.violate("whoever has a lock is seen", format!("{seen:?}"));
        }
        by
    }
}
