//! How a lease ends, and what shows it.

use std::sync::Arc;
use std::time::Duration;

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
    /// It was renewed until its guards had had it for as long as they may.
    MaxHold,
    /// Its validity has passed; the last round that did not extend it, if there was one.
    Expired(Option<Arc<Round>>),
    /// No quorum can have kept it (P20).
    Gone(Arc<GoneKeys>),
}

/// Where a lease that no quorum can have kept was missing, and who has it instead.
#[derive(Debug)]
pub(crate) struct GoneKeys {
    /// The instances that were found without it.
    pub(crate) on: InstanceSet,
    /// The value that took its place; `None` if its keys are just gone.
    pub(crate) taken_over_by: Option<Vec<u8>>,
}

impl LeaseEnd {
    /// Of which kind of loss it is, if it is one.
    pub(super) fn loss(&self) -> Option<LossKind> {
        match self {
            Self::GivenUp | Self::ShutDown => None,
            Self::Expired(_) => Some(LossKind::Expired),
            Self::MaxHold => Some(LossKind::MaxHold),
            Self::Gone(keys) if keys.taken_over_by.is_some() => Some(LossKind::TakenOver),
            Self::Gone(_) => Some(LossKind::Gone),
        }
    }
}

/// What the log says of a lease that was lost.
#[derive(Debug)]
pub(super) struct LossLog {
    pub(super) kind: LossKind,
    pub(super) end: LeaseEnd,
    /// Whether it was renewed. One that was not is lost as its holder has asked for.
    pub(super) was_renewed: bool,
    /// For how long its guards had had it, until what showed the loss.
    pub(super) held_for: Duration,
    /// When the loss was noticed.
    pub(super) at: Instant,
}

impl LossLog {
    /// Whether it has just come to the end that it was to have.
    pub(super) const fn is_expected(&self) -> bool {
        !self.was_renewed && matches!(self.end, LeaseEnd::Expired(None))
    }

    /// A warning, if there are not too many; `times` is how many losses it counts. Instances are named by `addresses`.
    pub(super) fn write(self, claim: &Claim, times: Option<u64>, addresses: impl Fn(InstanceSet) -> Vec<String>) {
        let (resource, token, ttl, held_for) = (claim.resource.display(), claim.token.get(), claim.ttl, self.held_for);
        let Some(times) = times else {
            return tracing::debug!(resource, token, ?held_for, ?ttl, why = self.kind.name(), "lease lost");
        };
        match self.end {
            LeaseEnd::Gone(keys) => {
                let on = addresses(keys.on).join(", ");
                tracing::warn!(resource, token, ?held_for, ?ttl, on, times, "lease lost: no quorum can have kept it");
            }
            LeaseEnd::MaxHold => {
                let cause = "it was held for as long as its max_hold allows";
                tracing::warn!(resource, token, ?held_for, ?ttl, cause, times, "lease lost: it is renewed no more");
            }
            end => {
                let cause = match end {
                    LeaseEnd::Expired(Some(last)) => format!("not renewed: {}", who_did_not_grant(&last, addresses)),
                    _ if self.was_renewed => "no renewal was answered in time".to_owned(),
                    _ => "it is not renewed".to_owned(),
                };
                tracing::warn!(resource, token, ?held_for, ?ttl, cause, times, "lease lost: its validity has passed");
            }
        }
    }
}

/// What was last observed on each instance that had the lease and was found without it.
#[derive(Debug, Default)]
pub(super) struct ObservedKeys(Vec<(InstanceId, Option<Vec<u8>>)>);

impl ObservedKeys {
    /// The key is gone there, or `replaced_by` has taken its place.
    pub(super) fn record(&mut self, instance: InstanceId, replaced_by: Option<Vec<u8>>) {
        self.0.retain(|(known, _)| *known != instance);
        self.0.push((instance, replaced_by));
    }

    /// Forgets what was observed on instances that are not among `absent`.
    pub(super) fn keep_only(&mut self, absent: InstanceSet) {
        self.0.retain(|(instance, _)| absent.contains(*instance));
    }

    /// With the instances that are without the key, some of which never had it. It was taken over if one value took its
    /// place on at least as many instances as it is just gone from.
    pub(super) fn take(&mut self, absent: InstanceSet) -> Arc<GoneKeys> {
        let observed = std::mem::take(&mut self.0);
        let on = observed.iter().map(|(instance, _)| *instance).chain(absent.iter()).collect();
        let values: Vec<&Vec<u8>> = observed.iter().filter_map(|(_, value)| value.as_ref()).collect();
        let count = |value: &Vec<u8>| values.iter().filter(|other| **other == value).count();
        let most_named = values.iter().copied().max_by_key(|value| count(value));
        let gone = observed.len() - values.len();
        let taken_over_by = most_named.filter(|value| count(value) >= gone).cloned();
        Arc::new(GoneKeys { on, taken_over_by })
    }
}

/// What kept a round from being won, by instance.
pub(crate) fn who_did_not_grant(round: &Round, addresses: impl Fn(InstanceSet) -> Vec<String>) -> String {
    let said = round.answers().filter_map(|(id, answer)| {
        let what = match &answer.reply {
            Reply::Granted | Reply::Repaired => return None,
            Reply::Refused(_) => "has another holder's key".to_owned(),
            Reply::Kept { .. } | Reply::NotAdmitted { .. } => "may not vote".to_owned(),
            Reply::Stale { .. } => "has a larger token".to_owned(),
            Reply::NotSent(cause) | Reply::Unknown(cause) => cause.to_string(),
        };
        Some(format!("{} {what}", addresses(InstanceSet::only(id)).concat()))
    });
    let said: Vec<_> = said.collect();
    if said.is_empty() { "too few answered in time".to_owned() } else { said.join(", ") }
}
