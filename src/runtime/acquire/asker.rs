//! One that asks for a lock: the first of the writers that wait for it, which passes what it has learnt on to the next, or a reader.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::attempt::{Attempt, Left, Outcome};
use super::cx::{Announcement, CallerId, Cx, Deed, RoundNumber};
use super::permits::AskPermit;
use super::{AcquireFailure, AcquireParams};
use crate::protocol::{Access, FencingToken, InstanceId, Instant, Reply, Round, WriterMark};
use crate::random;
use crate::resource::Resource;
use crate::runtime::order::{Wait, WaitsToBeWoken};
use crate::runtime::wait_events::AskReason;

/// The longest pause of a writer that has left a mark, which ends after three seconds.
const LONGEST_MARKED_PAUSE: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Asker {
    /// The attempt under way.
    attempt: Option<Box<Attempt>>,
    /// The pause after one that was lost.
    pause: Option<Pause>,
    /// When it is to be looked at again, for another reason.
    pub(super) looks_at: Option<Instant>,
    /// Whether the key waits for a permit for it.
    pub(super) waits_for_permit: bool,
    /// The largest token that the last attempt has seen (P12).
    seen: Option<FencingToken>,
    /// How many attempts were sent, in how many rounds.
    pub(super) asks: u32,
    pub(super) rounds: usize,
    /// Why the next attempt is sent.
    pub(super) why: AskReason,
    /// How many attempts have failed.
    failures: u32,
    /// The wait in order with other clients, if this one keeps that (P25). Begun with the first failure.
    wait: Option<Option<Box<Wait>>>,
    /// The mark that each attempt leaves from now on where readers refuse it, until one of this client's writers has the lock (P34).
    mark: Option<Arc<WriterMark>>,
}

/// How long it leaves the lock to others.
enum Pause {
    Until(Instant, AskReason),
    /// By the wait among other clients, but no longer than that.
    AmongClients(Option<Instant>),
}

impl Asker {
    pub(super) const fn has_attempt(&self) -> bool {
        self.attempt.is_some()
    }

    /// Sends an attempt.
    pub(super) fn ask(
        &mut self,
        (params, is_logged): (&Arc<AcquireParams>, bool),
        permit: AskPermit,
        left: &mut Left,
        cx: &mut Cx<'_>,
    ) -> Result<(), AcquireFailure> {
        self.asks = self.asks.saturating_add(1);
        let why = std::mem::replace(&mut self.why, AskReason::Line);
        (self.pause, self.looks_at) = (None, None);
        cx.deeds.extend(is_logged.then_some(Deed::LogAsks(self.asks, why)));
        match Attempt::begin(params, (self.seen, self.mark.clone()), permit, left, cx) {
            Ok(attempt) => {
                self.attempt = Some(Box::new(attempt));
                Ok(())
            }
            Err((failure, permit)) => {
                cx.deeds.push(Deed::Free(permit));
                Err(failure)
            }
        }
    }

    /// Whether this reply is to its attempt.
    pub(super) fn awaits(&self, number: RoundNumber, id: InstanceId) -> bool {
        self.attempt.as_ref().is_some_and(|attempt| attempt.awaits(number, id))
    }

    /// Takes in a reply to its attempt; whether that may decide it.
    pub(super) fn take(&mut self, id: InstanceId, reply: Reply, now: Instant) -> bool {
        self.attempt.as_mut().is_some_and(|attempt| attempt.take(id, reply, now))
    }

    /// What has become of its attempt. One that has ended is not its attempt any more.
    pub(super) fn outcome(&mut self, left: &mut Left, cx: &mut Cx<'_>) -> Option<Outcome> {
        let attempt = self.attempt.as_mut()?;
        let outcome = attempt.outcome(left, cx)?;
        if !matches!(outcome, Outcome::Undecided(_))
            && let Some(attempt) = self.attempt.take()
        {
            let (rounds, seen) = attempt.rounds();
            self.rounds = self.rounds.saturating_add(rounds);
            self.seen = seen;
            cx.deeds.push(Deed::Free(attempt.into_permit()));
        }
        Some(outcome)
    }

    /// Gives up the attempt, if one is under way, and the pause.
    pub(super) fn abandon(&mut self, left: &mut Left, cx: &mut Cx<'_>) {
        (self.pause, self.looks_at) = (None, None);
        if let Some(mut attempt) = self.attempt.take() {
            attempt.let_go(left, cx);
            cx.deeds.push(Deed::Free(attempt.into_permit()));
        }
    }

