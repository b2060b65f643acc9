//! What a server reports about itself in `INFO` (P15, P16).

use redis::RedisError;

use crate::instance::redis::classify::failed;
use crate::instance::redis::conn::Conn;
use crate::protocol::{Cause, NotUsable, ProcessFacts, ProcessIdentity};

/// The longest word of a server: an id has 40 digits.
const MAX_WORD: usize = 64;

/// What `INFO` reports: what decides about votes, and what is shown.
#[derive(Clone, Debug)]
pub(crate) struct ServerInfo {
    pub(crate) facts: ProcessFacts,
    pub(crate) run_id: String,
    pub(crate) version: String,
    /// The eviction policy, where it may throw locks away.
    pub(crate) evicts: Option<String>,
}

impl ServerInfo {
    /// Once, not at each reconnect.
    pub(crate) fn warn_of_eviction(&self, instance: &str, previous: Option<Self>) {
        if let Some(policy) = &self.evicts
            && previous.and_then(|previous| previous.evicts).as_ref() != Some(policy)
        {
            tracing::warn!(instance, policy, "it is set to evict keys and may throw locks away; use noeviction");
        }
    }
}

/// Reads a server's report.
///
/// # Errors
/// What keeps it from being used, also if its report names too little.
pub(crate) async fn read(conn: &Conn) -> Result<ServerInfo, Cause> {
    let mut ask = redis::pipe();
    for section in ["server", "replication", "memory"] {
        ask.cmd("INFO").arg(section);
    }
    let (server, replication, memory): (String, String, String) =
        conn.ask_all(&ask).read().await.map_err(|error| no_info(&error))?;
    if let Some(field) = missing_field(&server, &replication) {
        return Err(Cause::NotUsable(NotUsable::Untold(field)));
    }
    Ok(from_info([&server, &replication, &memory]))
}

fn no_info(error: &RedisError) -> Cause {
    match failed(error) {
        Cause::NoPermission(denied) | Cause::Server(denied) => Cause::NoInfo(denied),
        cause => cause,
    }
}

/// The field that is missing and without which a master cannot be distinguished from a replica, or a server from itself
/// at another address (P16).
fn missing_field(server: &str, replication: &str) -> Option<&'static str> {
    let missing = |info, name| field(info, name).is_empty().then_some(name);
    missing(server, "run_id").or_else(|| missing(replication, "role"))
}

fn from_info([server, replication, memory]: [&str; 3]) -> ServerInfo {
    let run_id = word(field(server, "run_id"));
    let identity = ProcessIdentity::new(&run_id, &word(field(replication, "master_replid")));
    let facts = ProcessFacts { identity, is_master: field(replication, "role") == "master" };
    let policy = word(field(memory, "maxmemory_policy"));
    let bounded = field(memory, "maxmemory").parse().is_ok_and(|bytes: u64| bytes > 0);
    let evicts = (bounded && policy != "noeviction").then_some(policy);
    ServerInfo { facts, run_id, version: version(server), evicts }
}

/// The server and its version.
pub(crate) fn version(server: &str) -> String {
    match field(server, "valkey_version") {
        "" => format!("redis {}", word(field(server, "redis_version"))),
        valkey => format!("valkey {}", word(valkey)),
    }
}

/// What a server calls something: stored, shown and logged, so neither long nor anything but letters.
pub(crate) fn word(text: &str) -> String {
    text.chars().take(MAX_WORD).map(|c| if c.is_ascii_graphic() { c } else { '?' }).collect()
}

/// The value of a line `name:value`; empty if there is none.
pub(crate) fn field<'a>(info: &'a str, name: &str) -> &'a str {
    let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.map(str::trim).unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::log_limit::tests::logged;

    const SERVER: &str =
        "# Server\r\nredis_version:7.2.4\r\nvalkey_version:9.1.2\r\nrun_id:abc\r\nuptime_in_seconds:7\r\n";
    const MASTER: &str = "# Replication\r\nrole:master\r\nmaster_replid:def\r\nmaster_replid2:0000\r\n";

    pub(crate) fn of_process(run_id: &str) -> ServerInfo {
        from_info([&format!("run_id:{run_id}\r\n"), MASTER, ""])
    }

    #[test]
    fn a_plain_master_is_read() {
        let info = from_info([SERVER, MASTER, "maxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n"]);
        let expected = ProcessFacts { identity: ProcessIdentity::new("abc", "def"), is_master: true };
        assert_eq!(info.facts, expected);
        assert_eq!((info.version.as_str(), info.evicts), ("valkey 9.1.2", None));
    }

    #[test]
    fn a_replica_and_an_evicting_server_are_recognised() {
        let info = from_info(["redis_version:7.0.15", MASTER, "maxmemory:1\r\nmaxmemory_policy:allkeys-lru\r\n"]);
        assert!(info.facts.is_master);
        assert_eq!((info.version.as_str(), info.evicts.as_deref()), ("redis 7.0.15", Some("allkeys-lru")));
        assert!(!from_info(["", "role:slave\r\n", ""]).facts.is_master);
    }

    #[test]
    fn a_policy_that_evicts_is_a_warning_once_and_not_at_each_connect() {
        let with = |policy| from_info([SERVER, MASTER, &format!("maxmemory:1\r\nmaxmemory_policy:{policy}\r\n")]);
        let warnings = |policy, previous| logged(|| with(policy).warn_of_eviction("i", previous)).len();
        assert_eq!(warnings("allkeys-lru", None), 1);
        assert_eq!(warnings("allkeys-lru", Some(with("noeviction"))), 1);
        assert_eq!(warnings("allkeys-lru", Some(with("allkeys-lru"))), 0);
        assert_eq!(warnings("noeviction", None), 0);
    }

    #[test]
    fn a_server_that_does_not_say_what_it_is_is_neither_a_replica_nor_the_same_process() {
        assert_eq!(missing_field(SERVER, MASTER), None);
        assert_eq!(missing_field(SERVER, "connected_slaves:0\r\n"), Some("role"));
        assert_eq!(missing_field("redis_version:7.0.15\r\n", MASTER), Some("run_id"));
    }

    #[test]
    fn what_a_server_calls_itself_is_short_and_has_no_odd_letters() {
        let long = "x".repeat(100_000);
        let server = format!("redis_version:{long}\r\nrun_id:\u{1b}[31m\u{202e}{long}\r\n");
        let memory = format!("maxmemory:1\r\nmaxmemory_policy:{long}\r\n");
        let info = from_info([&server, MASTER, &memory]);
        assert!(info.run_id.starts_with("?[31m?xx") && info.run_id.len() == MAX_WORD, "{}", info.run_id);
        assert_eq!((info.version.len(), info.evicts.map(|policy| policy.len())), (6 + MAX_WORD, Some(MAX_WORD)));
    }
}
