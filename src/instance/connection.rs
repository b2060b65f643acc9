//! The task that keeps one connection up: connect, admit, serve until it breaks or falls silent,
//! again.

use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, PushInfo, PushKind, RedisResult, Value};
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

use super::Hint;
use super::address::Address;
use super::admit::{Admitting, Rules};
use super::classify::failed;
use super::facts::{About, heartbeat};
use super::guarded::Guarded;
use super::lane::closed;
use super::link::{Link, MAX_WAITING, Parts};
use super::pacer::Pacer;
use super::redis::Reach;
use super::roster::Roster;
use super::scripts::Scripts;
use crate::clock::Clock;
use crate::protocol::{Cause, InstanceId, Record, Remedy, Standing, reconnect_delay};
use crate::resource::ADMISSION_KEY;

/// The first pause before connecting again, and the longest.
const RECONNECT_LEAST: Duration = Duration::from_millis(20);
const RECONNECT_MOST: Duration = Duration::from_secs(1);

/// How long connecting may take at least, however short the instance timeout: a TLS handshake and
/// the first commands are several round trips.
const CONNECT_LEAST: Duration = Duration::from_millis(500);

/// What to connect to, and how.
#[derive(Clone, Debug)]
pub(crate) struct Dial {
    pub(crate) index: usize,
    pub(crate) address: Address,
    pub(crate) instance_timeout: Duration,
    pub(crate) max_ttl: Duration,
    pub(crate) drift_ppm: u32,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) roster: Arc<Roster>,
    pub(crate) pacer: Arc<Pacer>,
    /// Whether instances that may have forgotten locks are kept from voting.
    pub(crate) admission: bool,
    /// Who wants to know of keys that changed.
    pub(crate) hints: mpsc::UnboundedSender<Hint>,
}

/// What is known of an instance beyond its present connection.
#[derive(Debug, Default)]
pub(super) struct Known(Mutex<Knowledge>);

#[derive(Clone, Debug, Default)]
pub(super) struct Knowledge {
    pub(super) about: Option<About>,
    pub(super) round_trip: Option<Duration>,
    pub(super) last_error: Option<String>,
    /// A record that a former connection had reason to doubt and could not set right any more.
    pub(super) doubted: Option<Arc<Record>>,
    /// How the former connection left the instance: its clock may step while nobody is connected.
    pub(super) former: Option<Standing>,
}

