//! What the scripts do to the store of one instance, key by key as the Lua files say it, without
//! any I/O. Time is the instance's own clock in milliseconds.

use std::rc::Rc;
use std::sync::Arc;

use redquorum::protocol::{AdmissionRecord, FencingToken, ProcessFacts, Value};

use crate::admission::RecordWrite;
use crate::client::Ticket;
use crate::line::may_take_over;
use crate::mutants::Mutant;
use crate::plain::PlainSeen;
use crate::reservation::Successors;

/// The resources that exist in the simulated world; a request names them by a bit mask.
pub(crate) const RESOURCES: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Script {
    Acquire,
    Extend,
    Release,
    /// The end of a holder's try that was not won (P23).
    GiveBack,
    /// As a release, but the key is kept for a successor (P26).
    PassOn,
    /// The same for a key that is kept for a client that does not wait any more (P26).
    Decline,
    /// Not a script: INFO and TIME.
    Facts,
    Admit,
    /// Reads the admission record.
    Read,
    /// Removes tokens that are older than they are kept for (P13).
    ForgetTokens,
    /// The planted bug: reads which they are, and removes them by name.
    ReadOldTokens,
    ForgetNamed,
}

impl Script {
    pub(crate) const fn is_release(self) -> bool {
        matches!(self, Self::Release | Self::GiveBack | Self::PassOn | Self::Decline)
    }
}

/// One script call.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) script: Script,
    pub(crate) keys: u8,
    pub(crate) value: Rc<Value>,
    pub(crate) token: FencingToken,
    pub(crate) ttl_ms: u64,
    /// Something of its round that sets keys was sent more than once (release only).
    pub(crate) resent: bool,
    pub(crate) note: Option<RecordWrite>,
    /// Who gets what is given up.
    pub(crate) successors: Option<Rc<Successors>>,
    /// The first request of an acquire, which may go as plain commands (P28).
    pub(crate) is_first: bool,
    /// What another task of the client asks for in the same write.
    pub(crate) companion: Option<Companion>,
}

/// A request that shares a write with another.
#[derive(Clone, Debug)]
pub(crate) struct Companion {
    pub(crate) request: Rc<Request>,
    pub(crate) ticket: Rc<Ticket>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Granted,
    Repaired,
    /// With how long the key lives and its value, if there is one.
    Refused {
        index: usize,
        ttl_ms: Option<u64>,
        value: Option<Rc<Value>>,
        token: Option<FencingToken>,
    },
    Stale {
        stored: FencingToken,
    },
    /// The token is ahead of the instance's clock.
    ClockBehind {
        clock_s: u64,
        token_s: u64,
    },
    Released {
        deleted: usize,
    },
    NotAdmitted {
        left_ms: Option<u64>,
    },
    Facts(Rc<ProcessFacts>),
    Record {
        record: Option<Arc<AdmissionRecord>>,
        /// What a look before the first use asks as well.
        has_tokens: bool,
    },
    /// What the commands of a plain acquire answered.
    Plain(Rc<PlainSeen>),
    /// The keys whose tokens are older than they are kept for.
    OldTokens(u8),
}

#[derive(Clone, Debug)]
pub(crate) struct Lock {
    pub(crate) value: Rc<Value>,
    pub(crate) until_ms: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Fence {
    pub(crate) token: FencingToken,
    pub(crate) until_ms: u64,
}

/// The data of one instance.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    pub(crate) locks: [Option<Lock>; RESOURCES],
    pub(crate) fences: [Option<Fence>; RESOURCES],
    /// What values took over from the same holder, under each key (P23).
    pub(crate) formers: [Vec<(Rc<Value>, Lock)>; RESOURCES],
    pub(crate) record: Option<Arc<AdmissionRecord>>,
    /// A planted bug in the scripts.
    pub(crate) mutant: Option<Mutant>,
}

pub(crate) fn keys(mask: u8) -> impl Iterator<Item = usize> {
    (0..RESOURCES).filter(move |key| mask & (1 << key) != 0)
}

impl Store {
    /// FLUSHALL.
    pub(crate) fn flush(&mut self) {
        *self = Self { mutant: self.mutant, ..Self::default() };
    }

    pub(crate) fn lock(&self, now_ms: u64, key: usize) -> Option<&Lock> {
        // A key is gone once the clock shows more than its expiry, as in the server.
        self.locks[key].as_ref().filter(|lock| now_ms <= lock.until_ms)
    }

    pub(crate) fn fence(&self, now_ms: u64, key: usize) -> Option<FencingToken> {
        self.fences[key].filter(|fence| now_ms <= fence.until_ms).map(|fence| fence.token)
    }

