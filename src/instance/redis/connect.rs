//! The steps to a connection that serves. Each has a deadline by the round trips that it takes, so
//! that an instance which answers requests in time can also be connected, and the error names the step that was late.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::{OptionFuture, try_join};
use redis::Value;

use super::address::Endpoint;
use super::admission::handshake::AdmissionHandshake;
use super::admission::peers::PeerConnections;
use super::admission::server_info::{self, ServerInfo};
use super::admission::shared::SharedAdmission;
use super::classify::failed;
use super::conn::{Answer, Conn};
use super::connection::InstanceConnection;
use super::credentials::Credentials;
use super::denied::Denied;
use super::lists;
use super::login::log_in;
use super::open::open_stream;
use super::options::{ConnectFailure, ConnectOptions};
use super::pushes::Pushes;
use super::scripts;
use super::sentinel::find_master;
use super::standing::Rights;
use super::stream::ByteStream;
use crate::instance::OtherList;
use crate::protocol::{AdmissionState, Cause, Instant, RecordMeaning};

/// The most round trips of admission: the server's facts, then the record, and for a first client
/// what it writes there.
pub(super) const ADMISSION_TRIPS: u32 = 6;

/// Connects, logs in, and has the instance admitted.
pub(super) async fn connect(
    options: &Arc<ConnectOptions>,
    peers: &PeerConnections,
) -> Result<(Arc<InstanceConnection>, Arc<Pushes>), ConnectFailure> {
    let listener = options.client.listener.as_ref();
    let pushes = Arc::new(Pushes::new(listener.map(|listener| (options.id, listener.messages.clone()))));
    let stream = open(options).await?;
    let credentials = options.address.credentials().await.map_err(ConnectFailure::Failed)?;
    let receiver = Arc::clone(&pushes);
    let on_push = Box::new(move |push: &[u8]| receiver.receive(push));
    let (conn, task) = Conn::begin(stream, on_push, options.of_connection());
    let begun = begin(options, peers, &conn, credentials.as_ref(), &pushes).await;
    let (rights, known) = begun.map_err(|failure| conn.broken_by().cloned().map_or(failure, ConnectFailure::Broken))?;
    let (options, tracking) = (Arc::clone(options), rights.tracking == Some(true));
    Ok((InstanceConnection::new(options, (conn, task), tracking, rights.hears, known), pushes))
}

/// Logs in over a connection that was opened, and has the instance admitted.
async fn begin(
    options: &Arc<ConnectOptions>,
    peers: &PeerConnections,
    conn: &Conn,
    credentials: Option<&Credentials>,
    pushes: &Arc<Pushes>,
) -> Result<(Rights, (Option<SharedAdmission>, Option<Denied>)), ConnectFailure> {
    let log_in = log_in(conn, credentials, options.address.database);
    let session = options.within_trips("logging in", 2, log_in).await.map_err(|failure| ended(options, failure))?;
    let (rights, report) = options.within_trips("asking what it is", 2, ask_what_it_is(options, conn)).await?;
    note_rights(options, rights);
    let tracking = rights.tracking == Some(true);
    // A tool, which takes records as they are, mostly looks: a server that is paused for writes would hold up all behind the question.
    let loaded = load(conn, !options.records.as_recorded);
    let (denied, admission) = match report {
        Some(report) => {
            let outcome = admit(options, peers, conn, tracking, report, pushes);
            let both = try_join(loaded, outcome);
            let step = "agreeing on admission: its writes may be paused, see CLIENT UNPAUSE";
            let (denied, admission) = options.within_trips(step, ADMISSION_TRIPS, both).await?;
            let ended = end_former_sessions(options, conn, session);
            options.within_trips("ending the former connections", 1, ended).await?;
            (denied, Some(admission))
        }
        None => (options.within_trips("loading the scripts", 2, loaded).await?, None),
    };
    Ok((rights, (admission, denied.and_then(Result::ok))))
}

