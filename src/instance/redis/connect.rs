//! The steps to a connection that serves. Each has a deadline by the round trips that it takes, so
//! that an instance which answers requests in time can also be connected, and the error names the step that was late.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::{OptionFuture, try_join};
use tokio::sync::Notify;

use super::address::Endpoint;
use super::admission::handshake::{AdmissionConfig, AdmissionHandshake};
use super::admission::namesakes::claim_name;
use super::admission::peers::PeerConnections;
use super::admission::server_info::{self, ServerInfo, ServerReport};
use super::admission::shared::SharedAdmission;
use super::byte_stream::ByteStream;
use super::classify::failed;
use super::connection::{ConnectionParts, InstanceConnection};
use super::deadline::{ConnectFailure, within_trips};
use super::flushes::Flushes;
use super::health::{InstanceHealth, PreviousAdmission};
use super::login::{Hello, log_in};
use super::options::ConnectOptions;
use super::publish::listen;
use super::pushes::Pushes;
use super::scripts::Scripts;
use super::sentinel::find_master;
use super::stream::open_stream;
use super::wire::{Answer, Wire};
use crate::protocol::{AdmissionFollowUp, AdmissionState, Cause, InstanceId, Instant, RecordMeaning};

/// The most round trips of admission: the server's facts, then the record, and for a first client
/// what it writes there.
pub(super) const ADMISSION_TRIPS: u32 = 6;

/// Connects, logs in, and has the instance admitted.
pub(super) async fn connect(
    options: &ConnectOptions,
    health: &Arc<InstanceHealth>,
) -> Result<(Arc<InstanceConnection>, Arc<Pushes>), ConnectFailure> {
    let instance = InstanceId::new(options.index);
    let pushes = Arc::new(Pushes::new(options.listener.as_ref().map(|listener| (instance, listener.messages.clone()))));
    let stream = open(options, health).await?;
    let login = options.address.login().await.map_err(ConnectFailure::Failed)?;
    let broken = Arc::<Notify>::default();
    let clock = Arc::clone(&options.clock);
    let receiver = Arc::clone(&pushes);
    let on_push = Box::new(move |push| receiver.receive(push));
    let (wire, wire_task) = Wire::begin(stream, on_push, clock, Arc::clone(&broken));
    health.excess.watch(wire.too_much());
    let Hello { session } = within_trips(options, "logging in", 2, log_in(&wire, &login)).await?;
    let ask = ask_what_it_is(options, &wire);
    let WhatItIs { rights, report } = within_trips(options, "asking what it is", 2, ask).await?;
    note_rights(options, health, &rights);
    let Rights { tracking, hears, .. } = rights;
    let scripts = Scripts::shipped();
    let loaded = load(scripts, &wire);
    let admission = match report {
        Some(report) => {
            let outcome = admit(options, wire.clone(), scripts, tracking, report, &pushes, health);
            let both = try_join(loaded, outcome);
            let admission = within_trips(options, "agreeing on admission", ADMISSION_TRIPS, both).await?.1;
            let ended = end_former_sessions(&wire, health, session);
            within_trips(options, "ending the former connections", 1, ended).await?;
            Some(admission)
        }
        None => {
            within_trips(options, "loading the scripts", 2, loaded).await?;
            None
        }
    };
    let (deadline, clock) = (options.instance_timeout, Arc::clone(&options.clock));
    let (shown, health) = (options.address.shown().to_owned(), Arc::clone(health));
    let parts = ConnectionParts {
        wire: wire.clone(),
        wire_task,
        broken,
        scripts,
        deadline,
        clock,
        shown,
        health,
        tracking,
        hears: hears == Some(true),
        admission,
    };
    Ok((InstanceConnection::new(parts), pushes))
}

/// Opens the connection, to the present master where Sentinels name it.
async fn open(options: &ConnectOptions, health: &InstanceHealth) -> Result<Box<dyn ByteStream>, ConnectFailure> {
    let endpoint = match options.address.endpoint() {
        Endpoint::Group(group) => find_master(options, group).await.map_err(ConnectFailure::Failed)?,
        endpoint => endpoint.clone(),
    };
    health.lock().endpoint = Some(endpoint.clone());
    let began_tls = AtomicBool::new(false);
    let open = open_stream(&endpoint, options.address.tcp(), &began_tls);
    let opened = within_trips(options, "opening the connection", 4, open).await;
    opened.map_err(|reason| match reason {
        ConnectFailure::Late(_) if began_tls.load(Ordering::Relaxed) => ConnectFailure::LateTls,
        reason => reason,
    })
}

