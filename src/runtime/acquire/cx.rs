//! What the state of a key decides by, and what is to be done for it.

use std::sync::{Arc, Weak};
use std::task::Waker;

use super::outage::Outage;
use super::permits::{AskPermit, Permits};
use crate::instance::{Claim, Wake};
use crate::protocol::{InstanceId, InstanceSet, Instant, Reply, Round, Verdict, WriterMark};
use crate::runtime::ballot::Ballot;
use crate::runtime::held_lease::{HeldLease, LeaseOwner};
use crate::runtime::order::Wait;
use crate::runtime::parts::ClientParts;
use crate::runtime::tasks::TrackedAttempt;
use crate::runtime::wait_events::AskReason;

/// Identifies a caller that has, or had, a place. The later it came the larger it is.
pub(super) type CallerId = u64;

/// Identifies a round of a key in the replies to it.
pub(super) type RoundNumber = usize;

/// Messages by which a waiter announces itself, each over one instance.
pub(super) type Announcement = Vec<(InstanceId, Wake)>;

/// The client, the time, and what is to be done.
pub(super) struct Cx<'a> {
    pub(super) client: &'a ClientParts,
    pub(super) leases: &'a Weak<dyn LeaseOwner>,
    pub(super) permits: &'a Arc<Permits>,
    pub(super) outage: &'a Outage,
    pub(super) now: Instant,
    pub(super) deeds: &'a mut Vec<Deed>,
    pub(super) rounds: &'a mut RoundNumber,
}

impl Cx<'_> {
    pub(super) const fn next_number(&mut self) -> RoundNumber {
        *self.rounds += 1;
        *self.rounds
    }
}

/// What is to be done for a key. What is only to be dropped is here too: it is foreign, or takes other mutexes.
pub(super) enum Deed {
    /// Sends the acquire to all instances.
    Acquire(Arc<Claim>, RoundNumber),
    /// Asks all instances to keep the key for another ttl; replies go to the ballot.
    Keep(Arc<Claim>, Arc<Ballot>),
    /// Sends the release to these, and what wakes others behind it.
    Release(Arc<Claim>, InstanceSet, RoundNumber, Option<Arc<[Wake]>>),
    /// A release is sent to this instance again, unless its keys have expired by then.
    RetryLater(InstanceId, Instant),
    Wake(Waker),
    /// Ends a guard that no caller has collected.
    LetGo(Arc<HeldLease>),
    /// The lease has another guard from now on; how often in a row that was, and how many waited.
    HandedOver(Arc<HeldLease>, u32, usize),
    NoteReply(Arc<HeldLease>, InstanceId, Reply, Instant),
    NoteLost(Box<Round>),
    Announce(Option<CallerId>, u64, Announcement),
    EndWait(Box<Wait>, bool),
    RemoveMark(Arc<WriterMark>, bool),
    TryRefused,
    Free(AskPermit),
    /// Waits for a permit; whether for one to repeat an attempt.
    WaitForPermit(bool),
    CallNext,
    Forget(Option<TrackedAttempt>, Option<Waker>),
    ForgetLease(Arc<HeldLease>),
    LogAsks(u32, AskReason),
    LogRound(Verdict, InstanceSet, usize),
    LogRefused(Box<Round>, u32),
    LogWon(u32, usize),
}
