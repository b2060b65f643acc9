//! One wait for a lock that others have or wait for as well.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::known::{LateWakes, Parts, WaitsToBeWoken, Woken};
use crate::instance::Wake;
use crate::protocol::{
    Access, ClientId, InstanceId, InstanceSet, Instant, Message, Quorum, Reply, RetryDelay, Round, RoundFailure,
    Waiter, reconnect_delay,
};
use crate::random;
use crate::runtime::wait_events::AskReason;

/// The pause of a waiter that is announced to the holder: doubled with each, and cut by up to half at
/// random (P27).
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// An attempt comes later than the expiry for which it waits by so much at most, so that waiters for the same do not
/// try together.
const EXPIRY_SPREAD: Duration = Duration::from_millis(20);

/// The part of the instance timeout for which a waiter that was woken over one instance waits for the others.
const SETTLE_DIVISOR: u32 = 40;

/// A waiter is announced to a client over so many instances: one of them may be slow to pass that on.
const ANNOUNCED_OVER: usize = 2;

/// A wait for one key. Dropped before it has won, it passes on the wake-ups that came for it.
#[derive(Debug)]
pub(crate) struct Wait {
    parts: Arc<Parts>,
    quorum: Quorum,
    key: Vec<u8>,
    access: Access,
    woken: Arc<Woken>,
    /// The clients that know of it, as far as they have not woken it since, and over which instances.
    announced: Vec<(InstanceId, ClientId)>,
    /// When it has announced itself last, and over which instances that came.
    asked: Option<(Instant, InstanceSet)>,
    has_won: bool,
    pause: Option<Pause>,
    /// How many pauses have begun.
    pauses: u64,
}

/// A pause after an attempt that was lost (P27).
#[derive(Debug)]
struct Pause {
    began: Instant,
    failures: u32,
    retry: RetryDelay,
    /// Whether a client that has heard of it will wake it.
    may_be_woken: bool,
    /// Whether it leaves a mark, so that the last reader wakes it (P34).
    is_marked: bool,
    /// When the first key expires that refused it.
    expiry: Option<Duration>,
    /// Whether it leaves asking to another wait of its client, until it is the first of them.
    is_behind: bool,
    /// When it is over, and why then; `None` until it is known whether it was heard.
    ends: Option<(Instant, AskReason)>,
    /// Since it was woken over one instance: until when it waits for the others.
    settles_at: Option<Instant>,
}

impl Wait {
    /// Begins a wait at `wall_us` of the clock by which tokens are proposed. It is looked at when it is woken.
    pub(super) fn begin(
        parts: &Arc<Parts>,
        (key, access): (&[u8], Access),
        quorum: Quorum,
        wall_us: u64,
        waiter: (Weak<dyn WaitsToBeWoken>, Option<u64>),
    ) -> Self {
        let (woken, key) = (Arc::new(Woken::new(wall_us, waiter)), key.to_vec());
        parts.known().waits.entry((key.clone(), access)).or_default().push(Arc::clone(&woken));
        let (parts, announced) = (Arc::clone(parts), Vec::new());
        Self { parts, quorum, key, access, woken, announced, asked: None, has_won: false, pause: None, pauses: 0 }
    }

    /// Whether it asks, and is announced, for all of this client that wait for the same.
    fn is_first(&self) -> bool {
        if self.access == Access::Write {
            return true; // one that has just ended may still be there
        }
        let known = self.parts.known();
        let waits = known.waits.get(&(self.key.clone(), self.access));
        waits.and_then(|waits| waits.first()).is_none_or(|first| Arc::ptr_eq(first, &self.woken))
    }

    /// Begins to pause until another attempt is worth sending after `lost`: until it is woken, or for a while (P27). Gives the number of
    /// the pause, and what announces the wait, of which [`note_heard`](Self::note_heard) is to be told.
    pub(crate) fn begin_pause(
        &mut self,
        lost: &Round,
        failures: u32,
        retry: RetryDelay,
        now: Instant,
    ) -> (u64, Vec<(InstanceId, Wake)>) {
        self.pauses += 1;
        let is_behind = !self.is_first();
        // Where several want it, and none has it, no client wakes them.
        let may_be_woken =
            self.parts.hears(self.quorum) && !matches!(RoundFailure::of(lost), RoundFailure::SplitVote(_));
        self.pause = Some(Pause {
            began: now,
            failures,
            retry,
            may_be_woken,
            is_marked: self.access == Access::Write && lost.shows_readers(),
            expiry: lost.refusals().filter_map(|refusal| refusal.expires_in).min(),
            is_behind,
            ends: None,
            settles_at: None,
        });
        let announcement = if is_behind { Vec::new() } else { self.announcement(lost) };
        (self.pauses, announcement)
    }

    /// Whether another client has heard of it in this pause: it decides how long that is.
    pub(crate) fn note_heard(&mut self, pause: u64, is_heard: bool) {
        let Some(paused) = self.pause.as_mut().filter(|paused| pause == self.pauses && !paused.is_behind) else {
            return;
        };
        let length = if paused.may_be_woken && (is_heard || paused.is_marked) {
            reconnect_delay(paused.failures, FIRST_PAUSE, LONGEST_PAUSE, random::spread())
        } else {
            paused.retry.after(paused.failures, random::spread())
        };
        let spread = RetryDelay::new(Duration::ZERO, EXPIRY_SPREAD).next(random::spread());
        let (length, why) = match paused.expiry.filter(|expiry| *expiry <= length) {
            Some(expiry) => (expiry.saturating_add(spread), AskReason::Expired),
            None => (length, AskReason::Pause),
        };
        paused.ends = Some((paused.began.saturating_add(length), why));
    }

