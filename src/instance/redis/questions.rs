//! Questions beside requests: for what is stored under keys, for the server itself, and for the names of keys. They
//! do not wait in the send queue: nothing depends on their order.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::Either;
use redis::{Pipeline, RedisResult, Value};
use tokio::time::timeout;

use super::admission::server_info::{field, version, word};
use super::admission::shared::SharedAdmission;
use super::classify::{bytes, classify_key_check, error_of, failed, is_other_type};
use super::conn::Conn;
use super::connect::load;
use super::connection::InstanceConnection;
use super::denied::Denied;
use super::lists;
use crate::instance::{Claim, ClockOffset, FoundKeys, KeyState, Read, ServerDetails, StoredKey};
use crate::protocol::{Cause, FencingToken, READERS};
use crate::resource::{FLOOR_KEY, Resource, TOKENS_KEY};

/// How much of a value is read: what other programs put under the key of a lock may be longer than any answer that is
/// accepted.
const MOST_OF_ANY_VALUE: u64 = 64 * 1024;

/// How many readers of a lock are listed: as many as fit into an answer.
const MOST_READERS: usize = 64;

/// What `PTTL` says where there is no key.
const MISSING: Value = Value::Int(-2);

/// How many round trips are measured.
const TRIPS: usize = 3;

/// What is under the keys of locks: a value, or readers.
const LOCK_TYPES: [&str; 2] = ["string", "zset"];

/// How many keys a server looks at in one command: some tenths of a millisecond of its time, and names that fit into a reply however long
/// they are.
const STEP: usize = 100;

/// The answer, within the deadline of a connection.
async fn within<T>(deadline: Duration, answer: impl Future<Output = RedisResult<T>>) -> Result<T, Cause> {
    match timeout(deadline, answer).await {
        Ok(answer) => answer.map_err(|error| failed(&error)),
        Err(_) => Err(Cause::TimedOut),
    }
}

/// Reads what is stored for a lock.
pub(super) fn read(connection: &InstanceConnection, resource: &Resource) -> impl Future<Output = Read> + use<> {
    let mut commands = redis::pipe();
    let key = resource.key();
    commands.cmd("GETRANGE").arg(key).arg(0).arg(MOST_OF_ANY_VALUE - 1);
    commands.cmd("PTTL").arg(key).cmd("ZSCORE").arg(TOKENS_KEY).arg(key).cmd("ZSCORE").arg(key).arg(READERS);
    let (conn, deadline) = (connection.conn.clone(), connection.deadline());
    let (answer, resource) = (conn.ask_all(&commands), resource.clone());
    async move {
        let values = within(deadline, answer.replies()).await?;
        if !is_of_readers(&values) {
            let mut stored = stored(&values)?;
            if values.first().is_some_and(is_other_type) {
                let kind = redis::cmd("TYPE").arg(resource.key()).to_owned();
                let kind = within(deadline, conn.ask(&kind).read::<String>()).await; // not all users may ask that
                stored.other_type = Some(kind.unwrap_or_else(|_| "key of another type".to_owned()));
            }
            return Ok(stored);
        }
        // Only now: of another program's set even a few members may be more than is accepted as an answer.
        let members = redis::cmd("ZRANGE").arg(resource.key()).arg(0).arg(MOST_READERS - 1).to_owned();
        let readers = texts(&within(deadline, conn.ask(&members)).await?);
        Ok(StoredKey { value: None, readers, ..stored_beside(&values) })
    }
}

/// Reads which of several locks are free: for each whether nothing is stored.
pub(super) fn are_free(
    connection: &InstanceConnection,
    resources: &[Resource],
) -> impl Future<Output = Result<Vec<bool>, Cause>> + use<> {
    let mut commands = redis::pipe();
    for resource in resources {
        commands.cmd("PTTL").arg(resource.key());
    }
    let (answer, deadline) = (connection.conn.ask_all(&commands), connection.deadline());
    async move {
        let left = within(deadline, answer.replies_without_error()).await?;
        Ok(left.iter().map(|left| *left == MISSING).collect())
    }
}

