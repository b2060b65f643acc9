//! The last round, for any lock, to which too few instances answered: another try would find the same.

use std::sync::{Mutex, PoisonError};

use super::AcquireFailure;
use crate::protocol::{InstanceId, Instant, Reply, Round, RoundFailure};

#[derive(Default)]
pub(super) struct Outage(Mutex<Option<Box<Round>>>);

impl Outage {
    /// Why a round for any lock was lost that began after this: too few instances have answered.
    pub(super) fn since(&self, begun: Instant) -> Option<AcquireFailure> {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let round = last.as_ref().filter(|round| round.started_at() > begun)?;
        Some(AcquireFailure::RoundLost(round.clone()))
    }

    /// An attempt was lost. If too few instances have answered, that says the same of all other locks, as far as it is not about this one:
    /// then this gives when it was begun.
    pub(super) fn note_lost(&self, round: &Round) -> Option<Instant> {
        let is_for_all = |reply: &Reply| match reply {
            Reply::NotSent(cause) | Reply::Unknown(cause) => !cause.may_be_of_one_request(),
            _ => false,
        };
        let silent = round.which(|reply| reply.is_some_and(is_for_all));
        let no_quorum = RoundFailure::of(round) == RoundFailure::NoQuorum;
        if !no_quorum || !round.quorum().is_out_of_reach(silent.len()) {
            return None;
        }
        let mut of_others = Round::release(round.quorum(), round.started_at());
        for (id, answer) in InstanceId::all(round.replies().len()).zip(round.replies()) {
            // The rest were not waited for.
            if let Some(reply) = answer.as_ref().map(|answer| &answer.reply).filter(|reply| is_for_all(reply)) {
                of_others.record(id, reply.clone(), round.started_at());
            }
        }
        let began = of_others.started_at();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(of_others));
        Some(began)
    }
}
