//! The plain acquire on an instance, command by command: others may come between any two of them (P28).

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use redquorum::protocol::{AdmissionRecord, FencingToken, Value};

use crate::instance::{Answer, Companion, Fence, Lock, RESOURCES, Request, Script, Store, keys};
use crate::mutants::Mutant;

/// One command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// `SET NX PX` of one of the keys that share the write.
    Set(usize),
    /// `ZADD GT CH` of all of their tokens.
    Raise,
    /// `ZSCORE`, `PEXPIRETIME` and `GETRANGE` of the key that is asked for.
    Token,
    End,
    Value,
    /// `GET` of the admission record.
    Record,
}

/// How many places there are between two commands: behind each but the last.
pub(crate) const GAPS: usize = 5;

impl Command {
    /// Which gap is behind it; none behind the last.
    pub(crate) const fn gap(self) -> Option<usize> {
        match self {
            Self::Set(_) => Some(0),
            Self::Raise => Some(1),
            Self::Token => Some(2),
            Self::End => Some(3),
            Self::Value => Some(4),
            Self::Record => None,
        }
    }
}

/// A write and what its commands have answered so far.
#[derive(Debug)]
pub(crate) struct PlainWrite {
    pub(crate) id: u32,
    pub(crate) commands: Vec<Command>,
    /// The one that is asked for is the first.
    pub(crate) claims: Vec<Companion>,
    pub(crate) seen: RefCell<PlainSeen>,
    /// How many of the commands reach the instance.
    pub(crate) arriving: Cell<usize>,
    /// When the key that it has set ends.
    pub(crate) until_ms: Cell<Option<u64>>,
    /// Which plain acquire of the run it is.
    pub(crate) number: Cell<u8>,
}

/// What the commands answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PlainSeen {
    pub(crate) is_set: bool,
    /// How many tokens were raised, of how many.
    pub(crate) raised: usize,
    pub(crate) claims: usize,
    pub(crate) stored: Option<FencingToken>,
    pub(crate) end_ms: Option<u64>,
    pub(crate) value: Option<Rc<Value>>,
    pub(crate) record: Option<Arc<AdmissionRecord>>,
}

impl PlainWrite {
    /// The commands in the order in which they are sent. The keys of a write are set in any order.
    pub(crate) fn new(id: u32, claims: Vec<Companion>, is_last: bool, mutant: Option<Mutant>) -> Self {
        let mut commands: Vec<_> = (0..claims.len()).map(Command::Set).collect();
        if is_last {
            commands.reverse();
        }
        commands.extend([Command::Raise, Command::Token, Command::End, Command::Value, Command::Record]);
        if mutant == Some(Mutant::RecordReadFirst) {
            commands.rotate_right(1);
        }
        let seen = RefCell::new(PlainSeen { claims: claims.len(), ..PlainSeen::default() });
        let (arriving, until_ms, number) = (Cell::new(0), Cell::new(None), Cell::new(0));
        Self { id, commands, claims, seen, arriving, until_ms, number }
    }
}

impl Store {
    /// Carries out one command of a write.
    pub(crate) fn carry_out(&mut self, now_ms: u64, write: &PlainWrite, command: Command, lies: bool) {
        let key = write.claims[0].request.keys.trailing_zeros() as usize;
        write.claims.iter().for_each(|claim| self.drop_expired(now_ms, claim.request.keys));
        let seen = &mut *write.seen.borrow_mut();
        match command {
            Command::Set(claim) => {
                let request = &write.claims[claim].request;
                let is_set = self.set_if_absent(now_ms, request);
                if is_set && claim == 0 {
                    seen.is_set = true;
                    write.until_ms.set(Some(now_ms + request.ttl_ms));
                }
            }
            Command::Raise => {
                let claims = write.claims.iter().filter(|claim| !lies && self.raise(now_ms, &claim.request));
                seen.raised = claims.count();
            }
            Command::Token if lies => seen.stored = Some(FencingToken::propose(u64::MAX, None)),
            Command::Token => seen.stored = self.fence(now_ms, key),
            Command::End => seen.end_ms = self.lock(now_ms, key).map(|lock| lock.until_ms),
            Command::Value => seen.value = self.lock(now_ms, key).map(|lock| lock.value.clone()),
            Command::Record => seen.record.clone_from(&self.record),
        }
    }

    fn set_if_absent(&mut self, now_ms: u64, request: &Request) -> bool {
        let place = &mut self.locks[request.keys.trailing_zeros() as usize];
        let is_absent = place.is_none();
        if is_absent {
            *place = Some(Lock { value: request.value.clone(), until_ms: now_ms + request.ttl_ms });
        }
        is_absent
    }

    /// Whether the token is larger than the stored one, and stored. How far either is ahead is not looked at.
    fn raise(&mut self, now_ms: u64, request: &Request) -> bool {
        let key = request.keys.trailing_zeros() as usize;
        let ignored = |stored: &FencingToken| self.is(Mutant::PlainBreaksBar) && *stored == stored.tombstone();
        let is_larger = match self.fence(now_ms, key).filter(|stored| !ignored(stored)) {
            Some(stored) if stored == request.token && self.is(Mutant::EqualTokenRaised) => true,
            Some(stored) => !self.is_stale(stored, request.token),
            None => true,
        };
        if is_larger {
            self.keep_token(now_ms, key, request.token, request);
        }
        is_larger
    }

    /// `forget_tokens.lua`: removes tokens that are older than they are kept for, unless the lock is there. Also says
    /// whether there were any.
    pub(crate) fn forget_tokens(&mut self, now_ms: u64, retention_ms: u64, request: &Request) -> (Answer, bool) {
        self.drop_expired(now_ms, u8::MAX);
        let is_old = |fence: &Fence| fence.token.clock_us() / 1000 + retention_ms < now_ms;
        let goes = |key: &usize| self.locks[*key].is_none() && self.fences[*key].as_ref().is_some_and(is_old);
        let old = (0..RESOURCES).filter(goes).fold(0, |mask, key| mask | 1 << key);
        let gone = match request.script {
            Script::ReadOldTokens => 0,
            Script::ForgetNamed => request.keys,
            _ => old,
        };
        keys(gone).for_each(|key| self.fences[key] = None);
        (Answer::OldTokens(old), gone != 0)
    }
}