/// Opens the connection, to the present master where Sentinels name it.
async fn open(options: &ConnectOptions) -> Result<Box<dyn ByteStream>, ConnectFailure> {
    let endpoint = match options.address.endpoint() {
        Endpoint::Group(group) => find_master(options, group).await.map_err(ConnectFailure::Failed)?,
        endpoint => endpoint.clone(),
    };
    options.standing.lock().endpoint = Some(endpoint.clone());
    let began_tls = AtomicBool::new(false);
    let open = open_stream(&endpoint, options.address.tcp(), &began_tls);
    let opened = options.within_trips("opening the connection", 4, open).await;
    opened.map_err(|reason| match reason {
        ConnectFailure::Late(_) if began_tls.load(Ordering::Relaxed) => ConnectFailure::LateTls,
        reason => reason,
    })
}

/// Why a login failed. A port for TLS may say nothing to a client without it.
fn ended(options: &ConnectOptions, failure: ConnectFailure) -> ConnectFailure {
    let is_without_tls = matches!(options.standing.lock().endpoint, Some(Endpoint::Tcp { tls: None, .. }));
    match failure {
        ConnectFailure::Failed(Cause::NotConnected(why)) if is_without_tls => {
            let words =
                format!("it ended the connection before it answered: {why}; a port for TLS does, and takes rediss://");
            ConnectFailure::Failed(Cause::NotConnected(words))
        }
        failure => failure,
    }
}

/// All sent together, as far as one answer does not decide the next question.
async fn ask_what_it_is(options: &ConnectOptions, conn: &Conn) -> Result<(Rights, Option<ServerInfo>), Cause> {
    // Pushes of flushes, and of changes of the keys that this connection reads. Without them a flush is still noticed
    // by the next request, data that was replaced by an old copy of itself is not, and a lease that was
    // deleted is missed by its next renewal.
    let tracking = conn.ask(redis::cmd("CLIENT").arg("TRACKING").arg("ON").arg("OPTIN").arg("NOLOOP"));
    // Without the right to subscribe a client gets no messages and only polls (P27).
    let channel = options.client.listener.as_ref().map(|listener| listener.client.channel());
    let hears = channel.map(|channel| conn.ask(redis::cmd("SUBSCRIBE").arg(channel)));
    let quorum = options.client.quorum;
    if options.client.listener.is_some() {
        drop(conn.ask(&lists::announce(quorum))); // the right to it is that of the other channel
    }
    let other_lists = lists::ask(conn, quorum);
    let named = options.address.client_name();
    let named = named.map(|name| conn.ask(redis::cmd("CLIENT").arg("SETNAME").arg(name)));
    let report = match options.client.admission {
        true => Some(server_info::read(conn).await?),
        false => None,
    };
    let rights = Rights {
        tracking: Some(tracking.succeeded().await),
        hears: OptionFuture::from(hears.map(Answer::succeeded)).await,
        named: OptionFuture::from(named.map(Answer::succeeded)).await,
    };
    note_lists(options, other_lists.await.unwrap_or_default());
    Ok((rights, report))
}

/// Warns of clients with another list: not again while that stays so.
fn note_lists(options: &ConnectOptions, lists: Vec<OtherList>) {
    let known = std::mem::replace(&mut options.standing.lock().other_lists, lists.clone());
    for list in lists {
        if !known.iter().any(|known| (known.votes, known.instances) == (list.votes, list.instances)) {
            tracing::warn!(instance = options.address.shown(), "{list}");
        }
    }
}

/// Warns of rights that are missing: once, not at each reconnect.
fn note_rights(options: &ConnectOptions, rights: Rights) {
    let instance = options.address.shown();
    let before = std::mem::replace(&mut options.standing.lock().rights, rights);
    for (is, was, denied) in [
        (rights.tracking, before.tracking, "CLIENT TRACKING is denied: replaced data may go unnoticed"),
        (rights.hears, before.hears, "SUBSCRIBE is denied: waiters are not woken over this instance, and poll"),
        (rights.named, before.named, "CLIENT SETNAME is denied: the connection has no name"),
    ] {
        if is == Some(false) && was != is {
            tracing::warn!(instance, "{denied}");
        }
    }
}