    /// What of it counts: a token that a clock can have made (`token_limit.lua`, P12).
    fn counts(&self, now_ms: u64, token: FencingToken) -> bool {
        !token.is_ahead_of(now_ms * 1000) || self.is(Mutant::OddTokenStays)
    }

    /// Why a token is not taken.
    fn behind(&self, now_ms: u64, token: FencingToken) -> Option<Answer> {
        let refuses = token.is_ahead_of(now_ms * 1000) && !self.is(Mutant::AnyTokenStored);
        refuses.then_some(Answer::ClockBehind { clock_s: now_ms / 1000, token_s: token.clock_us() / 1_000_000 })
    }

    /// Somebody sets the largest token by hand, for all resources.
    pub(crate) fn poison(&mut self) {
        self.fences = [Some(Fence { token: FencingToken::propose(u64::MAX, None), until_ms: u64::MAX }); RESOURCES];
    }

    /// Whether the round of this request was released here.
    pub(crate) fn has_mark(&self, request: &Request, key: usize) -> bool {
        self.fences[key].is_some_and(|fence| fence.token == request.token.tombstone())
    }

    pub(crate) fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// An expired key is deleted when it is touched: a clock that is set back does not bring it back.
    pub(crate) fn drop_expired(&mut self, now_ms: u64, mask: u8) {
        for key in keys(mask) {
            if self.lock(now_ms, key).is_none() {
                self.locks[key] = None;
            }
            if self.fence(now_ms, key).is_none() {
                self.fences[key] = None;
            }
            self.formers[key].retain(|(_, former)| now_ms <= former.until_ms);
        }
    }

    /// Runs one script to its end: nothing comes in between.
    pub(crate) fn execute(
        &mut self,
        now_us: u64,
        (known, quarantine_over): (Option<&Arc<AdmissionRecord>>, bool),
        request: &Request,
    ) -> Answer {
        let now_ms = now_us / 1000;
        self.drop_expired(now_ms, request.keys);
        match request.script {
            Script::Acquire => match self.not_admitted(now_us, known, quarantine_over) {
                Some(answer) => answer,
                None => self.acquire(now_ms, request),
            },
            Script::Extend => self.extend(now_us, known, request),
            Script::Release | Script::GiveBack => self.release(now_ms, request),
            _ => self.execute_admission(now_ms, request),
        }
    }

    pub(crate) fn holds(&self, now_ms: u64, key: usize, request: &Request) -> bool {
        self.lock(now_ms, key).is_some_and(|lock| lock.value == request.value)
    }

    /// The first key that has another value.
    fn obstacle(&self, now_ms: u64, request: &Request) -> Option<Answer> {
        for (index, key) in keys(request.keys).enumerate() {
            if let Some(lock) = self.lock(now_ms, key).filter(|lock| !may_take_over(request, lock))
                && !self.is_kept_for(request, lock)
                && (lock.value != request.value
                    || (self.is(Mutant::OwnKeyNotFree) && request.script == Script::Acquire))
            {
                let (value, ttl_ms) = (Some(lock.value.clone()), Some(lock.until_ms - now_ms));
                return Some(Answer::Refused { index, ttl_ms, value, token: self.fence(now_ms, key) });
            }
        }
        None
    }

    pub(crate) fn is_stale(&self, stored: FencingToken, proposed: FencingToken) -> bool {
        match self.mutant {
            Some(Mutant::NoStaleCheck | Mutant::OffDropsFencing) => false,
            Some(Mutant::UnpaddedText) => stored.to_string() >= proposed.to_string(),
            #[expect(clippy::cast_precision_loss, reason = "the planted bug")]
            Some(Mutant::DoubleCompare) => stored.get() as f64 >= proposed.get() as f64,
            _ => stored >= proposed,
        }
    }

    /// Sets a key, or lets the own one live on: not for less than it already would (P9).
    fn set_lock(&mut self, now_ms: u64, key: usize, request: &Request) {
        let own = self.locks[key].as_ref().filter(|lock| lock.value == request.value);
        let until_ms = match own {
            Some(lock) if !self.is(Mutant::LateExtendShortens) => lock.until_ms.max(now_ms + request.ttl_ms),
            _ => now_ms + request.ttl_ms,
        };
        self.locks[key] = Some(Lock { value: request.value.clone(), until_ms });
    }

    pub(crate) fn keep_token(&mut self, now_ms: u64, key: usize, token: FencingToken, request: &Request) {
        if self.is(Mutant::TokenNotStored) {
            return;
        }
        let expires = self.is(Mutant::FenceExpiresWithLease);
        let until_ms = if expires { now_ms + request.ttl_ms } else { u64::MAX };
        self.fences[key] = Some(Fence { token, until_ms });
    }

