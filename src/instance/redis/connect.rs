//! The steps to a connection that serves. Each has a deadline by the round trips that it takes, so
//! that an instance which answers requests in time can also be connected, and the error names the step that was late.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::{OptionFuture, try_join};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, PushInfo};
use tokio::sync::{Notify, mpsc};

use super::address::Endpoint;
use super::admission::handshake::{AdmissionConfig, AdmissionHandshake};
use super::admission::namesakes::claim_name;
use super::admission::peers::PeerConnections;
use super::admission::server_info::{self, ServerInfo, ServerReport};
use super::admission::shared::SharedAdmission;
use super::classify::failed;
use super::connection::{ConnectionParts, InstanceConnection, MAX_WAITING};
use super::deadline::{ConnectFailure, within_trips};
use super::driver::{Driver, poll_once};
use super::flushes::Flushes;
use super::health::{InstanceHealth, PreviousAdmission};
use super::hello::{Hello, hello};
use super::options::ConnectOptions;
use super::pushes::Pushes;
use super::relay::listen;
use super::scripts::Scripts;
use super::sentinel::find_master;
use super::stream::ServerStream;
use crate::foreign::contain;
use crate::protocol::{AdmissionFollowUp, AdmissionState, Cause, InstanceId, Instant, RecordMeaning};

/// The most round trips of admission: the server's facts, then the record, and for a first client
/// what it writes there.
pub(super) const ADMISSION_TRIPS: u32 = 6;

/// Connects, logs in, and has the instance admitted.
pub(super) async fn connect(
    options: &ConnectOptions,
    health: &Arc<InstanceHealth>,
) -> Result<(InstanceConnection, Arc<Pushes>), ConnectFailure> {
    let instance = InstanceId::new(options.index);
    let pushes = Arc::new(Pushes::new(options.listener.as_ref().map(|listener| (instance, listener.messages.clone()))));
    let stream = open(options, health).await?;
    let too_much = stream.too_much();
    health.excess.watch(&too_much);
    let sender = Arc::clone(&pushes);
    let config = AsyncConnectionConfig::new()
        .set_push_sender(move |push: PushInfo| -> Result<(), mpsc::error::SendError<()>> {
            sender.receive(push);
            Ok(())
        })
        .set_response_timeout(None) // each request has its own deadline
        .set_pipeline_buffer_size(MAX_WAITING);
    let login = options.address.login().await.map_err(ConnectFailure::Failed)?;
    let login = async {
        let login = MultiplexedConnection::new_with_config(&login, stream, config).await;
        login.map_err(|error| failed(&error))
    };
    let (mut connection, driver) = within_trips(options, "logging in", 2, login).await?;
    let broken = Arc::<Notify>::default();
    let driver = Driver::start(driver, Arc::clone(&broken));

    let ask = ask_what_it_is(options, &mut connection);
    let WhatItIs { hello: Hello { session }, rights, report } =
        within_trips(options, "asking what it is", 2, ask).await?;
    note_rights(options, health, &rights);
    let Rights { tracking, hears, .. } = rights;
    let scripts = Scripts::shipped();
    let loaded = load(scripts, connection.clone());
    let admission = match report {
        Some(report) => {
            let outcome = admit(options, connection.clone(), scripts, tracking, report, &pushes, health);
            let both = try_join(loaded, outcome);
            let admission = within_trips(options, "agreeing on admission", ADMISSION_TRIPS, both).await?.1;
            let ended = end_former_sessions(connection.clone(), health, session);
            within_trips(options, "ending the former connections", 1, ended).await?;
            Some(admission)
        }
        None => {
            within_trips(options, "loading the scripts", 2, loaded).await?;
            None
        }
    };
    let (deadline, clock, wakeups) =
        (options.instance_timeout, Arc::clone(&options.clock), Arc::clone(&options.wakeups));
    let last_acquire = Arc::clone(&options.last_acquire);
    let (shown, health) = (options.address.shown().to_owned(), Arc::clone(health));
    let parts = ConnectionParts {
        multiplexed: connection,
        driver,
        broken,
        too_much,
        scripts,
        deadline,
        clock,
        wakeups,
        last_acquire,
        shown,
        health,
        tracking,
        hears: hears == Some(true),
        admission,
    };
    Ok((InstanceConnection::new(parts), pushes))
}

