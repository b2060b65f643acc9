//! The steps to a connection that serves. Each has a deadline by the round trips that it takes, so
//! that an instance which answers requests in time can also be connected, and says which was late.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, PushInfo, RedisError};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

use super::admission::handshake::{Admitting, Rules, Told, ask_facts};
use super::admission::shared::Guarded;
use super::classify::failed;
use super::connection::{Link, MAX_WAITING, Parts};
use super::driver::{Driver, queued};
use super::flushes::Flushes;
use super::health::Known;
use super::hello::major_version;
use super::options::Dial;
use super::pushes::Pushes;
use super::scripts::Scripts;
use super::wire::Wire;
use crate::protocol::{Cause, Instant, Remedy};

/// What a step may take at least, however short the instance timeout.
const STEP_LEAST: Duration = Duration::from_millis(500);

/// The most round trips of admission: the server's facts, then the record, and for a first client
/// what it writes there.
pub(super) const ADMISSION_TRIPS: u32 = 6;

/// Why there is no connection.
pub(super) enum NotConnected {
    /// It did not answer in time; when.
    Late(&'static str),
    /// It could not be reached, or answered something else.
    Failed(Cause),
}

impl NotConnected {
    pub(super) fn cause(self) -> Cause {
        match self {
            Self::Late(step) => Cause::NotConnected(format!("no answer in time while {step}")),
            Self::Failed(cause) => cause,
        }
    }
}

/// Does what takes so many round trips, in time.
pub(super) async fn step<T>(
    dial: &Dial,
    step: &'static str,
    trips: u32,
    work: impl Future<Output = Result<T, Cause>>,
) -> Result<T, NotConnected> {
    let limit = dial.instance_timeout.saturating_mul(trips).max(STEP_LEAST);
    match timeout(limit, work).await {
        Ok(done) => done.map_err(NotConnected::Failed),
        Err(_) => Err(NotConnected::Late(step)),
    }
}

/// Connects, logs in, and has the instance admitted.
pub(super) async fn connect(dial: &Dial, known: &Arc<Known>) -> Result<(Link, Arc<Pushes>), NotConnected> {
    let pushes = Arc::<Pushes>::default();
    let open = async { Wire::open(dial.address.place()).await.map_err(|error| failed(&RedisError::from(error))) };
    let wire = step(dial, "opening the connection", 4, open).await?;
    let too_long = wire.too_long();
    let sender = Arc::clone(&pushes);
    let config = AsyncConnectionConfig::new()
        .set_push_sender(move |push: PushInfo| -> Result<(), mpsc::error::SendError<()>> {
            sender.take_in(push);
            Ok(())
        })
        .set_response_timeout(None) // each request has its own deadline
        .set_pipeline_buffer_size(MAX_WAITING);
    let login = async {
        let login = MultiplexedConnection::new_with_config(dial.address.login(), wire, config).await;
        login.map_err(|error| failed(&error))
    };
    let (mut connection, driver) = step(dial, "logging in", 2, login).await?;
    let broken = Arc::<Notify>::default();
    let driver = Driver::start(driver, Arc::clone(&broken));

    // What follows is asked together, as far as one answer does not decide the next question.
    let ask = async {
        let version = queued(major_version(connection.clone()));
        let tracking = queued(track(connection.clone()));
        let told = match dial.admission {
            true => Some(ask_facts(&mut connection).await),
            false => None,
        };
        let version = version.await?; // first: it says best what cannot be used
        Ok((version, tracking.await, told.transpose()?))
    };
    let (version, tracking, told) = step(dial, "asking what it is", 2, ask).await?;
    // Said once, not at each reconnect.
    if known.get().tracking.replace(tracking) != Some(tracking) && !tracking {
        tracing::warn!(instance = dial.address.shown(), "CLIENT TRACKING is denied: replaced data may go unnoticed");
    }
    let scripts = Scripts::for_version(version);
    let loaded = load(scripts, connection.clone());
    let guarded = match told {
        Some(told) => {
            let admitted = admit(dial, connection.clone(), scripts, tracking, told, &pushes, known);
            let both = try_join(loaded, admitted);
            Some(step(dial, "agreeing on admission", ADMISSION_TRIPS, both).await?.1)
        }
        None => {
            step(dial, "loading the scripts", 2, loaded).await?;
            None
        }
    };
    let (deadline, clock, pacer) = (dial.instance_timeout, Arc::clone(&dial.clock), Arc::clone(&dial.pacer));
    let (shown, known) = (dial.address.shown().to_owned(), Arc::clone(known));
    let parts = Parts {
        connection,
        driver,
        broken,
        too_long,
        scripts,
        deadline,
        clock,
        pacer,
        shown,
        known,
        tracking,
        guarded,
    };
    let link = Link::new(parts);
    Ok((link, pushes))
}

async fn load(scripts: &'static Scripts, mut connection: MultiplexedConnection) -> Result<(), Cause> {
    scripts.load().query_async::<()>(&mut connection).await.map_err(|error| failed(&error))
}

/// Asks to be told of flushes, and of keys that it will look at. Without it a flush is still noticed
/// by the next request, data that was replaced by an old copy of itself is not, and a lease that was
/// deleted is missed by its next renewal.
async fn track(mut connection: MultiplexedConnection) -> bool {
    let ask = redis::cmd("CLIENT").arg("TRACKING").arg("ON").arg("OPTIN").arg("NOLOOP").to_owned();
    ask.query_async::<()>(&mut connection).await.is_ok()
}

async fn admit(
    dial: &Dial,
    connection: MultiplexedConnection,
    scripts: &'static Scripts,
    tracking: bool,
    told: Told,
    pushes: &Pushes,
    known: &Arc<Known>,
) -> Result<Guarded, Cause> {
    let (max_ttl, drift_ppm, clock) = (dial.max_ttl, dial.drift_ppm, Arc::clone(&dial.clock));
    let rules = Rules { max_ttl, drift_ppm, clock, known: Arc::clone(known) };
    let flushes = pushes.flushes().clone();
    let mut admitting = Admitting { connection, scripts, rules: &rules, tracking, again: false, flushes: &flushes };
    let mut admitted = admitting.admit(told).await?;
    let about = admitted.about.clone();
    dial.roster.enter(dial.index, dial.address.shown(), &about.run_id).map_err(Cause::NotUsable)?;
    let former = known.get().former.clone();
    let stepped = former.is_some_and(|(mut former, ahead)| {
        let stood_still = dial.peers.own_clock_ahead().saturating_sub(ahead);
        if !stood_still.is_zero() {
            former.own_clock_stood_still(stood_still, Instant::ZERO);
        }
        admitted.standing.follows_on(&former)
    });
    let former = known.get().about.replace(about.clone());
    if let Some(policy) = &about.evicts
        && former.and_then(|former| former.evicts).as_ref() != Some(policy)
    {
        tracing::warn!(
            instance = dial.address.shown(),
            policy,
            "it is set to evict keys and may throw locks away; use noeviction"
        );
    }
    let guarded = Guarded::new(rules, admitted, Flushes::new(flushes));
    if stepped {
        // Nothing counts until it has been served, and it is noted with all that comes of it.
        tracing::warn!(instance = dial.address.shown(), "its clock jumped forward while it was not connected");
        guarded.ask(Remedy::Quarantine);
    }
    Ok(guarded)
}