    /// Ends what it has begun among other clients: the lock was won, or nobody waits for it any more.
    pub(super) fn end(&mut self, has_won: bool, cx: &mut Cx<'_>) {
        let Self { wait, mark, attempt, .. } = std::mem::take(self);
        debug_assert!(attempt.is_none(), "an attempt is abandoned first");
        cx.deeds.extend(wait.flatten().map(|wait| Deed::EndWait(wait, has_won)));
        cx.deeds.extend(mark.map(|mark| Deed::RemoveMark(mark, has_won)));
    }

    /// The next waiter does not write: what wakes a writer would wake none, and its mark would keep the reader out.
    pub(super) fn give_up_writing(&mut self, cx: &mut Cx<'_>) {
        cx.deeds.extend(self.wait.take().flatten().map(|wait| Deed::EndWait(wait, false)));
        cx.deeds.extend(self.mark.take().map(|mark| Deed::RemoveMark(mark, false)));
    }

    /// Whether a lost round shows for the first time that readers have the lock: from now on a mark is left. Not if no clock shows since when.
    pub(super) fn note_readers(&mut self, lost: &Round, cx: &Cx<'_>) -> bool {
        if !lost.shows_readers() || self.mark.is_some() {
            return false;
        }
        let by = cx.client.proposing_clock().ok();
        self.mark = by.map(|by| Arc::new(WriterMark::new(by.us, cx.client.tokens.client())));
        self.mark.is_some()
    }

    /// Pauses until `until`.
    pub(super) fn pause_until(&mut self, until: Instant, why: AskReason) {
        self.pause = Some(Pause::Until(until, why));
    }

    /// Does not pause any more.
    pub(super) fn go_on(&mut self) {
        self.pause = None;
    }

    /// Pauses until another attempt is worth sending after `lost`. Gives what is to be sent to other clients, and the number of the pause.
    pub(super) fn begin_pause(
        &mut self,
        (resource, access): (&Resource, Access),
        lost: &Round,
        (waiter, of): (&dyn Fn() -> Weak<dyn WaitsToBeWoken>, Option<CallerId>),
        cx: &mut Cx<'_>,
    ) -> Option<(u64, Announcement)> {
        let (failures, is_marked) = (self.failures, self.mark.is_some());
        self.failures = failures.saturating_add(1);
        let not_after = is_marked.then(|| cx.now.saturating_add(LONGEST_MARKED_PAUSE)); // it is to be renewed before it ends
        let begin = || {
            let wall_us = cx.client.proposing_clock().ok()?.us;
            cx.client.order.as_ref()?.wait((resource, access), cx.client.quorum, wall_us, (waiter(), of)).map(Box::new)
        };
        match self.wait.get_or_insert_with(begin) {
            Some(wait) => {
                self.pause = Some(Pause::AmongClients(not_after));
                Some(wait.begin_pause(lost, failures, cx.client.retry, cx.now))
            }
            None => {
                let until = cx.now.saturating_add(cx.client.retry.after(failures, random::spread()));
                let until = not_after.map_or(until, |latest| latest.min(until));
                self.pause = Some(Pause::Until(until, AskReason::Pause));
                None
            }
        }
    }

    /// Whether another client has heard what was announced in this pause.
    pub(super) fn note_heard(&mut self, pause: u64, is_heard: bool) {
        if let Some(Some(wait)) = &mut self.wait {
            wait.note_heard(pause, is_heard);
        }
    }

    /// Ends the pause if it is over; whether it pauses.
    pub(super) fn still_pauses(&mut self, cx: &mut Cx<'_>) -> bool {
        let why = match (&self.pause, &mut self.wait) {
            (None, _) => return false,
            (Some(Pause::Until(until, why)), _) => (cx.now >= *until).then_some(*why),
            (Some(Pause::AmongClients(not_after)), Some(Some(wait))) => {
                let is_late = not_after.is_some_and(|latest| cx.now >= latest);
                wait.end_of_pause(cx.now).or_else(|| is_late.then_some(AskReason::Pause))
            }
            (Some(Pause::AmongClients(_)), _) => Some(AskReason::Pause), // its wait was given up
        };
        let Some(why) = why else { return true };
        if why == AskReason::Expired {
            self.failures = 0; // several may try now, and clients that split the votes must not pause for long
        }
        (self.pause, self.why) = (None, why);
        false
    }

    /// When time may change something for it.
    pub(super) fn due(&self, cx: &Cx<'_>) -> Option<Instant> {
        let attempt = self.attempt.as_ref().and_then(|attempt| attempt.due(cx));
        let pause = match (&self.pause, &self.wait) {
            (Some(Pause::Until(until, _)), _) => Some(*until),
            (Some(Pause::AmongClients(not_after)), Some(Some(wait))) => {
                not_after.iter().copied().chain(wait.due()).min()
            }
            _ => None,
        };
        attempt.into_iter().chain(pause).chain(self.looks_at).min()
    }
}
