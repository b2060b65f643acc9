//! However many of one client wait, another client that waits has its turn.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use futures_util::future::join_all;
use redquorum::Redlock;
use tokio::time::sleep;

use crate::world::World;

/// So many of one client wait; and so many of them may be before a user that is known to wait elsewhere: the hand-overs
/// in a row that are the default, twice, for nobody keeps the lock for the one that is woken; and what is under way meanwhile.
const MANY: usize = 40;
const MOST_BEFORE: usize = 36;

impl World {
    pub(super) async fn check_turns(&self, one: &Redlock, other: &Redlock) {
        if self.scenario.in_order != Some(1) {
            return; // then nobody is known to wait
        }
        // A user may be faster than the one that is woken, for whom nobody keeps the lock, but not again and again.
        let mut before = MANY;
        for _ in 0..2 {
            before = match self.served_before(one, other).await {
                Some(served) if served > MOST_BEFORE => before.min(served),
                _ => return,
            };
        }
        self.violate("others have their turn", format!("{before} of one client were first, twice"));
    }

    /// How many of `one` have the lock before `other` has it.
    async fn served_before(&self, one: &Redlock, other: &Redlock) -> Option<usize> {
        let first = self.must_give("for turns", one.lock("turns").try_acquire().await)?;
        let served = Mutex::new(Vec::new());
        let wait = |client: Redlock, is_other: bool| {
            let served = &served;
            async move {
                if let Ok(guard) = client.lock("turns").acquire().await {
                    served.lock().unwrap_or_else(PoisonError::into_inner).push(is_other);
                    sleep(Duration::from_millis(2)).await;
                    drop(guard);
                }
            }
        };
        let release = async {
            sleep(self.scenario.ttl / 2).await; // by then the waiter is known to others
            drop(first);
        };
        let of_one = join_all((0..MANY).map(|_| wait(one.clone(), false)));
        tokio::join!(release, of_one, wait(other.clone(), true));
        let served = served.into_inner().unwrap_or_else(PoisonError::into_inner);
        Some(served.iter().position(|is_other| *is_other).unwrap_or(MANY))
    }
}
