//! What the scripts do to the store of one instance, key by key as the Lua files say it, without
//! any I/O. Time is the instance's own clock in milliseconds.

use std::rc::Rc;
use std::sync::Arc;

use redquorum::protocol::{Facts, FencingToken, Record, Value};

use crate::admission::Note;
use crate::mutants::Mutant;

/// The resources that exist in the simulated world; a request names them by a bit mask.
pub(crate) const RESOURCES: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Script {
    Acquire,
    Extend,
    Release,
    /// Not a script: INFO and TIME.
    Facts,
    Admit,
    /// Reads the admission record.
    Read,
}

/// One script call.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) script: Script,
    pub(crate) keys: u8,
    pub(crate) value: Rc<Value>,
    pub(crate) token: FencingToken,
    pub(crate) ttl_ms: u64,
    pub(crate) retention_ms: u64,
    pub(crate) note: Option<Note>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Granted,
    Repaired,
    Refused { index: usize, ttl_ms: u64, value: Rc<Value>, token: Option<FencingToken> },
    Stale { stored: FencingToken },
    Released { deleted: usize },
    NotAdmitted { left_ms: Option<u64> },
    Facts(Rc<Facts>),
    Record { record: Option<Arc<Record>> },
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
    pub(crate) record: Option<Arc<Record>>,
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

    fn fence(&self, now_ms: u64, key: usize) -> Option<FencingToken> {
        self.fences[key].filter(|fence| now_ms <= fence.until_ms).map(|fence| fence.token)
    }

    pub(crate) fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// An expired key is deleted when it is touched: a clock that is set back does not bring it back.
    fn drop_expired(&mut self, now_ms: u64, mask: u8) {
        for key in keys(mask) {
            if self.lock(now_ms, key).is_none() {
                self.locks[key] = None;
            }
            if self.fence(now_ms, key).is_none() {
                self.fences[key] = None;
            }
        }
    }

    /// Runs one script to its end: nothing comes in between.
    pub(crate) fn execute(
        &mut self,
        now_us: u64,
        (known, has_served): (Option<&Arc<Record>>, bool),
        request: &Request,
    ) -> Answer {
        let now_ms = now_us / 1000;
        self.drop_expired(now_ms, request.keys);
        match request.script {
            Script::Acquire => match self.not_admitted(now_us, known, has_served) {
                Some(answer) => answer,
                None => self.acquire(now_ms, request),
            },
            Script::Extend => self.extend(now_us, known, request),
            Script::Release => self.release(now_ms, request),
            _ => self.execute_admission(now_ms, request),
        }
    }

    fn holds(&self, now_ms: u64, key: usize, request: &Request) -> bool {
        self.lock(now_ms, key).is_some_and(|lock| lock.value == request.value)
    }

    /// The first key that has another value.
    fn obstacle(&self, now_ms: u64, request: &Request) -> Option<Answer> {
        for (index, key) in keys(request.keys).enumerate() {
            if let Some(lock) = self.lock(now_ms, key)
                && (lock.value != request.value
                    || (self.is(Mutant::OwnKeyNotFree) && request.script == Script::Acquire))
            {
                let (value, ttl_ms) = (lock.value.clone(), lock.until_ms - now_ms);
                return Some(Answer::Refused { index, ttl_ms, value, token: self.fence(now_ms, key) });
            }
        }
        None
    }

    fn is_stale(&self, stored: FencingToken, proposed: FencingToken) -> bool {
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

    fn set_fence(&mut self, now_ms: u64, key: usize, request: &Request) {
        if self.is(Mutant::TokenNotStored) {
            return;
        }
        let keep = if self.is(Mutant::FenceExpiresWithLease) { request.ttl_ms } else { request.retention_ms };
        self.fences[key] = Some(Fence { token: request.token, until_ms: now_ms + keep });
    }

    fn acquire(&mut self, now_ms: u64, request: &Request) -> Answer {
        if let Some(refused) = self.obstacle(now_ms, request) {
            if self.is(Mutant::PartialGrant) {
                self.set_free_keys(now_ms, request);
            }
            return refused;
        }
        // The largest of all: a repeat goes above it, and there is only one repeat.
        let stored = keys(request.keys).filter_map(|key| self.fence(now_ms, key));
        let mut stale = stored.filter(|stored| self.is_stale(*stored, request.token));
        let named = if self.is(Mutant::FirstStaleNamed) { stale.next() } else { stale.max() };
        if let Some(stored) = named {
            return Answer::Stale { stored };
        }
        for key in keys(request.keys) {
            self.set_lock(now_ms, key, request);
            self.set_fence(now_ms, key, request);
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

    fn extend(&mut self, now_us: u64, known: Option<&Arc<Record>>, request: &Request) -> Answer {
        let now_ms = now_us / 1000;
        if !self.is(Mutant::ExtendTakesForeign)
            && let Some(refused) = self.obstacle(now_ms, request)
        {
            return refused;
        }
        let complete = keys(request.keys).all(|key| self.holds(now_ms, key, request));
        // P10: without the right to vote not even a key that is still there counts: the process may
        // be flushed before its quarantine ends, and would vote while a lease still rests on it.
        let must_be_admitted = match self.mutant {
            Some(Mutant::RepairNotAdmitted) => false,
            Some(Mutant::ExtendInQuarantine) => !complete,
            _ => true,
        };
        if must_be_admitted && let Some(answer) = self.not_admitted(now_us, known, false) {
            return answer;
        }
        for key in keys(request.keys) {
            let own = self.holds(now_ms, key, request);
            if !own && self.is(Mutant::NoRepair) {
                return Answer::Refused { index: 0, ttl_ms: 0, value: request.value.clone(), token: None };
            }
            self.set_lock(now_ms, key, request);
            if !own && self.fence(now_ms, key).is_none_or(|stored| stored < request.token) {
                self.set_fence(now_ms, key, request);
            }
        }
        if complete { Answer::Granted } else { Answer::Repaired }
    }

    fn release(&mut self, now_ms: u64, request: &Request) -> Answer {
        let mut deleted = 0;
        for key in keys(request.keys) {
            let any = self.is(Mutant::NoValueCheck) && self.lock(now_ms, key).is_some();
            let own = any || self.holds(now_ms, key, request);
            if own {
                self.locks[key] = None;
                deleted += 1;
            }
            // Also where a key was deleted: it may be the first send's, with the repeat on its way.
            let bars = !(self.is(Mutant::NoBar) || own && self.is(Mutant::NoBarWhereDeleted));
            if bars && self.fence(now_ms, key).is_none_or(|stored| stored < request.token) {
                self.set_fence(now_ms, key, request);
            }
        }
        Answer::Released { deleted }
    }
}
