//! Extending a lease by hand (P8, P9, P10).

use std::sync::Arc;
use std::time::Duration;

use super::fan_out::Flight;
use super::hold::Hold;
use super::{Shared, missed_scripts};
use crate::instance::{Claim, Request};
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

/// One extend round for a held lease, repeated once if only the scripts were missing.
pub(crate) async fn extend(shared: &Shared, hold: &Arc<Hold>, terms: Terms) -> Result<Duration, NotExtended> {
    let everyone = InstanceSet::first(shared.instances.len());
    let mut repeated = false;
    loop {
        let (round, claim) = begin(shared, hold, terms)?;
        let mut flight = Flight::launch(shared, round, Request::Extend(claim), everyone);
        let verdict = flight.verdict().await;
        let now = shared.clock.now();
        tracing::debug!(?verdict, granted = ?flight.round.granted(), repeated, "extend round");
        let is_gone = hold.note_answers(&flight.round);
        let is_extended = !is_gone && hold.state().settle(&mut flight.round, now);
        if is_gone || is_extended {
            shared.keeper.plan(hold); // one that failed leaves the next renewal where it is
        }
        if is_extended {
            return Ok(hold.remaining(&*shared.clock));
        }
        if is_gone || repeated || !missed_scripts(&flight.round) {
            let round = Box::new(flight.round.clone());
            return Err(match hold.remaining(&*shared.clock) {
                Duration::ZERO => NotExtended::Lost(Some(round)),
                remaining => NotExtended::Unconfirmed { remaining, round },
            });
        }
        repeated = true;
    }
}

fn begin(shared: &Shared, hold: &Hold, terms: Terms) -> Result<(Round, Arc<Claim>), NotExtended> {
    if hold.ended(&*shared.clock).is_some() {
        return Err(NotExtended::Lost(None));
    }
    let mut state = hold.state();
    let round = state.lease.begin_extend(shared.quorum, terms, shared.clock.now()).map_err(refused)?;
    Ok((round, state.claim_to_extend(terms.ttl())))
}

fn refused(refused: ExtendRefused) -> NotExtended {
    match refused {
        ExtendRefused::Lost => NotExtended::Lost(None),
        ExtendRefused::Shorter => NotExtended::Shorter,
    }
}