/// Opens the connection, to the present master where Sentinels name it.
async fn open(options: &ConnectOptions, health: &InstanceHealth) -> Result<ServerStream, ConnectFailure> {
    let endpoint = match options.address.endpoint() {
        Endpoint::Group(group) => find_master(options, group).await.map_err(ConnectFailure::Failed)?,
        endpoint => endpoint.clone(),
    };
    health.lock().endpoint = Some(endpoint.clone());
    let began_tls = AtomicBool::new(false);
    let open = ServerStream::open(&endpoint, options.address.tcp(), (&options.clock, &began_tls));
    let opened = within_trips(options, "opening the connection", 4, open).await;
    opened.map_err(|reason| match reason {
        ConnectFailure::Late(_) if began_tls.load(Ordering::Relaxed) => ConnectFailure::LateTls,
        reason => reason,
    })
}

/// What an instance says and allows first.
struct WhatItIs {
    hello: Hello,
    rights: Rights,
    /// For admission.
    report: Option<ServerReport>,
}

/// What it does for this connection that it may as well refuse.
struct Rights {
    /// Whether changes of keys are pushed.
    tracking: bool,
    /// Whether messages of other clients are; `None` if nobody listens.
    hears: Option<bool>,
    /// Whether the connection has its name; `None` if it is to have none.
    named: Option<bool>,
}

/// All asked together, as far as one answer does not decide the next question.
async fn ask_what_it_is(options: &ConnectOptions, connection: &mut MultiplexedConnection) -> Result<WhatItIs, Cause> {
    let hello = poll_once(hello(connection.clone()));
    let tracking = poll_once(track(connection.clone()));
    let channel = options.listener.as_ref().map(|listener| listener.client.channel());
    let hears = channel.map(|channel| poll_once(listen(connection.clone(), channel)));
    let named = options.address.client_name().map(|name| poll_once(set_name(connection.clone(), name)));
    let report = match options.admission {
        true => Some(server_info::read(connection).await),
        false => None,
    };
    let hello = hello.await?; // first: it says best what cannot be used
    let rights = Rights {
        tracking: tracking.await,
        hears: OptionFuture::from(hears).await,
        named: OptionFuture::from(named).await,
    };
    Ok(WhatItIs { hello, rights, report: report.transpose()? })
}

/// Whether the connection has this name now.
fn set_name(mut connection: MultiplexedConnection, name: &str) -> impl Future<Output = bool> + 'static {
    let ask = redis::cmd("CLIENT").arg("SETNAME").arg(name).to_owned();
    async move { ask.query_async::<()>(&mut connection).await.is_ok() }
}

/// Warns of rights that are missing: once, not at each reconnect.
fn note_rights(options: &ConnectOptions, health: &InstanceHealth, rights: &Rights) {
    let Rights { tracking, hears, named } = *rights;
    let (instance, mut last) = (options.address.shown(), health.lock());
    let were_tracking = last.tracking.replace(tracking);
    let had_heard = std::mem::replace(&mut last.hears, hears);
    let were_named = std::mem::replace(&mut last.named, named);
    drop(last); // whoever listens to the log may ask for it
    if were_tracking != Some(tracking) && !tracking {
        contain(|| tracing::warn!(instance, "CLIENT TRACKING is denied: replaced data may go unnoticed"));
    }
    if had_heard != hears && hears == Some(false) {
        contain(|| {
            tracing::warn!(instance, "SUBSCRIBE is denied: nobody is woken over it, and waiting clients ask instead")
        });
    }
    if were_named != named && named == Some(false) {
        contain(|| tracing::warn!(instance, "CLIENT SETNAME is denied: the connection has no name"));
    }
}

async fn load(scripts: &'static Scripts, mut connection: MultiplexedConnection) -> Result<(), Cause> {
    scripts.load().query_async::<()>(&mut connection).await.map_err(|error| failed(&error))
}

/// Asks for pushes of flushes, and of changes of the keys that this connection reads. Without it a flush is still noticed
/// by the next request, data that was replaced by an old copy of itself is not, and a lease that was
/// deleted is missed by its next renewal.
async fn track(mut connection: MultiplexedConnection) -> bool {
    let ask = redis::cmd("CLIENT").arg("TRACKING").arg("ON").arg("OPTIN").arg("NOLOOP").to_owned();
    ask.query_async::<()>(&mut connection).await.is_ok()
}

