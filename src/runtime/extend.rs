//! Extending a lease (P8, P9, P10).

use std::sync::Arc;
use std::time::Duration;

use super::acquire::Won;
use super::fan_out::Flight;
use super::{Shared, missed_scripts};
use crate::instance::{Claim, Request};
use crate::protocol::{ExtendRefused, InstanceSet, Round, Terms, Verdict};

/// Why a lease was not extended.
#[derive(Debug)]
pub(crate) enum NotExtended {
    /// Its validity has passed; the round that came too late, if there was one.
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
pub(crate) async fn extend(shared: &Shared, held: &mut Won, terms: Terms) -> Result<Duration, NotExtended> {
    if terms.ttl() != held.claim.ttl || !held.claim.resent {
        // Before anything is sent: a release must know, even if this future is dropped (P6).
        held.claim = Arc::new(Claim { ttl: terms.ttl(), resent: true, ..Claim::clone(&held.claim) });
    }
    let everyone = InstanceSet::first(shared.instances.len());
    let mut repeated = false;
    loop {
        let round = held.lease.begin_extend(shared.quorum, terms, shared.clock.now()).map_err(refused)?;
        let mut flight = Flight::launch(shared, round, Request::Extend(Arc::clone(&held.claim)), everyone);
        let verdict = flight.verdict().await;
        let now = shared.clock.now();
        tracing::debug!(?verdict, granted = ?flight.round.granted(), repeated, "extend round");
        if verdict == Verdict::Won && held.lease.settle(&mut flight.round, now) {
            return Ok(held.lease.remaining(now));
        }
        if repeated || !missed_scripts(&flight.round) {
            let round = Box::new(flight.round.clone());
            return Err(match held.lease.remaining(now) {
                Duration::ZERO => NotExtended::Lost(Some(round)),
                remaining => NotExtended::Unconfirmed { remaining, round },
            });
        }
        repeated = true;
    }
}

fn refused(refused: ExtendRefused) -> NotExtended {
    match refused {
        ExtendRefused::Lost => NotExtended::Lost(None),
        ExtendRefused::Shorter => NotExtended::Shorter,
    }
}
