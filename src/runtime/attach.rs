//! Goes on with a lease that was detached, from its value.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::oneshot;

use super::acquire::{AcquireParams, UncollectedLease};
use super::client_task::{RuntimeEnded, run_detached};
use super::extend::{ExtendFailure, extend};
use super::held_lease::{Acquired, HeldLease, Tenure};
use super::shared::Shared;
use crate::instance::{Claim, ExtendReply, Instance, split_into_commands};
use crate::protocol::{FencingToken, InstanceId, Lease, Refusal, Reply, Round, Value, Verdict};
use crate::resource::Resources;

/// The most keys in one command: an instance does nothing else meanwhile.
const MAX_BATCH: usize = 128;

/// A lease as it was detached.
#[derive(Clone, Debug)]
pub(crate) struct Detached {
    pub(crate) value: Value,
    pub(crate) token: FencingToken,
}

type Outcome = Result<UncollectedLease, ExtendFailure>;

/// One extend round without repair: won where a quorum still has the keys under the value. So nobody else was granted the
/// lock since: whoever is needs one of those keys to be gone, and nothing sets them again. Valid from its send (P2).
///
/// Whatever comes of it, nothing is deleted: the lease may go on elsewhere (P8).
pub(crate) async fn attach(
    shared: &Arc<Shared>,
    params: &Arc<AcquireParams>,
    detached: Detached,
) -> Result<Tenure, ExtendFailure> {
    shared.instances.iter().for_each(|instance| instance.want_locks());
    let shutdown = || if shared.attempts.is_closed() { Err(nothing_sent(shared, params)) } else { Ok(()) };
    shutdown()?;
    if shared.is_forked() {
        return Err(nothing_sent(shared, params));
    }
    if let Some(held) = shared.lines.share_value(&params.resources, &detached.value) {
        let lease = UncollectedLease::new(Arc::clone(shared), Arc::clone(&held));
        extend(shared, &held, None, held.terms().longer(params.terms)).await?;
        let tenure = lease.collect(params).map_err(|_| ExtendFailure::LeaseLost(None))?;
        held.release_keys();
        return Ok(tenure);
    }
    let (client, asked) = (Arc::clone(shared), Arc::clone(params));
    let outcome = run_detached(&shared.runtime, |result| carry_out(client, asked, detached, result)).await;
    let lease = outcome.unwrap_or_else(|RuntimeEnded| Err(nothing_sent(shared, params)))?;
    // Too late, or after a shutdown: the keys stay until they expire.
    lease.collect(params).map_err(|_| nothing_sent(shared, params))
}

/// What an attempt says that was not made.
fn nothing_sent(shared: &Shared, params: &AcquireParams) -> ExtendFailure {
    let now = shared.clock.now();
    let round = shared.not_sent(Round::acquire(shared.quorum, params.terms, now));
    ExtendFailure::Unconfirmed { remaining: Duration::ZERO, round }
}

async fn carry_out(
    shared: Arc<Shared>,
    params: Arc<AcquireParams>,
    detached: Detached,
    result: oneshot::Sender<Outcome>,
) {
    let claims = claims(&params, &detached);
    let started_at = shared.clock.now(); // P2: before anything is sent
    let mut round = Round::acquire(shared.quorum, params.terms, started_at);
    let mut replies: FuturesUnordered<_> = InstanceId::all(shared.instances.len())
        .zip(shared.instances.iter())
        .map(|(id, instance)| reply_of(id, &**instance, &claims))
        .collect();
    while round.verdict(shared.clock.now()) == Verdict::Pending {
        let Some((id, reply)) = replies.next().await else { break };
        round.on_reply(id, reply, shared.clock.now());
    }
    tracing::debug!(granted = ?round.granted(), "attach round");
    let held = won(&shared, &params, &detached, &mut round);
    let outcome = match &held {
        Some(held) => Ok(UncollectedLease::of_detached(Arc::clone(&shared), Arc::clone(held))),
        None => Err(failure(&round)),
    };
    let _ = result.send(outcome);
    while let Some((id, reply)) = replies.next().await {
        round.on_reply(id, reply, shared.clock.now());
        held.iter().for_each(|held| held.note_replies(&round)); // P20
    }
}

/// What is asked of each key: a lease of several is there where each of them is.
fn claims(params: &AcquireParams, detached: &Detached) -> Vec<Arc<Claim>> {
    let one = |resources: Resources| Claim {
        resources,
        value: detached.value.clone(),
        token: detached.token.of_grant(),
        ttl: params.terms.ttl(),
        resent: true,
        is_first: false,
    };
    params.resources.each().map(|resources| Arc::new(one(resources))).collect()
}

/// What an instance says of all keys. Sent before this returns.
fn reply_of(
    id: InstanceId,
    instance: &dyn Instance,
    claims: &[Arc<Claim>],
) -> impl Future<Output = (InstanceId, Reply)> + use<> {
    let of_one = |reply| match reply {
        ExtendReply::Decided(reply) => reply,
        ExtendReply::ExtendAlone => Reply::Refused(Refusal::default()), // the key is not there, or not its own
    };
    let mut parts = Vec::new();
    split_into_commands(claims, MAX_BATCH, |claim| claim.command_size())
        .for_each(|part| parts.push(instance.extend_many(part.to_vec())));
    let replies = join_all(parts);
    async move {
        let replies = replies.await.into_iter().flatten().map(of_one);
        let worst = replies.reduce(|worst, reply| if worst == Reply::Granted { reply } else { worst });
        (id, worst.unwrap_or(Reply::Refused(Refusal::default())))
    }
}

/// The lease, if the round was won.
fn won(shared: &Arc<Shared>, params: &AcquireParams, detached: &Detached, round: &mut Round) -> Option<Arc<HeldLease>> {
    let token = detached.token.of_grant();
    let lease = Lease::from_won(round, params.terms, token, shared.clock.now())?;
    let claim = Arc::new(Claim {
        resources: params.resources.clone(),
        value: detached.value.clone(),
        token,
        ttl: params.terms.ttl(),
        resent: true, // P6: what was sent for it by others may come late
        is_first: false,
    });
    let (holder, counters) = (Arc::clone(&params.holder), Arc::clone(&shared.counters));
    let (lease, client) = (lease.add_release_targets(shared.all_instances()), Arc::downgrade(shared));
    let acquired = Acquired { lease, claim, holder, counters };
    let held = Arc::new(HeldLease::attached(acquired, client, detached.token));
    shared.note_held(&params.resources, &held);
    shared.lines.put_held(&held);
    Some(held)
}

/// It is lost if no quorum can have it; else too few have answered to tell.
fn failure(round: &Round) -> ExtendFailure {
    let round = Box::new(round.clone());
    let is_without = |reply: &Reply| matches!(reply, Reply::Refused(_));
    let without = round.replies().iter().flatten().filter(|answer| is_without(&answer.reply)).count();
    if round.quorum().is_out_of_reach(without) {
        ExtendFailure::LeaseLost(Some(round))
    } else {
        ExtendFailure::Unconfirmed { remaining: Duration::ZERO, round }
    }
}
