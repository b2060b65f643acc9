//! Extending a lease by hand (P8, P9, P10).

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::fan_out::Flight;
use super::hold::Hold;
use super::work::{RuntimeEnded, to_its_end};
use super::{Shared, missed_scripts, nobody_asked};
use crate::instance::Request;
use crate::protocol::{ExtendRefused, InstanceSet, Round, Terms};

/// Why a lease was not extended.
#[derive(Debug)]
pub(crate) enum NotExtended {
    /// It has ended; the round that came too late or found it gone, if there was one.
    Lost(Option<Box<Round>>),
    /// No quorum granted; the lease is as it was.
    Unconfirmed {
        /// How long it is still valid.
        remaining: Duration,
        /// The round.
        round: Box<Round>,
    },
    /// The ttl is below the lease's own.
    Shorter,
}

/// One extend round for a held lease, repeated once if only the scripts were missing. It goes on in a
/// task of the client, also if the caller goes away (P22).
pub(crate) async fn extend(shared: &Arc<Shared>, hold: &Arc<Hold>, terms: Terms) -> Result<Duration, NotExtended> {
    let flight = launch(shared, hold, terms)?;
    let (client, lease) = (Arc::clone(shared), Arc::clone(hold));
    let told = to_its_end(&shared.runtime, |tell| carry_out(client, lease, terms, flight, tell)).await;
    told.unwrap_or_else(|RuntimeEnded| {
        let round = Round::extend(shared.quorum, terms, shared.clock.now(), shared.clock.now());
        Err(not_extended(shared, hold, nobody_asked(round, shared)))
    })
}

async fn carry_out(
    shared: Arc<Shared>,
    hold: Arc<Hold>,
    terms: Terms,
    mut flight: Flight,
    tell: oneshot::Sender<Result<Duration, NotExtended>>,
) {
    let mut repeated = false;
    let result = loop {
        let verdict = flight.verdict().await;
        tracing::debug!(?verdict, granted = ?flight.round.granted(), repeated, "extend round");
        hold.note_answers(&flight.round);
        let extended = hold.settle(&mut flight.round, &*shared.clock);
        let has_ended = hold.ended(&*shared.clock).is_some();
        if has_ended || extended.is_some() {
            shared.keeper.plan(&hold); // one that failed leaves the next renewal where it is
        }
        if let Some(remaining) = extended {
            break Ok(remaining);
        }
        if has_ended || repeated || !missed_scripts(&flight.round) {
            break Err(not_extended(&shared, &hold, Box::new(flight.round.clone())));
        }
        repeated = true;
        match launch(&shared, &hold, terms) {
            Ok(next) => flight = next,
            Err(refused) => break Err(refused),
        }
    };
    let _ = tell.send(result);
    follow(&shared, &hold, flight).await;
}

/// Follows what is still on its way after the verdict: it counts as well (P20).
pub(super) async fn follow(shared: &Shared, hold: &Arc<Hold>, mut flight: Flight) {
    let mut looked_at = flight.round.granted();
    shared.keeper.look_again(hold, looked_at);
    let heard = |round: &Round| {
        hold.note_answers(round);
        shared.keeper.look_again(hold, round.granted().without(looked_at));
        looked_at = round.granted();
    };
    flight.follow(heard).await;
}

fn launch(shared: &Arc<Shared>, hold: &Hold, terms: Terms) -> Result<Flight, NotExtended> {
    if hold.ended(&*shared.clock).is_some() {
        return Err(NotExtended::Lost(None));
    }
    let mut state = hold.state();
    if state.has_ended() {
        return Err(NotExtended::Lost(None));
    }
    let round = state.lease.begin_extend(shared.quorum, terms, shared.clock.now()).map_err(refused)?;
    let claim = state.claim_to_extend(terms.ttl());
    drop(state);
    let everyone = InstanceSet::first(shared.instances.len());
    Ok(Flight::launch(shared, round, Request::Extend(claim), everyone))
}

fn not_extended(shared: &Shared, hold: &Hold, round: Box<Round>) -> NotExtended {
    match hold.remaining(&*shared.clock) {
        Duration::ZERO => NotExtended::Lost(Some(round)),
        remaining => NotExtended::Unconfirmed { remaining, round },
    }
}

fn refused(refused: ExtendRefused) -> NotExtended {
    match refused {
        ExtendRefused::Lost => NotExtended::Lost(None),
        ExtendRefused::Shorter => NotExtended::Shorter,
    }
}
