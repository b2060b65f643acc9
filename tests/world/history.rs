//! What has happened: counted, hashed, and told line by line on request.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use redquorum::{FencingToken, LeaseView};

use crate::batch::Violation;
use crate::demand::NAMES;
use crate::faults::FaultKind;
use crate::invariants::kept::Kept;
use crate::invariants::line::Waiting;
use crate::stats::Stats;

/// A lock that was given to a user.
pub(crate) struct Hold {
    /// The machine, and which of its clients, one after the other.
    pub(crate) client: usize,
    pub(crate) life: u64,
    /// One bit for each resource.
    pub(crate) resources: u8,
    /// Whether it has the identity that several users share.
    pub(crate) has_holder: bool,
    pub(crate) token: FencingToken,
    pub(crate) given_at: Duration,
    /// It was won by then: as late as what is left of it allows.
    pub(crate) won_by: Duration,
    /// What is stored under its keys.
    pub(crate) value: Vec<u8>,
    /// Until it is let go: a view of a lease keeps its client.
    pub(crate) lease: Option<LeaseView>,
    /// It is one of several readers (P33).
    pub(crate) reads: bool,
    /// It shares the lease of an earlier lock of the same holder in its client (P23).
    pub(crate) shares: bool,
    /// It was attached (P32).
    pub(crate) attached: Option<Attached>,
    /// It was seen to be over.
    pub(crate) was_over: bool,
    /// A user waits for its loss; when it was first seen to be over meanwhile.
    pub(crate) is_listened_to: bool,
    pub(crate) over_at: Option<Duration>,
}

/// How a lease came here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attached {
    /// When it was asked for, in true time.
    pub(crate) since: Duration,
    /// Later than its ttl.
    pub(crate) is_late: bool,
}

/// What a user must answer for after a fault: when it was, in true time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    pub(crate) at: Duration,
    pub(crate) what: FaultKind,
}

impl Hold {
    /// Whether both are guards of one lease of a holder in its client (P23).
    pub(crate) fn shares_with(&self, other: &Self) -> bool {
        let is_in_its_client = (self.client, self.life) == (other.client, other.life);
        self.has_holder && other.has_holder && is_in_its_client && self.value == other.value
    }

    /// Whether both may be valid at one time.
    pub(crate) fn may_be_beside(&self, other: &Self) -> bool {
        let is_copy = self.attached.or(other.attached).is_some() && self.value == other.value;
        (self.reads && other.reads) || self.shares_with(other) || is_copy
    }

    pub(crate) fn is_valid(&self) -> bool {
        self.lease.as_ref().is_some_and(LeaseView::is_valid)
    }
}

#[derive(Default)]
pub(crate) struct History {
    pub(crate) hash: u64,
    pub(crate) stats: Stats,
    pub(crate) violation: Option<Violation>,
    /// All invariants that were broken; and the one that is off.
    pub(crate) broken: BTreeSet<&'static str>,
    pub(crate) off: Option<&'static str>,
    pub(crate) log: Option<Vec<String>>,
    pub(crate) holds: Vec<Hold>,
    /// Those that were valid at once although no rule is broken, in the order in which they were given.
    pub(crate) excused_pairs: Vec<[usize; 2]>,
    pub(crate) marks: Vec<Mark>,
    /// The token under which each candidate was given the lead, by what it says of itself.
    pub(crate) leaders: BTreeMap<String, (FencingToken, Duration)>,
    /// After the faults a user has written beside constant readers.
    pub(crate) is_written: bool,
    /// How many have come to be a crowd, and whether one has got in beside it.
    pub(crate) in_crowd: usize,
    pub(crate) is_beside_crowd: bool,
    /// What was left behind with `keep_for`.
    pub(crate) kept: Vec<Kept>,
    /// The values of leases that were detached: a copy may be attached behind a release.
    pub(crate) detached: Vec<Vec<u8>>,
    /// Clients whose processes have crashed.
    pub(crate) crashed: Vec<(usize, u64)>,
    /// Clients whose shutdown has ended, by machine and which of its clients.
    pub(crate) shut_down: Vec<(usize, u64)>,
    /// Who stands in the line of a client, and how many have.
    pub(crate) waiting: Vec<Waiting>,
    pub(crate) places: u64,
    /// Clients that a user asks who may not poll for a while.
    pub(crate) unpolled: Vec<(usize, u64)>,
    /// The largest token that was given for each resource.
    pub(crate) highest: [Option<FencingToken>; NAMES.len()],
    /// Since when no fault begins any more.
    pub(crate) calm_since: Option<Duration>,
}

impl History {
    /// Notes an event; the numbers are hashed, what they mean is only told.
    pub(crate) fn note(&mut self, at: Duration, kind: &'static str, numbers: [u64; 2], what: impl FnOnce() -> String) {
        self.stats.events += 1;
        let at_us = u64::try_from(at.as_micros()).unwrap_or(u64::MAX);
        let letters = kind.bytes().fold(0, |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
        for number in [at_us, letters, numbers[0], numbers[1]] {
            self.hash = (self.hash ^ number).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
        }
        if let Some(log) = &mut self.log {
            log.push(format!("{:>10.3} ms  {kind}: {}", at.as_secs_f64() * 1e3, what()));
        }
    }

    pub(crate) fn violate(&mut self, at: Duration, invariant: &'static str, what: String) {
        if self.off == Some(invariant) {
            return;
        }
        self.broken.insert(invariant);
        self.note(at, "VIOLATION", [0; 2], || format!("{invariant}: {what}"));
        self.violation.get_or_insert(Violation { invariant, what });
    }
}
