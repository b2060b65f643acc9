//! Whether two addresses whose servers say that they are the same process lead to one or to two (P16).
//!
//! An instance may copy another's name, as a machine that was copied with its memory does. So the client loads a script with
//! a secret of its own through one address and calls it through the other: scripts belong to the process, not to the database
//! of an address. Only one that knows the secret is the same process, or passes all requests on to it.

use redis::{Cmd, Script, Value};
use tokio::time::timeout;

use super::peers::PeerConnections;
use super::processes::{Claim, Namesake, ProcessRegistry};
use crate::instance::redis::conn::Conn;
use crate::instance::redis::connection::InstanceConnection;
use crate::instance::redis::options::ConnectOptions;
use crate::protocol::{Cause, Instant, NotUsable};

/// What two addresses of the same name are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    OneProcess,
    TwoProcesses,
    /// The other one did not answer.
    Silent,
    /// It did not answer.
    Unknown,
}

/// Notes the process behind a new connection, and gives the instant from which its votes count.
///
/// # Errors
/// If it is the process behind another address, as far as can be known.
pub(crate) async fn claim_name(
    options: &ConnectOptions,
    peers: &PeerConnections,
    conn: &Conn,
    run_id: &str,
) -> Result<Instant, Cause> {
    let (registry, quarantine) = (&peers.processes, options.wait_of_namesake());
    let mut others = Vec::new();
    loop {
        let (index, address, now) = (options.id.index(), options.address.shown(), options.now());
        let namesake = match registry.claim(Claim { index, address, run_id, now, quarantine }, &others) {
            Ok(counts_from) => {
                if counts_from > now
                    && let Some(times) = registry.warnings.note(now)
                {
                    let wait = counts_from.saturating_since(now);
                    tracing::warn!(
                        instance = address,
                        ?wait,
                        times,
                        "another process reports the same run id: this one votes after the wait"
                    );
                }
                return Ok(counts_from);
            }
            Err(namesake) => namesake,
        };
        let refused = Cause::NotUsable(NotUsable::SameProcess(namesake.address.clone()));
        let Some(other) = peers.connection(namesake.index).filter(|_| namesake.is_connected) else {
            return Err(refused);
        };
        match ask(registry, options, conn, &other).await {
            Verdict::TwoProcesses => {
                registry.has_answered(namesake.index);
                note_error(&other, two_processes(address, &namesake));
                others.push(namesake.index);
            }
            Verdict::OneProcess if namesake.is_first => {
                registry.has_answered(namesake.index);
                note_error(&other, format!("{address} says that it is the same server process"));
                return Err(refused);
            }
            Verdict::OneProcess => give_way(registry, &namesake, &other),
            // Now, or it would be back before this one.
            Verdict::Silent if registry.was_silent(namesake.index) => give_way(registry, &namesake, &other),
            Verdict::Silent | Verdict::Unknown => return Err(refused),
        }
    }
}

/// Notes what is odd about it, though it serves.
fn note_error(connection: &InstanceConnection, error: String) {
    connection.options.health.lock().last_error = Some(error);
}

fn two_processes(address: &str, namesake: &Namesake) -> String {
    format!(
        "{address} and {} say that they are the same server process, and are two: a machine was copied, or one lies; which came \
         later votes after a quarantine",
        namesake.address
    )
}

/// The other one loses its connection and its name; it comes back as the later one.
fn give_way(registry: &ProcessRegistry, namesake: &Namesake, other: &InstanceConnection) {
    registry.forget(namesake.index);
    other.conn.give_up();
}

async fn ask(registry: &ProcessRegistry, options: &ConnectOptions, own: &Conn, other: &InstanceConnection) -> Verdict {
    let Some(secret) = registry.secret(options.id.index()) else { return Verdict::Unknown };
    let text = format!("return '{secret}'");
    let hash = Script::new(&text).get_hash().to_owned();
    let within = async |conn: &Conn, command: &Cmd| timeout(options.client.instance_timeout, conn.ask(command)).await;
    let load = redis::cmd("SCRIPT").arg("LOAD").arg(text).to_owned();
    let call = redis::cmd("EVALSHA").arg(hash).arg(0).to_owned();
    let knows = |answer: &Value| matches!(answer, Value::BulkString(bytes) if bytes == secret.as_bytes());
    if !matches!(within(own, &load).await, Ok(Ok(Value::BulkString(_)))) {
        return Verdict::Unknown;
    }
    match within(&other.conn, &call).await {
        Ok(Ok(answer)) if knows(&answer) => Verdict::OneProcess,
        Ok(Ok(Value::ServerError(error))) if error.code() != "NOSCRIPT" => Verdict::Silent, // it may be busy
        // The scripts were not flushed meanwhile.
        Ok(Ok(_)) if matches!(within(own, &call).await, Ok(Ok(answer)) if knows(&answer)) => Verdict::TwoProcesses,
        Ok(Ok(_)) => Verdict::Unknown,
        Ok(Err(_)) | Err(_) => Verdict::Silent, // it may have broken the connection so as not to answer
    }
}