/// The key is a string, a set of readers, or another program's: some of the answers may be errors.
fn is_of_readers(values: &[Value]) -> bool {
    match values.get(3) {
        Some(Value::Double(score)) => *score == f64::INFINITY,
        Some(Value::BulkString(score)) => score == b"inf",
        _ => false,
    }
}

fn stored(values: &[Value]) -> Read {
    if let Some(failed) = values.iter().take(3).filter(|answer| !is_other_type(answer)).find_map(error_of) {
        return Err(failed);
    }
    Ok(stored_beside(values))
}

/// What has no meaning for readers.
fn stored_beside(values: &[Value]) -> StoredKey {
    let [value, left, token, ..] = values else { return StoredKey::default() };
    let is_there = *left != MISSING; // GETRANGE knows no difference between nothing and an empty value
    let expires_in = match left {
        Value::Int(left) => u64::try_from(*left).ok().map(Duration::from_millis), // negative: none, or for ever
        _ => None,
    };
    let token = match token {
        Value::Double(score) => FencingToken::from_score(*score),
        other => bytes(other).and_then(FencingToken::from_wire),
    };
    StoredKey { value: text(value).filter(|_| is_there), readers: Vec::new(), expires_in, token, other_type: None }
}

fn texts(members: &Value) -> Vec<Vec<u8>> {
    let Value::Array(members) = members else { return Vec::new() };
    members.iter().filter_map(text).filter(|member| member != READERS).collect()
}

fn text(value: &Value) -> Option<Vec<u8>> {
    bytes(value).map(<[u8]>::to_vec)
}

/// Reads all keys at once, and requests a push when any of them changes. What is too long for a lock's value is passed over.
fn read_watched<'a>(keys: impl Iterator<Item = &'a [u8]>) -> Pipeline {
    let mut commands = redis::pipe();
    commands.cmd("CLIENT").arg("CACHING").arg("YES").cmd("MGET");
    keys.for_each(|key| _ = commands.arg(key));
    commands
}

/// Reads the value of a lock that others hold, and requests a push when it changes, where the instance pushes. A value that may be no
/// vote is not known (P36).
pub(super) fn look(
    connection: Arc<InstanceConnection>,
    resource: &Resource,
) -> impl Future<Output = Result<Option<Vec<u8>>, Cause>> + use<> {
    let watched = connection.tracking.then(|| read_watched(std::iter::once(resource.key())));
    let answer = match watched {
        Some(commands) => Either::Left(connection.conn.ask_all(&commands).replies_without_error()),
        None => Either::Right(read(&connection, resource)),
    };
    let deadline = connection.deadline();
    async move {
        let value = match answer {
            Either::Left(answer) => within(deadline, answer).await?.last().and_then(value_of),
            Either::Right(answer) => answer.await?.value,
        };
        let is_vote = value.is_none() || connection.admission.as_ref().is_none_or(SharedAdmission::keys_are_votes);
        if is_vote { Ok(value) } else { Err(Cause::NoVote) }
    }
}

/// The value in the answer to a look at one key.
fn value_of(answer: &Value) -> Option<Vec<u8>> {
    match answer {
        Value::Array(values) => value_of(values.first()?),
        Value::BulkString(value) => Some(value.clone()),
        _ => None,
    }
}

/// Checks all keys of `claims`, and requests a push when any of them changes.
pub(super) fn check_keys(
    connection: &InstanceConnection,
    claims: Vec<Arc<Claim>>,
) -> impl Future<Output = Option<Vec<KeyState>>> + use<> {
    let keys = claims.iter().map(|claim| claim.resource.key());
    let answer = connection.tracking.then(|| connection.conn.ask_all(&read_watched(keys)));
    let deadline = connection.deadline();
    // Requests find out what is wrong with the connection; this only checks.
    async move { classify_key_check(&claims, &within(deadline, answer?.replies()).await.ok()?) }
}

