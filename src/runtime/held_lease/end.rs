//! How a lease ends, and what shows it.

use std::sync::Arc;
use std::time::Duration;

use super::renewal_policy::RenewalPolicy;
use crate::instance::Claim;
use crate::protocol::{InstanceId, InstanceSet, Instant, Reply, Round};
use crate::runtime::counters::LossKind;

/// How a lease ended. It never comes back.
#[derive(Clone, Debug)]
pub(crate) enum LeaseEnd {
    /// Its guards gave it up.
    GivenUp,
    /// The client was shut down.
    ShutDown,
    /// Its validity has passed; the last round that did not extend it, if there was one.
    Expired(Option<Arc<Round>>),
    /// No quorum can have kept it (P20).
    Gone(Arc<[ObservedKey]>),
}

/// What the log says of a lease that was lost.
#[derive(Debug)]
pub(super) struct LossLog {
    pub(super) cause: LossCause,
    /// For how long its guards had had it, until what showed the loss.
    pub(super) held_for: Duration,
}

/// Why a lease was lost.
#[derive(Debug)]
pub(super) enum LossCause {
    TakenOver,
    Gone { on: InstanceSet, is_taken_over: bool },
    Expired { cause: String },
}

impl LossCause {
    pub(super) const fn kind(&self) -> LossKind {
        match self {
            Self::TakenOver | Self::Gone { is_taken_over: true, .. } => LossKind::TakenOver,
            Self::Gone { .. } => LossKind::Gone,
            Self::Expired { .. } => LossKind::Expired,
        }
    }
}

impl LossLog {
    pub(super) fn write(self, claim: &Claim) {
        let (resources, token, ttl, held_for) =
            (claim.resources.display_all(), claim.token.get(), claim.ttl, self.held_for);
        match self.cause {
            LossCause::TakenOver => {
                tracing::warn!(resources, token, ?held_for, ?ttl, "lease lost: its holder has taken a part of it over");
            }
            LossCause::Gone { on, .. } => {
                tracing::warn!(resources, token, ?held_for, ?ttl, ?on, "lease lost: no quorum can have kept it");
            }
            LossCause::Expired { cause } => {
                tracing::warn!(resources, token, ?held_for, ?ttl, cause, "lease lost: its validity has passed");
            }
        }
    }
}

/// What an instance was found to have in the place of a lease.
#[derive(Clone, Debug)]
pub(crate) struct ObservedKey {
    pub(crate) instance: InstanceId,
    /// The value under the key; `None` if it was missing, or the instance did not tell.
    pub(crate) value: Option<Vec<u8>>,
}

/// What was last observed on each instance that was found without the lease.
#[derive(Debug, Default)]
pub(super) struct ObservedKeys(Vec<ObservedKey>);

impl ObservedKeys {
    pub(super) fn record(&mut self, instance: InstanceId, value: Option<Vec<u8>>) {
        self.0.retain(|known| known.instance != instance);
        self.0.push(ObservedKey { instance, value });
    }

    /// Forgets what was observed on instances that are not among `absent`.
    pub(super) fn keep_only(&mut self, absent: InstanceSet) {
        self.0.retain(|known| absent.contains(known.instance));
    }

    pub(super) fn take(&mut self) -> Arc<[ObservedKey]> {
        std::mem::take(&mut self.0).into()
    }
}

/// Why the validity of a lease was not extended in time; `last` is the last round that did not extend it.
pub(super) fn why_expired(policy: RenewalPolicy, last: Option<&Round>, now: Instant) -> String {
    match last {
        Some(round) => format!("not renewed: {}", who_did_not_grant(round)),
        None if !policy.renews => "it is not renewed".to_owned(),
        None if !policy.renews_at(now) => "it was held for as long as it may be renewed".to_owned(),
        None => "no renewal was answered in time".to_owned(),
    }
}

pub(crate) fn who_did_not_grant(round: &Round) -> String {
    let said = InstanceId::all(round.replies().len()).zip(round.replies()).filter_map(|(id, answer)| {
        let what = match answer.as_ref().map(|answer| &answer.reply) {
            None | Some(Reply::Granted | Reply::Repaired) => return None,
            Some(Reply::Refused(_)) => "has somebody else's key".to_owned(),
            Some(Reply::NotAdmitted { .. }) => "may not vote".to_owned(),
            Some(Reply::Stale { .. }) => "has a larger token".to_owned(),
            Some(Reply::NotSent(cause) | Reply::Unknown(cause)) => cause.to_string(),
        };
        Some(format!("{id} {what}"))
    });
    let said: Vec<_> = said.collect();
    if said.is_empty() { "too few answered in time".to_owned() } else { said.join(", ") }
}
