//! The work that each system does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;

use crate::Outcome;
use crate::process::now;
use crate::results::Metric;
use crate::system::{Session, System};

/// For how long each piece of work is done.
pub(crate) const LENGTH: Duration = Duration::from_secs(3);

const MANY: usize = 16;
const RIVALS: usize = 8;

/// Of acquire and release by one user; of 16 users, each with names of its own; and of 8 users who want one lock.
pub(crate) async fn round(system: &System) -> Outcome<[Metric; 4]> {
    let mut alone = users(system, 1, false).await?;
    alone.sort_unstable();
    Ok([
        ("pair p50", percentile(&alone, 50)?, "us"),
        ("pair p99", percentile(&alone, 99)?, "us"),
        ("pairs/s", rate(users(system, MANY, false).await?.len()), "1/s"),
        ("sections/s", rate(users(system, RIVALS, true).await?.len()), "1/s"),
    ])
}

/// Has so many users lock and release for a while, each its own lock or all the same; how long each pair took.
async fn users(system: &System, count: usize, is_shared: bool) -> Outcome<Vec<Duration>> {
    let mut sessions = Vec::new();
    for user in 0..count {
        let name = if is_shared { "shared".to_owned() } else { format!("own-{user}") };
        let mut session = system.session(user).await?;
        session.prepare(&name).await?;
        sessions.push((session, name));
    }
    let is_inside = Arc::<AtomicBool>::default();
    let mut tasks = JoinSet::new();
    for (session, name) in sessions {
        let is_inside = is_shared.then(|| Arc::clone(&is_inside));
        tasks.spawn(again_and_again(session, name, is_inside));
    }
    let mut all = Vec::new();
    while let Some(times) = tasks.join_next().await {
        all.extend(times??);
    }
    Ok(all)
}

async fn again_and_again(
    mut session: Session,
    name: String,
    is_inside: Option<Arc<AtomicBool>>,
) -> Outcome<Vec<Duration>> {
    let begun = now();
    let mut times = Vec::new();
    while begun.elapsed() < LENGTH {
        let start = now();
        let held = session.acquire(&name).await?;
        if let Some(is_inside) = &is_inside {
            if is_inside.swap(true, Ordering::SeqCst) {
                return Err("two had the lock at once".into());
            }
            tokio::task::yield_now().await;
            is_inside.store(false, Ordering::SeqCst);
        }
        session.release(&name, held).await?;
        times.push(start.elapsed());
    }
    Ok(times)
}

fn rate(count: usize) -> f64 {
    count as f64 / LENGTH.as_secs_f64()
}

fn percentile(sorted: &[Duration], percent: usize) -> Outcome<f64> {
    let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    Ok(sorted.get(at).ok_or("nothing was done")?.as_secs_f64() * 1e6)
}