    /// Why the pause is over, if it is.
    pub(crate) fn end_of_pause(&mut self, now: Instant) -> Option<AskReason> {
        let woken = self.woken.count();
        let settle = self.parts.instance_timeout / SETTLE_DIVISOR;
        let is_first = self.is_first();
        let pause = self.pause.as_mut()?;
        let settles_at = (woken > 0).then(|| *pause.settles_at.get_or_insert(now.saturating_add(settle)));
        let is_woken = woken >= self.quorum.votes() || settles_at.is_some_and(|at| now >= at);
        let ended = pause.ends.filter(|(at, _)| now >= *at).map(|(_, why)| why);
        let why = match ended.or_else(|| is_woken.then_some(AskReason::Woken)) {
            Some(why) => why,
            // A reader behind the first of its client asks nothing: it is woken with it, or behind it, when that reads.
            None if pause.is_behind && woken == 0 && is_first => AskReason::Line,
            None => return None,
        };
        self.pause = None;
        Some(if self.take_woken() { AskReason::Woken } else { why })
    }

    /// When the pause may be over, whatever comes.
    pub(crate) fn due(&self) -> Option<Instant> {
        let pause = self.pause.as_ref()?;
        pause.ends.map(|(at, _)| at).into_iter().chain(pause.settles_at).min()
    }

    /// It has the lock, and wakes the known waiters. The other readers of its client are as if they were woken over all instances.
    pub(crate) fn won(mut self) {
        self.has_won = true;
        let all = InstanceSet::first(self.parts.instances.len());
        let came = self.asked.map(|(_, over)| over).unwrap_or_default().union(self.woken.take());
        let over = all.without(came);
        let until = self.parts.clock.now().saturating_add(self.parts.instance_timeout);
        let wanted = (self.key.clone(), self.access);
        let mut known = self.parts.known();
        known.waiters.hold(&self.key);
        // It leaves with the same step: a reader that comes after this is not woken, and is the first itself.
        let mut behind = known.waits.remove(&wanted).unwrap_or_default();
        behind.retain(|other| !Arc::ptr_eq(other, &self.woken));
        if !behind.is_empty() {
            known.waits.insert(wanted.clone(), behind.clone());
        }
        known.won.insert(wanted, LateWakes { over, until });
        drop(known);
        behind.iter().filter(|_| self.access == Access::Read).for_each(|other| other.note(all));
        self.parts.grew.notify_one();
    }

    /// Whether it was woken, which the next attempt answers.
    fn take_woken(&mut self) -> bool {
        let over = self.woken.take();
        if over.is_empty() {
            return false;
        }
        self.announced.clear();
        self.asked = Some((self.parts.clock.now(), over));
        true
    }

    /// What announces this client to the client that has the lock (P25). What is left of its own attempts is released or expires, and wakes
    /// no client.
    fn announcement(&mut self, round: &Round) -> Vec<(InstanceId, Wake)> {
        let message = Message::Waiting { waiter: self.waiter(), forwarded: false, key: self.key.clone() };
        let Some(message) = message.to_wire() else { return Vec::new() };
        let rivals = round.answers().filter_map(|(id, answer)| {
            let Reply::Refused(refusal) = &answer.reply else { return None };
            Some((id, ClientId::of_value(refusal.value.as_deref()?).filter(|to| *to != self.parts.client)?))
        });
        let rivals: Vec<_> = rivals.take(ANNOUNCED_OVER).collect();
        let announcement = rivals.iter().map(|(id, to)| (*id, Wake { to: *to, message: message.clone() })).collect();
        if !rivals.is_empty() {
            self.announced = rivals;
        }
        announcement
    }

    /// What it is to other clients.
    fn waiter(&self) -> Waiter {
        Waiter { ticket: self.woken.ticket(), client: self.parts.client, access: self.access }
    }

    /// Tells those who know of it that it waits no more (P25).
    fn withdraw(&self) {
        let message = Message::Leaves { waiter: self.waiter(), key: self.key.clone() };
        let Some(message) = message.to_wire().filter(|_| !self.announced.is_empty()) else { return };
        for (id, to) in &self.announced {
            self.parts.send(*id, Wake { to: *to, message: message.clone() });
        }
    }

    /// The wake-ups that came for it, and may have no waiter now.
    fn wakes_left(&mut self) -> InstanceSet {
        let now = self.parts.clock.now();
        let lately = |at: &Instant| now < at.saturating_add(self.parts.instance_timeout);
        let asked = self.asked.filter(|(at, _)| lately(at)).map(|(_, over)| over).unwrap_or_default();
        self.woken.take().union(asked)
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let left = self.wakes_left();
        let mut known = self.parts.known();
        let wanted = (self.key.clone(), self.access);
        let waits = known.waits.entry(wanted.clone()).or_default();
        waits.retain(|woken| !Arc::ptr_eq(woken, &self.woken));
        match waits.first().cloned() {
            None => drop(known.waits.remove(&wanted)),
            // Another one has begun for the present waiters.
            Some(_) if self.has_won => return,
            Some(other) => {
                drop(known);
                return other.note(left);
            }
        }
        let passes_on = !self.has_won && !left.is_empty();
        let waiters = passes_on.then(|| self.parts.take_waiters(&mut known, &self.key));
        drop(known);
        self.withdraw();
        if let Some(waiters) = waiters {
            self.parts.pass_on(left, &self.key, &waiters);
        }
    }
}
