//! Tasks that lock.

use std::time::Duration;

use redquorum::{Redlock, Renewal};
use tokio::task::JoinSet;
use tokio::time::sleep;

const NAMES: usize = 12;
const TASKS: usize = 24;
const HELD: usize = 6;

/// Some tasks lock the same names again and again, others hold theirs.
pub(crate) struct Load(JoinSet<()>);

impl Load {
    pub(crate) fn start(redlock: &Redlock) -> Self {
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            tasks.spawn(lock_again_and_again(redlock.clone(), format!("orders:{}", task % NAMES)));
        }
        for task in 0..HELD {
            tasks.spawn(hold(redlock.clone(), format!("leader:{task}")));
        }
        Self(tasks)
    }

    pub(crate) async fn end(mut self) {
        self.0.shutdown().await;
    }
}

async fn lock_again_and_again(redlock: Redlock, name: String) {
    let lock = redlock.lock(name).wait_at_most(Duration::from_millis(500));
    loop {
        match lock.acquire().await {
            Ok(guard) => {
                sleep(Duration::from_millis(15)).await;
                drop(guard);
            }
            Err(_) => sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn hold(redlock: Redlock, name: String) {
    let lock = redlock.lock(name).renew(Renewal::Auto);
    loop {
        match lock.try_acquire().await {
            Ok(guard) => drop(guard.lost().await),
            Err(_) => sleep(Duration::from_millis(500)).await,
        }
    }
}
