//! What a server answers to `HELLO`, which every user may ask.

use std::collections::HashMap;

use redis::Value;
use redis::aio::MultiplexedConnection;

use super::classify::failed;
use crate::protocol::{Cause, NotUsable};

/// What is needed of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    /// The major version of Redis that the server is compatible with, zero if it names none.
    pub(super) version: u32,
    /// Whether it has a command that deletes a key only if that holds a certain value.
    pub(super) compares: bool,
    /// How the server's process calls the connection.
    pub(super) session: Option<u64>,
}

/// What a server says first.
///
/// # Errors
/// What keeps it from being used, also if that is what it is for.
pub(super) async fn hello(mut connection: MultiplexedConnection) -> Result<Hello, Cause> {
    let hello = redis::cmd("HELLO").query_async(&mut connection).await;
    of_hello(&hello.map_err(|error| failed(&error))?)
}

fn of_hello(hello: &HashMap<String, Value>) -> Result<Hello, Cause> {
    match &*text(hello, "mode") {
        "sentinel" => return Err(Cause::NotUsable(NotUsable::Sentinel)),
        // A lock has keys of several slots; no node of a cluster takes them in one script.
        "cluster" => return Err(Cause::ClusterMode("as it says itself".to_owned())),
        _ => {}
    }
    let version = text(hello, "version").split('.').next().and_then(|major| major.parse().ok()).unwrap_or(0);
    let session = match hello.get("id") {
        Some(Value::Int(id)) => u64::try_from(*id).ok(),
        _ => None,
    };
    // DELIFEQ. Redis 8.4 has DELEX, of which there was no server to test with.
    let compares = version >= 9 && text(hello, "server") == "valkey";
    Ok(Hello { version, compares, session })
}

fn text(hello: &HashMap<String, Value>, name: &str) -> String {
    match hello.get(name) {
        Some(Value::BulkString(text)) => String::from_utf8_lossy(text).into_owned(),
        Some(Value::SimpleString(text)) => text.clone(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(mode: &str, version: &str) -> Result<Hello, Cause> {
        let value = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let id = ("id".to_owned(), Value::Int(7));
        of_hello(&HashMap::from([("mode".to_owned(), value(mode)), ("version".to_owned(), value(version)), id]))
    }

    #[test]
    fn only_a_server_that_is_known_to_compare_is_said_to() {
        let compares = |server: &str, version: &str| {
            let of = [("server", server), ("version", version)].map(|(name, text)| (name.to_owned(), text.to_owned()));
            let hello = of.into_iter().map(|(name, text)| (name, Value::BulkString(text.into_bytes()))).collect();
            of_hello(&hello).unwrap().compares
        };
        assert!(compares("valkey", "9.0.0") && compares("valkey", "10.1"));
        assert!(!compares("valkey", "8.1.3") && !compares("redis", "9.0.0") && !compares("", ""));
    }

    #[test]
    fn a_master_tells_its_version_and_what_is_none_is_named() {
        assert_eq!(said("standalone", "7.2.4"), Ok(Hello { version: 7, compares: false, session: Some(7) }));
        assert_eq!(said("standalone", "x"), Ok(Hello { version: 0, compares: false, session: Some(7) }));
        assert_eq!(of_hello(&HashMap::new()), Ok(Hello { version: 0, compares: false, session: None }));
        assert_eq!(said("sentinel", "7.0.15"), Err(Cause::NotUsable(NotUsable::Sentinel)));
        assert!(matches!(said("cluster", "7.0.15"), Err(Cause::ClusterMode(_))));
    }
}
