//! Asks a server about itself, and for the names of keys. These requests do not wait in the send queue: nothing depends on
//! their order.

use std::future::{Future, ready};
use std::sync::Arc;
use std::time::Duration;

use redis::{RedisResult, Value};
use tokio::time::timeout;

use super::admission::server_info::{field, version, word};
use super::classify::failed;
use super::connection::InstanceConnection;
use super::wire::Wire;
use crate::clock::Clock;
use crate::instance::{ClockOffset, ExamineFuture, FoundKeys, ScanFuture, ServerDetails};
use crate::protocol::Cause;

/// How many round trips are measured.
const TRIPS: usize = 3;

/// What is under the keys of locks: a value, or readers.
const LOCK_TYPES: [&str; 2] = ["string", "zset"];

/// How many keys a server looks at in one command: some tenths of a millisecond of its time.
const STEP: usize = 500;

pub(super) fn examine(connection: &Arc<InstanceConnection>, clock: Arc<dyn Clock>) -> ExamineFuture {
    if connection.is_silent() {
        return Box::pin(ready(Err(Cause::Silent)));
    }
    let (wire, deadline) = (connection.wire().clone(), connection.deadline());
    let (pushes_changes, wakes_waiters) = (connection.is_tracking(), connection.hears());
    Box::pin(async move {
        let details = ask(wire, deadline, &*clock).await?;
        Ok(ServerDetails { pushes_changes, wakes_waiters, ..details })
    })
}

async fn ask(mut wire: Wire, deadline: Duration, clock: &dyn Clock) -> Result<ServerDetails, Cause> {
    let (mut round_trip, mut clock_offset) = (Duration::MAX, ClockOffset::default());
    for _ in 0..TRIPS {
        let (sent, wall_us) = (clock.now(), clock.wall_us());
        let (seconds, micros): (u64, u64) = within(deadline, redis::cmd("TIME").query_async(&mut wire)).await?;
        let took = clock.now().saturating_since(sent);
        if took < round_trip {
            round_trip = took;
            let its = Duration::from_secs(seconds).saturating_add(Duration::from_micros(micros));
            clock_offset = ClockOffset::of(its, Duration::from_micros(wall_us).saturating_add(took / 2));
        }
    }
    let mut sections = redis::pipe();
    for section in ["server", "replication", "memory", "persistence", "cluster"] {
        sections.cmd("INFO").arg(section);
    }
    let info: Vec<String> = within(deadline, sections.query_async(&mut wire)).await?;
    let snapshots = redis::cmd("CONFIG").arg("GET").arg("save").to_owned();
    let snapshots = within(deadline, snapshots.query_async(&mut wire)).await;
    let details = from_info(&info.concat(), snapshots.ok().as_ref());
    Ok(ServerDetails { round_trip, clock_offset, ..details })
}

fn from_info(info: &str, snapshots: Option<&Value>) -> ServerDetails {
    let number = |name| field(info, name).parse::<u64>().ok();
    ServerDetails {
        version: version(info),
        process: word(field(info, "run_id")),
        is_master: field(info, "role") == "master",
        replicas: number("connected_slaves").unwrap_or(0),
        is_in_cluster_mode: field(info, "cluster_enabled") == "1",
        appends_to_file: field(info, "aof_enabled") == "1",
        saves_snapshots: snapshots.and_then(saves_snapshots),
        memory_limit: number("maxmemory").filter(|limit| *limit > 0),
        memory_used: number("used_memory").unwrap_or(0),
        eviction_policy: word(field(info, "maxmemory_policy")),
        ..ServerDetails::default()
    }
}

/// From the pair of the name and its value, which is empty where it is turned off.
fn saves_snapshots(config: &Value) -> Option<bool> {
    let value = match config {
        Value::Map(pairs) => pairs.first().map(|(_, value)| value),
        Value::Array(items) => items.get(1),
        _ => None,
    };
    match value? {
        Value::BulkString(text) => Some(!text.is_empty()),
        Value::SimpleString(text) => Some(!text.is_empty()),
        _ => None,
    }
}

async fn within<T>(deadline: Duration, answer: impl Future<Output = RedisResult<T>>) -> Result<T, Cause> {
    match timeout(deadline, answer).await {
        Ok(answer) => answer.map_err(|error| failed(&error)),
        Err(_) => Err(Cause::TimedOut),
    }
}

/// Looks at about `most` keys, each step within the deadline.
pub(super) fn scan(connection: &Arc<InstanceConnection>, pattern: Vec<u8>, most: usize) -> ScanFuture {
    if connection.is_silent() {
        return Box::pin(ready(Err(Cause::Silent)));
    }
    let (mut wire, deadline) = (connection.wire().clone(), connection.deadline());
    Box::pin(async move {
        let mut found = FoundKeys { keys: Vec::new(), are_all: true };
        for kind in LOCK_TYPES {
            let (mut cursor, mut looked_at) = (0_u64, 0_usize);
            loop {
                let mut step = redis::cmd("SCAN");
                step.arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(STEP).arg("TYPE").arg(kind);
                let (next, keys): (u64, Vec<Vec<u8>>) = within(deadline, step.query_async(&mut wire)).await?;
                found.keys.extend(keys);
                (cursor, looked_at) = (next, looked_at.saturating_add(STEP));
                if cursor == 0 || looked_at >= most {
                    found.are_all &= cursor == 0;
                    break;
                }
            }
        }
        Ok(found)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_is_read() {
        let info = "run_id:ab12\r\nvalkey_version:9.1.2\r\nrole:master\r\nconnected_slaves:2\r\nmaxmemory:0\r\nused_memory:7\r\n\
            maxmemory_policy:noeviction\r\naof_enabled:1\r\ncluster_enabled:0\r\n";
        let details = from_info(info, None);
        assert_eq!((details.version.as_str(), details.is_master, details.replicas), ("valkey 9.1.2", true, 2));
        assert_eq!(details.process, "ab12");
        assert_eq!((details.memory_limit, details.memory_used, details.saves_snapshots), (None, 7, None));
        assert!(details.appends_to_file && !details.is_in_cluster_mode && details.eviction_policy == "noeviction");
    }

    #[test]
    fn whether_snapshots_are_saved_is_in_the_pair() {
        let text = |text: &str| Value::BulkString(text.into());
        assert_eq!(saves_snapshots(&Value::Map(vec![(text("save"), text(""))])), Some(false));
        assert_eq!(saves_snapshots(&Value::Array(vec![text("save"), text("3600 1")])), Some(true));
        assert_eq!(saves_snapshots(&Value::Map(Vec::new())), None);
    }
}
