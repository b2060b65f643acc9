//! What is wrong with an instance, and what to do about it.

use std::time::Duration;

use redquorum::operator::{Examination, ServerDetails};
use redquorum::{AdmissionStatus, InstanceStatus, ReplyKind};

use crate::output::{offset, time, with_options};

/// Clocks that differ by so much are not synchronised.
const FAR_APART: Duration = Duration::from_secs(1);

/// What should be different.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// Whether locks are not safe, or cannot be had, because of it.
    pub(crate) is_severe: bool,
    /// What, and what to do.
    pub(crate) text: String,
}

/// Why it does not vote for a client with these settings, though it is connected, and whether that is severe.
fn about_votes(seen: &InstanceStatus) -> Option<(bool, String)> {
    Some(match (seen.admission, &seen.refusal) {
        (AdmissionStatus::Quarantine(left), _) => {
            let left = time(left);
            (
                false,
                match seen.flushed_ago.map(time) {
                    Some(ago) => format!(
                        "a database of it was flushed {ago} ago, and it votes in {left}; every flush, of any of its databases, \
                         begins that anew: give locks servers of their own"
                    ),
                    None => {
                        format!("it may have forgotten locks and votes in {left}; wait before another is restarted")
                    }
                },
            )
        }
        (AdmissionStatus::Refused, Some(reason)) => (true, format!("it does not fit these settings: {reason}")),
        (AdmissionStatus::Unrecorded, _) => {
            let waits = "it waits for max_ttl from when a client wants a lock; new servers need not, see 'redquorum admission open'";
            (false, format!("it has no admission record, as when it is new, or after a restart or a flush; {waits}"))
        }
        _ => return None,
    })
}

/// Whether its memory is at its limit.
pub(crate) fn is_full(details: &ServerDetails) -> bool {
    details.memory_limit.is_some_and(|limit| details.memory_used > limit)
}

/// What is wrong with an instance, as far as a client and the instance itself can see. Its twin is an address that
/// leads to the same process.
pub(crate) fn problems(
    seen: &InstanceStatus,
    asked: &Examination,
    twin: Option<&str>,
    instance_timeout: Duration,
) -> Vec<Problem> {
    let mut found = Vec::new();
    let mut add = |is_severe, text: String| found.push(Problem { is_severe, text: with_options(&text) });
    if !seen.connected {
        add(true, seen.last_error.clone().unwrap_or_else(|| "not connected".to_owned()));
        return found;
    }
    if let Some((is_severe, text)) = about_votes(seen) {
        add(is_severe, text);
    }
    if let Some(trouble) = &seen.trouble {
        add(true, format!("{} ({} ago)", trouble.cause, time(trouble.age)));
    }
    if seen.clock_steps > 0 {
        add(false, format!("its clock was set {} times while it was watched; slew it instead", seen.clock_steps));
    }
    let details = match &asked.answer {
        Ok(details) => details,
        Err(cause) => {
            add(true, cause.to_string());
            return found;
        }
    };
    // With admission its client reports both, and does not use it.
    if !details.is_master {
        add(true, "it is a replica; locks need an independent master at this address".to_owned());
    }
    if let Some(address) = twin {
        add(true, format!("it is the same server process as {address}; every instance has one vote"));
    }
    if details.is_in_cluster_mode {
        add(true, "it is in cluster mode; locks need standalone masters".to_owned());
    }
    if details.replicas > 0 {
        let replicas = details.replicas;
        add(false, format!("it has replicas ({replicas}); remove them, a failover to one forgets locks"));
    }
    if details.memory_limit.is_some() && details.eviction_policy != "noeviction" {
        let policy = &details.eviction_policy;
        add(true, format!("it may evict locks ({policy}); set maxmemory-policy noeviction"));
    }
    if let Some(limit) = details.memory_limit.filter(|limit| details.memory_used > limit / 10 * 9) {
        let (used, limit) = (details.memory_used >> 20, limit >> 20);
        let text = format!("it uses {used} of {limit} MiB; raise maxmemory, a full instance grants nothing");
        add(is_full(details), text);
    }
    match &details.refuses_writes {
        Some(cause) if cause.kind() == ReplyKind::TimedOut => {
            add(true, "it answers, and carries out no write: it may be paused, see CLIENT UNPAUSE".to_owned());
        }
        Some(_) if is_full(details) => {}
        Some(cause) => add(true, format!("it refuses writes: {cause}")),
        None => {}
    }
    if details.clock_offset.distance() > FAR_APART + details.round_trip {
        let offset = offset(details.clock_offset);
        add(false, format!("its clock and this machine's differ by {offset}; keep both by NTP"));
    }
    if details.round_trip > instance_timeout / 4 {
        let (trip, limit) = (time(details.round_trip), time(instance_timeout));
        add(false, format!("a round trip takes {trip} of an instance timeout of {limit}; use a longer timeout"));
    }
    details.other_lists.iter().flatten().for_each(|list| add(true, list.to_string()));
    if !details.pushes_changes {
        add(false, "CLIENT TRACKING is denied: replaced data may go unnoticed; grant client|tracking".to_owned());
    }
    if !details.wakes_waiters {
        add(false, "SUBSCRIBE is denied: waiters are not woken; grant subscribe and the channels".to_owned());
    }
    found
}