impl Known {
    pub(super) fn get(&self) -> MutexGuard<'_, Knowledge> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a connection up and tells of its state until nobody wants to know any more.
pub(super) async fn keep_up(dial: Dial, reach: watch::Sender<Reach>, known: Arc<Known>) {
    let mut attempt = 0;
    while !reach.is_closed() {
        let cause = match connect(&dial, &known).await {
            Ok((link, pushes)) => {
                attempt = 0;
                tracing::info!(instance = dial.address.shown(), "connected");
                let cause = serve(&dial, link, pushes, &reach, &known).await;
                tracing::warn!(instance = dial.address.shown(), %cause, "disconnected");
                cause
            }
            Err(cause) => {
                tracing::debug!(instance = dial.address.shown(), %cause, "could not connect");
                reach.send_if_modified(|reach| tell(reach, &cause));
                cause
            }
        };
        dial.roster.leave(dial.index);
        known.get().last_error = Some(cause.to_string());
        sleep(reconnect_delay(attempt, RECONNECT_LEAST, RECONNECT_MOST, rand::random())).await;
        attempt = attempt.saturating_add(1);
    }
}

/// A silent instance that does not answer a probe either is still best called silent.
fn tell(reach: &mut Reach, cause: &Cause) -> bool {
    let still_silent = matches!(reach, Reach::Down(Cause::Silent)) && matches!(cause, Cause::TimedOut);
    if !still_silent {
        *reach = Reach::Down(match cause {
            Cause::TimedOut => Cause::NotConnected(cause.to_string()),
            cause => cause.clone(),
        });
    }
    !still_silent
}

type Pushes = mpsc::UnboundedReceiver<PushInfo>;

async fn connect(dial: &Dial, known: &Known) -> Result<(Link, Pushes), Cause> {
    let (sender, pushes) = mpsc::unbounded_channel();
    let replaced = Arc::new(AtomicBool::new(false));
    let at_once = Arc::clone(&replaced);
    let config = AsyncConnectionConfig::new()
        .set_push_sender(move |push: PushInfo| {
            if is_flush(&push) {
                at_once.store(true, Ordering::Release);
            }
            let ours = matches!(push.kind, PushKind::Invalidate | PushKind::Disconnection);
            if ours { sender.send(push) } else { Ok(()) }
        })
        .set_connection_timeout(None) // the deadline below covers everything
        .set_response_timeout(None) // each request has its own deadline
        .set_pipeline_buffer_size(MAX_WAITING);
    let attempt = async {
        let (mut connection, scripts) = open(dial, &config).await.map_err(|error| failed(&error))?;
        let tracking = track(dial, &mut connection).await;
        let guarded = match dial.admission {
            true => Some(admit(dial, &mut connection, scripts, tracking, replaced, known).await?),
            false => None,
        };
        let (deadline, clock, pacer) = (dial.instance_timeout, Arc::clone(&dial.clock), Arc::clone(&dial.pacer));
        Ok(Link::new(Parts { connection, scripts, deadline, clock, pacer, tracking, guarded }))
    };
    within(dial, attempt).await.map(|link| (link, pushes))
}

/// Bounds what takes several round trips.
async fn within<T>(dial: &Dial, work: impl Future<Output = Result<T, Cause>>) -> Result<T, Cause> {
    timeout(dial.instance_timeout.max(CONNECT_LEAST), work).await.unwrap_or(Err(Cause::TimedOut))
}

async fn open(dial: &Dial, config: &AsyncConnectionConfig) -> RedisResult<(MultiplexedConnection, &'static Scripts)> {
    let client = dial.address.client()?;
    let mut connection = client.get_multiplexed_async_connection_with_config(config).await?;
    let scripts = Scripts::for_version(major_version(&mut connection).await?);
    scripts.load().query_async::<()>(&mut connection).await?;
    Ok((connection, scripts))
}

/// Asks to be told of flushes, and of keys that it will look at. Without it a flush is still noticed
/// by the next request, data that was replaced by an old copy of itself is not, and a lease that was
/// deleted is missed by its next renewal.
async fn track(dial: &Dial, connection: &mut MultiplexedConnection) -> bool {
    let ask = redis::cmd("CLIENT").arg("TRACKING").arg("ON").arg("OPTIN").arg("NOLOOP").to_owned();
    let tracking = ask.query_async::<()>(connection).await.is_ok();
    if !tracking {
        tracing::warn!(instance = dial.address.shown(), "CLIENT TRACKING is denied: replaced data may go unnoticed");
    }
    tracking
}

async fn admit(
    dial: &Dial,
    connection: &mut MultiplexedConnection,
    scripts: &'static Scripts,
    tracking: bool,
    replaced: Arc<AtomicBool>,
    known: &Known,
) -> Result<Guarded, Cause> {
    let rules = Rules { max_ttl: dial.max_ttl, drift_ppm: dial.drift_ppm, clock: Arc::clone(&dial.clock) };
    let mut admitting = Admitting { connection: connection.clone(), scripts, rules: &rules, tracking, again: false };
    let doubted = known.get().doubted.clone();
    let (mut standing, mut about) = admitting.admit(doubted.as_deref()).await?;
    let former = known.get().former.clone();
    if former.is_some_and(|former| standing.follows_on(&former)) {
        tracing::warn!(instance = dial.address.shown(), "its clock jumped forward while it was not connected");
        let (record, steps) = (Arc::clone(standing.record()), standing.clone());
        (standing, about) = admitting.admit(Some(&record)).await?;
        standing.keep_watch_of(&steps);
    }
    dial.roster.enter(dial.index, dial.address.shown(), &about.run_id).map_err(Cause::NotUsable)?;
    if let Some(policy) = &about.evicts {
        tracing::warn!(
            instance = dial.address.shown(),
            policy,
            "it is set to evict keys and may throw locks away; use noeviction"
        );
    }
    known.get().about = Some(about);
    known.get().doubted = None;
    Ok(Guarded::new(rules, standing, replaced))
}

/// The major version of Redis that the server is compatible with. HELLO tells it to every user.
async fn major_version(connection: &mut MultiplexedConnection) -> RedisResult<u32> {
    let hello: HashMap<String, Value> = redis::cmd("HELLO").query_async(connection).await?;
    let version = match hello.get("version") {
        Some(Value::BulkString(version)) => String::from_utf8_lossy(version).into_owned(),
        Some(Value::SimpleString(version)) => version.clone(),
        _ => String::new(),
    };
    Ok(version.split('.').next().and_then(|major| major.parse().ok()).unwrap_or(0))
}

/// Offers the connection until it is to be given up; gives the reason.
async fn serve(dial: &Dial, link: Link, mut pushes: Pushes, reach: &watch::Sender<Reach>, known: &Known) -> Cause {
    let link = Arc::new(link);
    reach.send_replace(Reach::Up(Arc::clone(&link)));
    let mut beats = pin!(beat_on(&link, heartbeat(dial.max_ttl), known));
    let cause = loop {
        tokio::select! {
            cause = link.given_up() => break cause,
            push = pushes.recv() => match push {
                Some(push) if push.kind == PushKind::Invalidate => note_push(dial, &link, push),
                _ => break closed(),
            },
            remedy = asked(&link) => {
                tracing::warn!(instance = dial.address.shown(), ?remedy, "admission is renewed");
                match within(dial, link.remedy(remedy)).await {
                    Ok(about) => known.get().about = about,
                    Err(cause) => break cause,
                }
                reach.send_modify(|_| {}); // whoever waits for the record looks again
            },
            () = &mut beats => {}
            () = reach.closed() => break closed(),
        }
    };
    reach.send_replace(Reach::Down(cause.clone()));
    link.close();
    known.get().doubted = link.guarded().and_then(Guarded::doubted);
    known.get().former = link.guarded().map(Guarded::snapshot);
    cause
}

async fn asked(link: &Link) -> Remedy {
    match link.guarded() {
        Some(guarded) => guarded.asked().await,
        None => std::future::pending().await,
    }
}

async fn beat_on(link: &Link, pause: Duration, known: &Known) {
    loop {
        let round_trip = link.beat().await;
        if round_trip.is_some() {
            known.get().round_trip = round_trip;
        }
        sleep(pause).await;
    }
}

/// Whether a push says that the data was thrown away or replaced. A hint is enough: it leads to a
/// look at the record.
fn is_flush(push: &PushInfo) -> bool {
    push.kind == PushKind::Invalidate && !matches!(push.data.first(), Some(Value::Array(_)))
}

fn note_push(dial: &Dial, link: &Link, push: PushInfo) {
    let instance = InstanceId::new(dial.index);
    let keys = match push.data.into_iter().next() {
        Some(Value::Array(keys)) => Some(keys.into_iter().filter_map(name).collect::<Vec<_>>()),
        _ => None,
    };
    if let Some(guarded) = link.guarded() {
        match &keys {
            None => guarded.ask(Remedy::Quarantine),
            Some(keys) if keys.iter().any(|key| key == ADMISSION_KEY.as_bytes()) => guarded.ask(Remedy::Readmit),
            Some(_) => {}
        }
    }
    // An error means that the client is gone.
    let _ = dial.hints.send(Hint { instance, keys });
}

fn name(key: Value) -> Option<Vec<u8>> {
    match key {
        Value::BulkString(name) => Some(name),
        _ => None,
    }
}