/// Loads the scripts, and finds out what the user may not do, unless the server has not carried that out. For a tool that is left to its first lock: a server that is paused for
/// writes holds up even the question, and all that is behind it.
pub(super) async fn load(conn: &Conn, asks_rights: bool) -> Result<Option<Result<Denied, Cause>>, Cause> {
    let mut commands = scripts::load().clone();
    if asks_rights {
        commands.add_command(scripts::call_rights());
    }
    let mut replies = conn.ask_all(&commands).replies().await.map_err(|error| failed(&error))?;
    let denied = if asks_rights { replies.pop().as_ref().map(Denied::of) } else { None };
    Value::Array(replies).extract_error().map_err(|error| failed(&error))?;
    Ok(denied)
}

/// Ends the former connections to the same process, if that still has them, before anything is released over this one:
/// what was on its way over them is not carried out any more. A plain acquire that came behind its own release would set
/// the key again, for a ttl (P6, P28). Until the process has answered, the next connection requests the same.
async fn end_former_sessions(options: &ConnectOptions, conn: &Conn, session: Option<u64>) -> Result<(), Cause> {
    let former = options.standing.lock().begin_session(session);
    if former.is_empty() {
        return Ok(());
    }
    let mut commands = redis::pipe();
    for former in &former {
        commands.cmd("CLIENT").arg("KILL").arg("ID").arg(*former);
    }
    // Without that right such a key may stay until it expires.
    if conn.ask_all(&commands).await.is_ok() {
        options.standing.lock().end_sessions(&former);
    }
    Ok(())
}

/// Has the instance admitted, as the server's report and its record allow.
async fn admit(
    options: &Arc<ConnectOptions>,
    peers: &PeerConnections,
    conn: &Conn,
    tracking: bool,
    info: ServerInfo,
    pushes: &Arc<Pushes>,
) -> Result<SharedAdmission, Cause> {
    let proposing_us = |us| peers.proposing_us(Some((options.id, us)));
    let mut state = AdmissionHandshake { conn, options, tracking }.run(&info.facts, false, proposing_us).await?;
    note_refusal(options, state.meaning());
    let instance = options.address.shown();
    let claimed = peers.processes.claim((options.id.index(), instance), &info.run_id, options.now());
    state.withhold_until(claimed.map_err(Cause::NotUsable)?);
    let previous = options.standing.lock().previous_admission.clone();
    let stepped = previous.is_some_and(|previous| clock_stepped_since(previous, &mut state, peers));
    let previous = options.standing.lock().note_info(info.clone());
    info.warn_of_eviction(instance, previous);
    let admission = SharedAdmission::new(Arc::clone(options), state, Arc::clone(pushes));
    if stepped {
        // Nothing counts until it has been quarantined.
        tracing::warn!(instance, "the clock of the instance jumped forward while it was not connected");
        admission.wake_supervisor();
    }
    Ok(admission)
}

/// Notes whether the instance gives this client votes, and says so when that changes.
pub(super) fn note_refusal(options: &ConnectOptions, meaning: &RecordMeaning) {
    let refusal = match meaning {
        RecordMeaning::Refused(reason) => Some(reason.clone()),
        RecordMeaning::Recorded | RecordMeaning::Unrecorded => None,
    };
    let instance = options.address.shown();
    let former = std::mem::replace(&mut options.standing.lock().refusal, refusal.clone());
    match refusal {
        Some(reason) if former.as_ref() != Some(&reason) => {
            tracing::warn!(instance, %reason, "it gives this client no votes");
        }
        None if former.is_some() => tracing::info!(instance, "it gives this client votes again"),
        _ => {}
    }
}

fn clock_stepped_since(
    (mut previous, own_clock_ahead): (AdmissionState, Duration),
    state: &mut AdmissionState,
    peers: &PeerConnections,
) -> bool {
    let stood_still = peers.own_clock_ahead().saturating_sub(own_clock_ahead);
    if !stood_still.is_zero() {
        previous.own_clock_stood_still(stood_still, Instant::ZERO);
    }
    state.continue_from(&previous)
}
