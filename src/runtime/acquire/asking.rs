//! The state of one client's attempts for a lock.

use std::sync::Arc;

use tokio::time::{sleep, timeout};

use super::left_mark::{LONGEST_MARKED_PAUSE, LeftMark};
use crate::protocol::{FencingToken, RetryDelay, Round, WriterMark};
use crate::random;
use crate::runtime::order::Wait;
use crate::runtime::wait_events::AskReason;

/// What one waiter of a lock passes on to the next, until the lock is won.
#[derive(Debug, Default)]
pub(super) struct Asking {
    /// The largest token that the last attempt has seen (P12).
    pub(super) seen: Option<FencingToken>,
    /// How many attempts were sent, in how many rounds.
    pub(super) asks: u32,
    pub(super) rounds: usize,
    /// Why the next attempt is sent.
    pub(super) why: AskReason,
    /// How many attempts have failed.
    failures: u32,
    /// The wait in order with other clients, if this one keeps that (P25).
    /// Begun with the first failure.
    wait: Option<Option<Wait>>,
    /// The mark that refuses new readers, once readers have refused this client (P34).
    mark: Option<LeftMark>,
}

impl Asking {
    /// The mark that an attempt leaves where readers refuse it.
    pub(super) fn mark(&self) -> Option<Arc<WriterMark>> {
        self.mark.as_ref().map(|left| Arc::clone(&left.mark))
    }

    /// Whether a lost round shows for the first time that readers have the lock: from now on this mark is left.
    pub(super) fn note_readers(&mut self, round: &Round, mark: impl FnOnce() -> Option<LeftMark>) -> bool {
        let leaves_mark = self.mark.is_none() && round.shows_readers();
        if leaves_mark {
            self.mark = mark();
        }
        leaves_mark && self.mark.is_some()
    }

    /// The next waiter does not write.
    pub(super) fn give_up_mark(&mut self) {
        self.mark = None;
    }

    /// Waits until another attempt is worth sending after `lost`; why it is. The first time `begin_wait` begins the wait among other clients.
    pub(super) async fn pause(
        &mut self,
        retry: RetryDelay,
        begin_wait: impl FnOnce() -> Option<Wait>,
        lost: &Round,
    ) -> AskReason {
        let failures = self.failures;
        self.failures = failures.saturating_add(1);
        let Some(wait) = self.wait.get_or_insert_with(begin_wait) else {
            let pause = retry.after(failures, random::spread());
            sleep(if self.mark.is_some() { pause.min(LONGEST_MARKED_PAUSE) } else { pause }).await;
            return AskReason::Pause;
        };
        let pause = wait.pause(lost, failures, retry);
        let why = match &self.mark {
            // It is to be renewed before it ends.
            Some(_) => timeout(LONGEST_MARKED_PAUSE, pause).await.unwrap_or(AskReason::Pause),
            None => pause.await,
        };
        if why == AskReason::Expired {
            self.failures = 0; // several may try now, and clients that split the votes must not pause for long
        }
        why
    }

    /// The lock was won; the next waiter begins anew.
    pub(super) fn won(&mut self) {
        let Self { wait, mark, .. } = std::mem::take(self);
        wait.flatten().into_iter().for_each(Wait::won);
        mark.into_iter().for_each(LeftMark::won);
    }
}
