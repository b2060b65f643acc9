//! Waiting for a lock, and telling people for whom: at a terminal on one line, elsewhere now and then.

use std::time::Duration;

use redquorum::{AcquireError, AdmissionStatus, InstanceStatus, Redlock};
use tokio::time::sleep;

use crate::inspect::shown;
use crate::output::{self, ProgressLine};

/// A shorter wait is not reported.
const PATIENCE: Duration = Duration::from_millis(500);

/// How often the wait is reported, at a terminal and in a log.
const INTERVAL: Duration = Duration::from_secs(1);
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Waits for what is `acquired` of these names.
pub(super) async fn acquire<T>(
    redlock: &Redlock,
    acquired: impl Future<Output = Result<T, AcquireError>>,
    names: &[String],
) -> Result<T, AcquireError> {
    let line = ProgressLine::new();
    tokio::select! {
        acquired = acquired => acquired,
        never = show_progress(redlock, names, line) => match never {},
    }
}

async fn show_progress(redlock: &Redlock, names: &[String], mut line: ProgressLine) -> std::convert::Infallible {
    sleep(PATIENCE).await;
    loop {
        if let Some(text) = why_it_waits(redlock, names).await {
            if line.is_terminal() { line.show(&text) } else { output::say(&text) }
        }
        sleep(if line.is_terminal() { INTERVAL } else { LOG_INTERVAL }).await;
    }
}

/// As the instances see it now; nothing if they cannot be reached.
async fn why_it_waits(redlock: &Redlock, names: &[String]) -> Option<String> {
    let mut free = None;
    for name in names {
        let inspection = redlock.inspect(name.as_str()).await.ok()?;
        let name = shown(name);
        let instances = redlock.instances().len();
        let answered = instances - inspection.unknown.len();
        if answered < inspection.quorum {
            let quorum = inspection.quorum;
            return Some(format!("waiting for {name}: {answered} of {instances} instances answer, {quorum} needed"));
        }
        if let Some(holder) = inspection.holders.first() {
            let left = holder.expires_in.map(|left| format!(", {:.1} s left", left.as_secs_f64())).unwrap_or_default();
            return Some(format!("waiting for {name}, held by {} on {}/{instances}{left}", holder.by, holder.on.len()));
        }
        let votes = || too_few_votes(&redlock.instances(), inspection.quorum).map(|why| format!(": {why}"));
        free.get_or_insert_with(|| format!("waiting for {name}{}", votes().unwrap_or_default()));
    }
    free
}

/// Why no client gets a lock that is free: how many instances may vote, and when enough of the others may.
fn too_few_votes(instances: &[InstanceStatus], quorum: usize) -> Option<String> {
    let votes =
        |it: &&InstanceStatus| it.connected && matches!(it.admission, AdmissionStatus::Admitted | AdmissionStatus::Off);
    let may_vote = instances.iter().filter(votes).count();
    let missing = quorum.saturating_sub(may_vote);
    let last_needed = missing.checked_sub(1)?;
    let mut quarantines: Vec<Duration> = instances.iter().filter_map(quarantine).collect();
    quarantines.sort_unstable();
    let left =
        quarantines.get(last_needed).map(|left| format!(", in quarantine for another {:.1} s", left.as_secs_f64()));
    let of = instances.len();
    Some(format!("{may_vote} of {of} instances may vote, {quorum} needed{}", left.unwrap_or_default()))
}

fn quarantine(instance: &InstanceStatus) -> Option<Duration> {
    match instance.admission {
        AdmissionStatus::Quarantine(left) if instance.connected => Some(left),
        _ => None,
    }
}
