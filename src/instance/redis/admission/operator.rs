//! What an operator does with the record of one instance: looks at it, writes the first one, or changes its time (P15, P29).

use redis::{RedisError, Value};
use tokio::time::timeout;

use super::handshake::AdmissionHandshake;
use super::server_info;
use super::shared::SharedAdmission;
use crate::instance::redis::classify::{clip, failed};
use crate::instance::redis::connection::InstanceConnection;
use crate::instance::redis::scripts::{self, RecordWrite};
use crate::instance::{FoundRecord, Trace};
use crate::protocol::{AdmissionRecord, Cause, RecordOrigin};

/// The most round trips that one of these takes.
const TRIPS: u32 = 4;

/// Reads the record, and which process runs.
pub(crate) async fn read(connection: &InstanceConnection) -> Result<FoundRecord, Cause> {
    admission(connection)?;
    within(connection, found(&connection.handshake())).await
}

/// Writes the first record, or only looks whether that may be done.
pub(crate) async fn open(connection: &InstanceConnection, channel: &str, writes: bool) -> Result<Trace, Cause> {
    let admission = admission(connection)?;
    let trace = within(connection, look_for_trace(&connection.handshake(), channel, writes)).await;
    admission.reread_record();
    trace
}

/// Gives the record this client's time; gives whether it was still there.
pub(crate) async fn set(connection: &InstanceConnection, found: &FoundRecord) -> Result<bool, Cause> {
    let admission = admission(connection)?;
    let is_set = within(connection, change(&connection.handshake(), found)).await;
    admission.reread_record();
    is_set
}

fn admission(connection: &InstanceConnection) -> Result<&SharedAdmission, Cause> {
    connection.admission.as_ref().ok_or_else(|| Cause::Server("this client was built without admission".to_owned()))
}

async fn within<T>(connection: &InstanceConnection, deed: impl Future<Output = Result<T, Cause>>) -> Result<T, Cause> {
    timeout(connection.deadline().saturating_mul(TRIPS), deed).await.unwrap_or(Err(Cause::TimedOut))
}

async fn found(handshake: &AdmissionHandshake<'_>) -> Result<FoundRecord, Cause> {
    let identity = server_info::read(handshake.conn).await?.facts.identity;
    let reading = handshake.read().await.map_err(|error| failed(&error))?;
    Ok(FoundRecord { stored: reading.record, identity, now_ms: reading.instance_us / 1_000 })
}

async fn look_for_trace(handshake: &AdmissionHandshake<'_>, channel: &str, writes: bool) -> Result<Trace, Cause> {
    let identity = server_info::read(handshake.conn).await?.facts.identity;
    let longest_ttl_ms = handshake.options.records.terms.quarantine_ms;
    let commands = scripts::open(&identity, longest_ttl_ms, channel, writes);
    let answers = handshake.conn.ask_all(&commands).replies_without_error().await;
    trace(answers.map_err(|error| after_sending(&error))?)
}

/// What an error means once the request may have been carried out (P5).
fn after_sending(error: &RedisError) -> Cause {
    match failed(error) {
        Cause::NotConnected(why) | Cause::OtherProtocol(why) => Cause::Disconnected(why),
        answered => answered,
    }
}

fn trace(mut answers: Vec<Value>) -> Result<Trace, Cause> {
    let last = answers.pop().unwrap_or(Value::Nil);
    let words: Vec<Vec<u8>> = redis::from_redis_value(last).map_err(|error| Cause::OddReply(error.to_string()))?;
    let mut words = words.iter().map(|word| clip(&String::from_utf8_lossy(word)));
    let (what, detail) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    Ok(match what.as_str() {
        "unused" => Trace::Unused,
        "record" => Trace::Record(detail),
        "token" => Trace::Token(detail),
        "listener" => Trace::Listener(detail),
        "flushed" => Trace::Flushed,
        _ => return Err(Cause::OddReply(what)),
    })
}

async fn change(handshake: &AdmissionHandshake<'_>, found: &FoundRecord) -> Result<bool, Cause> {
    let Some(record) = found.record() else { return Ok(false) };
    let longest_ttl_ms = handshake.options.records.terms.quarantine_ms;
    if record.longest_ttl_ms == longest_ttl_ms {
        return Ok(true); // a new record would cost each client that knows this one an attempt
    }
    let write = changed(&record, longest_ttl_ms);
    let there = handshake.write(&record.identity, found.stored.as_deref(), write).await;
    let there = there.map_err(|error| after_sending(&error))?.as_deref().and_then(AdmissionRecord::from_wire);
    Ok(there.is_some_and(|there| there.identity == record.identity && there.longest_ttl_ms == longest_ttl_ms))
}

/// A record with another time and the same rest. Where it allows less than before the votes that were given under it are waited for:
/// their locks may last longer than those that clients wait for from now on (P29). A flush of before is not what it waits for then.
fn changed(record: &AdmissionRecord, longest_ttl_ms: u64) -> RecordWrite {
    let is_shorter = longest_ttl_ms < record.longest_ttl_ms;
    RecordWrite {
        longest_ttl_ms,
        origin: if is_shorter { RecordOrigin::Waits } else { record.origin },
        vote_from_ms: record.vote_from_ms,
        wait_ms: is_shorter.then_some(record.longest_ttl_ms),
        order: record.order.saturating_add(1),
        floor_us: (0, 0), // nothing was forgotten
    }
}