/// What an instance says and allows first.
struct WhatItIs {
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
async fn ask_what_it_is(options: &ConnectOptions, wire: &Wire) -> Result<WhatItIs, Cause> {
    // Pushes of flushes, and of changes of the keys that this connection reads. Without them a flush is still noticed
    // by the next request, data that was replaced by an old copy of itself is not, and a lease that was
    // deleted is missed by its next renewal.
    let tracking = wire.ask(redis::cmd("CLIENT").arg("TRACKING").arg("ON").arg("OPTIN").arg("NOLOOP"));
    let hears = options.listener.as_ref().map(|listener| listen(wire, &listener.client.channel()));
    let named = options.address.client_name();
    let named = named.map(|name| wire.ask(redis::cmd("CLIENT").arg("SETNAME").arg(name)));
    let report = match options.admission {
        true => Some(server_info::read(wire).await?),
        false => None,
    };
    let rights = Rights {
        tracking: tracking.succeeded().await,
        hears: OptionFuture::from(hears.map(Answer::succeeded)).await,
        named: OptionFuture::from(named.map(Answer::succeeded)).await,
    };
    Ok(WhatItIs { rights, report })
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
        tracing::warn!(instance, "CLIENT TRACKING is denied: replaced data may go unnoticed");
    }
    if had_heard != hears && hears == Some(false) {
        tracing::warn!(instance, "SUBSCRIBE is denied: waiters are not woken over this instance, and poll");
    }
    if were_named != named && named == Some(false) {
        tracing::warn!(instance, "CLIENT SETNAME is denied: the connection has no name");
    }
}

async fn load(scripts: &'static Scripts, wire: &Wire) -> Result<(), Cause> {
    let loaded = wire.ask_all(scripts.load()).without_error().await;
    loaded.map(drop).map_err(|error| failed(&error))
}

/// Ends the former connections to the same process, if that still has them, before anything is released over this one:
/// what was on its way over them is not carried out any more. A plain acquire that came behind its own release would set
/// the key again, for a ttl (P6, P28). Until the process has answered, the next connection asks for the same.
async fn end_former_sessions(wire: &Wire, health: &InstanceHealth, session: Option<u64>) -> Result<(), Cause> {
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
    if wire.ask_all(&commands).await.is_ok() {
        health.lock().sessions.note_ended(&former);
    }
    Ok(())
}

/// Has the instance admitted, as the server's report and its record allow.
async fn admit(
    options: &ConnectOptions,
    wire: Wire,
    scripts: &'static Scripts,
    tracking: bool,
    report: ServerReport,
    pushes: &Pushes,
    health: &Arc<InstanceHealth>,
) -> Result<SharedAdmission, Cause> {
    let (drift_ppm, clock) = (options.drift_ppm, Arc::clone(&options.clock));
    let (records, health_of) = (Arc::clone(&options.records), Arc::clone(health));
    let id = InstanceId::new(options.index);
    let config = AdmissionConfig { id, records, drift_ppm, clock, health: health_of };
    let flushes = Flushes::new(pushes.flushes().clone());
    let asked = wire.clone();
    let mut handshake = AdmissionHandshake { wire, scripts, config: &config, tracking };
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
        tracing::warn!(instance = shown, "the clock of the instance jumped forward while it was not connected");
        admission.request_follow_up(AdmissionFollowUp::Quarantine);
    }
    Ok(admission)
}

/// Notes whether the instance gives this client votes, and says so when that changes.
pub(super) fn note_refusal(options: &ConnectOptions, health: &InstanceHealth, meaning: &RecordMeaning) {
    let refusal = match meaning {
        RecordMeaning::Refused(reason) => Some(reason.clone()),
        RecordMeaning::Recorded | RecordMeaning::Unrecorded => None,
    };
    let instance = options.address.shown();
    let former = std::mem::replace(&mut health.lock().refusal, refusal.clone());
    match refusal {
        Some(reason) if former.as_ref() != Some(&reason) => {
            tracing::warn!(instance, %reason, "it gives this client no votes");
        }
        None if former.is_some() => tracing::info!(instance, "it gives this client votes again"),
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
        tracing::warn!(instance, policy, "it is set to evict keys and may throw locks away; use noeviction");
    }
}