/// Ends the former connections to the same process, if that still has them, before anything is released over this one:
/// what was on its way over them is not carried out any more. A plain acquire that came behind its own release would set
/// the key again, for a ttl (P6, P28). Until the process has answered, the next connection asks for the same.
async fn end_former_sessions(
    mut connection: MultiplexedConnection,
    health: &InstanceHealth,
    session: Option<u64>,
) -> Result<(), Cause> {
    let former = {
        let mut last = health.lock();
        let run_id = last.info.as_ref().map(|info| info.run_id.clone()).unwrap_or_default();
        last.sessions.begin(run_id, session)
    };
    if former.is_empty() {
        return Ok(());
    }
    let mut commands = redis::pipe();
    for former in &former {
        commands.cmd("CLIENT").arg("KILL").arg("ID").arg(*former);
    }
    // Whoever does not let it may find such a key until it expires.
    if connection.send_packed_commands(&commands, 0, former.len()).await.is_ok() {
        health.lock().sessions.note_ended(&former);
    }
    Ok(())
}

/// Has the instance admitted, as the server's report and its record allow.
async fn admit(
    options: &ConnectOptions,
    connection: MultiplexedConnection,
    scripts: &'static Scripts,
    tracking: bool,
    report: ServerReport,
    pushes: &Pushes,
    health: &Arc<InstanceHealth>,
) -> Result<SharedAdmission, Cause> {
    let (drift_ppm, clock) = (options.drift_ppm, Arc::clone(&options.clock));
    let (records, health_of) = (Arc::clone(&options.records), Arc::clone(health));
    let instance_timeout = options.instance_timeout;
    let config = AdmissionConfig { records, drift_ppm, instance_timeout, clock, health: health_of };
    let flushes = Flushes::new(pushes.flushes().clone());
    let asked = connection.clone();
    let mut handshake = AdmissionHandshake { connection, scripts, config: &config, tracking };
    let outcome = handshake.run(report, false).await;
    let shown = options.address.shown();
    let mut outcome = outcome?;
    note_refusal(options, health, outcome.state.meaning());
    let claim = Box::pin(claim_name(options, &asked, &outcome.info.run_id)); // it is large, and mostly done at once
    let counts_from = claim.await?;
    let previous = health.lock().previous_admission.clone();
    let stepped = previous.is_some_and(|previous| clock_stepped_since(previous, &mut outcome.state, &options.peers));
    let previous = health.lock().info.replace(outcome.info.clone());
    warn_of_eviction(shown, &outcome.info, previous);
    let admission = SharedAdmission::new(config, outcome, flushes);
    admission.withhold_until(counts_from);
    if stepped {
        // Nothing counts until it has been quarantined.
        contain(|| tracing::warn!(instance = shown, "its clock jumped forward while it was not connected"));
        admission.request_follow_up(AdmissionFollowUp::Quarantine);
    }
    Ok(admission)
}

/// Notes whether the instance gives this client votes, and says so when that changes.
pub(super) fn note_refusal(options: &ConnectOptions, health: &InstanceHealth, meaning: &RecordMeaning) {
    let refusal = match meaning {
        RecordMeaning::Refused(reason) => Some(reason.clone()),
        RecordMeaning::Recorded | RecordMeaning::ToBeRaised | RecordMeaning::Unrecorded(_) => None,
    };
    let instance = options.address.shown();
    let former = std::mem::replace(&mut health.lock().refusal, refusal.clone());
    match refusal {
        Some(reason) if former.as_ref() != Some(&reason) => {
            contain(|| tracing::warn!(instance, %reason, "it gives this client no votes"));
        }
        None if former.is_some() => contain(|| tracing::info!(instance, "it gives this client votes again")),
        _ => {}
    }
}

fn clock_stepped_since(previous: PreviousAdmission, state: &mut AdmissionState, peers: &PeerConnections) -> bool {
    let PreviousAdmission { state: mut previous, own_clock_ahead } = previous;
    let stood_still = peers.own_clock_ahead().saturating_sub(own_clock_ahead);
    if !stood_still.is_zero() {
        previous.own_clock_stood_still(stood_still, Instant::ZERO);
    }
    state.continue_from(&previous)
}

/// Once, not at each reconnect.
fn warn_of_eviction(instance: &str, info: &ServerInfo, previous: Option<ServerInfo>) {
    if let Some(policy) = &info.evicts
        && previous.and_then(|previous| previous.evicts).as_ref() != Some(policy)
    {
        contain(|| {
            tracing::warn!(instance, policy, "it is set to evict keys and may throw locks away; use noeviction")
        });
    }
}
