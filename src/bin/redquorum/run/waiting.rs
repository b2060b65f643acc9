//! Waiting for a lock, and telling people for whom: at a terminal on one line, elsewhere now and then.

use std::time::Duration;

use redquorum::{AdmissionStatus, InstanceStatus, Redlock};
use tokio::time::sleep;

use crate::inspect::{has, reasons, shown};
use crate::output::{self, ProgressLine};

/// A shorter wait is not reported.
const PATIENCE: Duration = Duration::from_millis(500);

/// How often the wait is reported, at a terminal and in a log.
const INTERVAL: Duration = Duration::from_secs(1);
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Waits for what is `acquired` of these names: locks, or the connections for them.
pub(super) async fn acquire<T>(redlock: &Redlock, acquired: impl Future<Output = T>, names: &[String]) -> T {
    let line = ProgressLine::new();
    tokio::select! {
        acquired = acquired => acquired,
        never = show_progress(redlock, names, line) => match never {},
    }
}

async fn show_progress(redlock: &Redlock, names: &[String], mut line: ProgressLine) -> std::convert::Infallible {
    let mut shown = String::new();
    sleep(PATIENCE).await;
    loop {
        if let Some((text, obstacles)) = why_it_waits(redlock, names).await {
            let is_new = !obstacles.is_empty() && obstacles != shown;
            // What an instance says is longer than a line of a terminal: there it is said once.
            if is_new || !line.is_terminal() {
                line.clear();
                output::say(&format!("{text}{obstacles}"));
            }
            line.show(&text);
            shown = obstacles;
        }
        sleep(if line.is_terminal() { INTERVAL } else { LOG_INTERVAL }).await;
    }
}

/// As the instances see it now, and what keeps some of them from giving the lock.
async fn why_it_waits(redlock: &Redlock, names: &[String]) -> Option<(String, String)> {
    let mut free = None;
    for name in names {
        let inspection = redlock.inspect(name.as_str()).await.ok()?;
        let name = shown(name);
        let instances = redlock.instances();
        let (all, quorum) = (instances.len(), inspection.quorum);
        let answered = all - inspection.unknown.len();
        if answered < quorum {
            let text = format!("waiting for {name}: {answered} of {all} instances answer, {quorum} needed");
            return Some((text, format!("; {}", reasons(&inspection.unknown))));
        }
        if let Some(holder) = inspection.holders.first() {
            let left = holder.expires_in.map(|left| format!("{:.1} s left", left.as_secs_f64()));
            let left = left.unwrap_or_else(|| "never expires".to_owned());
            let text = format!("waiting for {name}, {} on {}/{all}, {left}", has(holder), holder.on.len());
            return Some((text, String::new()));
        }
        free.get_or_insert_with(|| match too_few_votes(&instances, quorum) {
            Some(why) => (format!("waiting for {name}: {why}"), obstacles(&instances)),
            None => (format!("waiting for {name}"), String::new()),
        });
    }
    free
}

/// Whether an instance gives votes, as far as is known without a request.
fn votes(instance: &InstanceStatus) -> bool {
    let may_vote = matches!(instance.admission, AdmissionStatus::Admitted | AdmissionStatus::Off);
    instance.connected && may_vote && instance.trouble.is_none()
}

/// Why no client gets a lock that is free: how many instances may vote, and when enough of the others may.
fn too_few_votes(instances: &[InstanceStatus], quorum: usize) -> Option<String> {
    let may_vote = instances.iter().filter(|instance| votes(instance)).count();
    let missing = quorum.saturating_sub(may_vote);
    let last_needed = missing.checked_sub(1)?;
    let mut quarantines: Vec<Duration> = instances.iter().filter_map(quarantine).collect();
    quarantines.sort_unstable();
    let left =
        quarantines.get(last_needed).map(|left| format!(", in quarantine for another {:.1} s", left.as_secs_f64()));
    let of = instances.len();
    Some(format!("{may_vote} of {of} instances may vote, {quorum} needed{}", left.unwrap_or_default()))
}

/// What does not end by itself, of each instance that gives no vote; what several have in common once.
fn obstacles(instances: &[InstanceStatus]) -> String {
    let obstacle = |instance: &InstanceStatus| match &instance.trouble {
        _ if !instance.connected => instance.last_error.clone(),
        Some(trouble) => Some(trouble.cause.to_string()),
        None => instance.refusal.clone(),
    };
    let mut found: Vec<(Vec<&str>, String)> = Vec::new();
    for instance in instances {
        let Some(what) = obstacle(instance) else { continue };
        match found.iter_mut().find(|(_, other)| *other == what) {
            Some((addresses, _)) => addresses.push(&instance.address),
            None => found.push((vec![&instance.address], what)),
        }
    }
    found.iter().map(|(addresses, what)| format!("; {}: {what}", addresses.join(", "))).collect()
}

fn quarantine(instance: &InstanceStatus) -> Option<Duration> {
    match instance.admission {
        AdmissionStatus::Quarantine(left) if instance.connected => Some(left),
        _ => None,
    }
}