    /// As `tombstone.lua`.
    pub(crate) fn mark(&mut self, now_ms: u64, key: usize, request: &Request) {
        let closed = request.token.tombstone();
        if self.behind(now_ms, closed).is_some() {
            return;
        }
        let larger = self.fence(now_ms, key).filter(|stored| *stored > closed && self.counts(now_ms, *stored));
        self.keep_token(now_ms, key, larger.unwrap_or(closed), request);
    }

    fn acquire(&mut self, now_ms: u64, request: &Request) -> Answer {
        if let Some(behind) = self.behind(now_ms, request.token) {
            return behind;
        }
        let refused = self.obstacle(now_ms, request);
        let before = match &refused {
            Some(Answer::Refused { index, .. }) => *index,
            _ => RESOURCES,
        };
        // What is taken or not, the round's own keys that it comes across live on (P12).
        for key in keys(request.keys).take(before) {
            if self.holds(now_ms, key, request) {
                self.set_lock(now_ms, key, request);
            }
        }
        if let Some(refused) = refused {
            if self.is(Mutant::PartialGrant) {
                self.set_free_keys(now_ms, request);
            }
            return refused;
        }
        let is_stale = |stored: &FencingToken| self.is_stale(*stored, request.token) && self.counts(now_ms, *stored);
        let mut larger = keys(request.keys).filter_map(|key| self.fence(now_ms, key)).filter(is_stale);
        if let Some(first) = larger.next() {
            // The largest of all: a repeat goes above it, and there is only one repeat.
            let stored = if self.is(Mutant::FirstStaleNamed) { first } else { larger.fold(first, Ord::max) };
            if self.is(Mutant::LateCopyLeavesLine) {
                self.leave_lines(now_ms, request);
            }
            return Answer::Stale { stored };
        }
        for key in keys(request.keys) {
            self.keep_token(now_ms, key, request.token, request);
            if !self.take_over(now_ms, key, request) {
                self.set_lock(now_ms, key, request);
            }
        }
        Answer::Granted
    }

    fn set_free_keys(&mut self, now_ms: u64, request: &Request) {
        for key in keys(request.keys) {
            if self.lock(now_ms, key).is_none() {
                self.set_lock(now_ms, key, request);
            }
        }
    }

    fn extend(&mut self, now_us: u64, known: Option<&Arc<AdmissionRecord>>, request: &Request) -> Answer {
        let now_ms = now_us / 1000;
        let complete = keys(request.keys).all(|key| self.holds(now_ms, key, request));
        // P10: without the right to vote not even a key that is still there counts.
        if !self.is(Mutant::RepairNotAdmitted)
            && let Some(answer) = self.not_admitted(now_us, known, false)
        {
            return answer;
        }
        if let Some(behind) = self.behind(now_ms, request.token) {
            return behind;
        }
        if !self.is(Mutant::ExtendTakesForeign)
            && let Some(refused) = self.obstacle(now_ms, request)
        {
            return refused;
        }
        for (index, key) in keys(request.keys).enumerate() {
            let missing = self.lock(now_ms, key).is_none();
            // P6, P10: the lease was released, this extend is late.
            let late =
                self.fence(now_ms, key) == Some(request.token.tombstone()) && !self.is(Mutant::LateExtendRepairs);
            if missing && (late || self.is(Mutant::NoRepair)) {
                return Answer::Refused { index, ttl_ms: None, value: None, token: self.fence(now_ms, key) };
            }
        }
        for key in keys(request.keys) {
            self.set_lock(now_ms, key, request);
            let larger = |stored: &FencingToken| *stored >= request.token && self.counts(now_ms, *stored);
            let stored = self.fence(now_ms, key).filter(larger).unwrap_or(request.token);
            self.keep_token(now_ms, key, stored, request);
        }
        if complete { Answer::Granted } else { Answer::Repaired }
    }

    fn release(&mut self, now_ms: u64, request: &Request) -> Answer {
        let mut deleted = 0;
        for key in keys(request.keys) {
            let own = if request.value.holder_prefix().is_empty() {
                let any = self.is(Mutant::NoValueCheck) && self.lock(now_ms, key).is_some();
                let own = any || self.holds(now_ms, key, request);
                if own {
                    self.locks[key] = None;
                }
                own
            } else {
                let forgets = request.script == Script::Release || self.is(Mutant::TakenOverDeleted);
                self.leave_line(now_ms, key, None, &request.value, forgets)
            };
            deleted += usize::from(own);
            // P6: where a key was deleted, it may be the first send's, with the repeat on its way.
            let marks = if own { request.resent && !self.is(Mutant::NoBarWhereDeleted) } else { true };
            if marks && !self.is(Mutant::NoBar) {
                self.mark(now_ms, key, request);
            }
        }
        Answer::Released { deleted }
    }
}
