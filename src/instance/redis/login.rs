//! Logs in, and reads what a server says of itself meanwhile.

use std::collections::HashMap;

use redis::{FromRedisValue, RedisResult, Value};

use super::classify::{clip, failed};
use super::conn::Conn;
use super::credentials::Credentials;
use crate::protocol::{Cause, NotUsable};

/// The oldest major version of Redis that can be used; Valkey began with a later one.
const LEAST_VERSION: u32 = 7;

/// Logs in to a database; gives how the server's process calls the connection.
///
/// # Errors
/// What keeps the server from being used, also if that is what it is for.
pub(super) async fn log_in(
    conn: &Conn,
    credentials: Option<&Credentials>,
    database: i64,
) -> Result<Option<u64>, Cause> {
    let said = hello(conn, credentials, database).await.map_err(|error| match failed(&error) {
        Cause::Server(message) if is_about_hello(&message) => Cause::NoHello(message),
        // A proxy that does not know HELLO with a password.
        Cause::PasswordNeeded if credentials.is_some() => {
            Cause::NoHello("NOAUTH, though it was sent with a password".to_owned())
        }
        cause => cause,
    })?;
    of_hello(&said)
}

/// Whether an error of a server is about HELLO itself, which every server that can be used knows.
fn is_about_hello(message: &str) -> bool {
    let others = ["max number of clients", "protected mode", "password", "select"];
    let message = message.to_lowercase();
    !others.into_iter().any(|other| message.contains(other))
}

/// Uses RESP3 from here on, in which a server may push.
pub(super) async fn hello(
    conn: &Conn,
    credentials: Option<&Credentials>,
    database: i64,
) -> RedisResult<HashMap<String, Value>> {
    let mut commands = redis::pipe();
    commands.cmd("HELLO").arg(3);
    if let Some((user, password)) = credentials.map(Credentials::parts) {
        commands.arg("AUTH").arg(user.unwrap_or("default")).arg(password);
    }
    if database != 0 {
        commands.cmd("SELECT").arg(database);
    }
    let replies = conn.ask_all(&commands).replies_without_error().await?;
    Ok(HashMap::from_redis_value(replies.into_iter().next().unwrap_or(Value::Nil))?)
}

fn of_hello(hello: &HashMap<String, Value>) -> Result<Option<u64>, Cause> {
    match &*text(hello, "mode") {
        "sentinel" => return Err(Cause::NotUsable(NotUsable::Sentinel)),
        // A lock has keys of several slots; no node of a cluster takes them in one script.
        "cluster" => return Err(Cause::ClusterMode("as it says itself".to_owned())),
        _ => {}
    }
    let version = text(hello, "version");
    if version.split('.').next().and_then(|major| major.parse().ok()).is_some_and(|major: u32| major < LEAST_VERSION) {
        return Err(Cause::NotUsable(NotUsable::TooOld(clip(&version))));
    }
    Ok(match hello.get("id") {
        Some(Value::Int(id)) => u64::try_from(*id).ok(),
        _ => None,
    })
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

    fn said(mode: &str, version: &str) -> Result<Option<u64>, Cause> {
        let value = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let id = ("id".to_owned(), Value::Int(7));
        of_hello(&HashMap::from([("mode".to_owned(), value(mode)), ("version".to_owned(), value(version)), id]))
    }

    #[test]
    fn an_error_in_answer_to_hello_is_about_hello_unless_it_says_otherwise() {
        for message in
            ["ERR unknown command 'HELLO'", "ERR unsupported command", "NOPROTO sorry", "ERR not allowed here"]
        {
            assert!(is_about_hello(message), "{message}");
        }
        for message in
            ["ERR max number of clients reached", "DENIED Redis is running in protected mode", "ERR invalid password"]
        {
            assert!(!is_about_hello(message), "{message}");
        }
    }

    #[test]
    fn what_is_no_master_or_too_old_is_named() {
        for version in ["7.0.0", "10.1", "x", ""] {
            assert_eq!(said("standalone", version), Ok(Some(7)), "{version}");
        }
        assert_eq!(of_hello(&HashMap::new()), Ok(None));
        let too_old = Cause::NotUsable(NotUsable::TooOld("6.2.14".to_owned()));
        assert_eq!(said("standalone", "6.2.14"), Err(too_old));
        assert_eq!(said("sentinel", "7.0.15"), Err(Cause::NotUsable(NotUsable::Sentinel)));
        assert!(matches!(said("cluster", "7.0.15"), Err(Cause::ClusterMode(_))));
    }
}
