//! More of one client wait for a lock than it may be handed on to in a row.

use futures_util::future::join_all;
use redquorum::{AcquireError, Redlock};

use crate::world::World;

/// More than the hand-overs in a row that are the default.
const MANY: usize = 20;

impl World {
    pub(in crate::invariants) async fn check_crowd(&self, client: &Redlock) {
        let wait = |number: usize| async move {
            let guard = client.lock("crowded").acquire().await?;
            let token = guard.fencing_token();
            if number % 4 == 3 {
                let _ = guard.release().await; // the others just drop theirs
            }
            Ok::<_, AcquireError>(token)
        };
        let results = join_all((0..MANY).map(wait)).await;
        let tokens: Result<Vec<_>, _> = results.into_iter().collect();
        match tokens {
            Ok(tokens) if tokens.is_sorted_by(|one, next| one < next) => {}
            Ok(tokens) => self.violate("a line is served in its order", format!("{tokens:?}")),
            Err(error) => self.violate("everybody in a line gets in", error.to_string()),
        }
    }
}