/// Reads what a server is and how it does.
pub(super) async fn examine(connection: &InstanceConnection) -> Result<ServerDetails, Cause> {
    let (conn, deadline) = (&connection.conn, connection.deadline());
    let clock = &connection.options.client.machine_clock;
    let (mut round_trip, mut clock_offset) = (Duration::MAX, ClockOffset::default());
    for _ in 0..TRIPS {
        let (sent, wall_us) = (clock.now(), clock.wall_us());
        let (seconds, micros): (u64, u64) = within(deadline, conn.ask(&redis::cmd("TIME")).read()).await?;
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
    let info: Vec<String> = within(deadline, conn.ask_all(&sections).read()).await?;
    let snapshots = redis::cmd("CONFIG").arg("GET").arg("save").to_owned();
    let snapshots = within(deadline, conn.ask(&snapshots).read()).await;
    let details = from_info(&info.concat(), snapshots.ok().as_ref());
    let tokens = within(deadline, conn.ask_all(&tokens()).read()).await.unwrap_or_default();
    let other_lists = within(deadline, lists::ask(conn, connection.options.client.quorum)).await.ok();
    // Last: a paused server answers nothing behind it.
    let refuses_writes = match timeout(deadline, load(conn, true)).await {
        Ok(Ok(denied)) => denied.and_then(|denied| denied.map_or_else(Some, Denied::obstacle)),
        Ok(Err(cause)) => Some(cause),
        Err(_) => Some(Cause::TimedOut),
    };
    let refuses_writes = refuses_writes.map(Into::into);
    let (pushes_changes, wakes_waiters) = (connection.tracking, connection.hears != Some(false));
    let (tokens, floor_lag) = kept(tokens);
    Ok(ServerDetails {
        round_trip,
        clock_offset,
        pushes_changes,
        wakes_waiters,
        refuses_writes,
        tokens,
        floor_lag,
        other_lists,
        ..details
    })
}

/// Asks how many tokens there are, for the floor (P13) and the time.
fn tokens() -> Pipeline {
    let mut commands = redis::pipe();
    commands.cmd("ZCOUNT").arg(TOKENS_KEY).arg("(0").arg("+inf").cmd("GET").arg(FLOOR_KEY).cmd("TIME");
    commands
}

/// How many tokens there are, and how far the floor is behind the clock.
fn kept((tokens, floor, (seconds, micros)): (u64, Option<Vec<u8>>, (u64, u64))) -> (u64, Option<Duration>) {
    let (floor, now_us) = (floor.and_then(|floor| FencingToken::from_wire(&floor)), seconds * 1_000_000 + micros);
    (tokens, floor.map(|floor| Duration::from_micros(now_us.saturating_sub(floor.clock_us()))))
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

/// Looks at about `most` keys, each step within the deadline.
pub(super) async fn scan((conn, deadline): (&Conn, Duration), pattern: &[u8], most: usize) -> Result<FoundKeys, Cause> {
    let mut found = FoundKeys { keys: Vec::new(), are_all: true };
    for kind in LOCK_TYPES {
        let (mut cursor, mut looked_at) = (0_u64, 0_usize);
        loop {
            let mut step = redis::cmd("SCAN");
            step.arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(STEP).arg("TYPE").arg(kind);
            let (next, keys): (u64, Vec<Vec<u8>>) = within(deadline, conn.ask(&step).read()).await?;
            let are_named = |key: &Vec<u8>| !key.is_empty(); // a name that was too long is passed over
            found.are_all &= keys.iter().all(are_named);
            found.keys.extend(keys.into_iter().filter(are_named));
            (cursor, looked_at) = (next, looked_at.saturating_add(STEP));
            if cursor == 0 || looked_at >= most {
                found.are_all &= cursor == 0;
                break;
            }
        }
    }
    Ok(found)
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
