//! Which instances are without the key of a lease, by their answers (P20).
//!
//! Another client can have held the lock only if at one moment so many instances were without the key that no quorum was
//! left. An instance is missing from the answer that says so to the one that shows or sets the key. When within a round trip
//! it was so is not known: an absence begins when the request was sent, and ends when the answer came. It does not
//! matter what showed it: an extend, a renewal, a key check, before or after the verdict.
//!
//! ```text
//! instance 1   had it -------- asked .. not there --- asked .. repaired --------------------->
//! instance 2   has it ------------------------------- asked .. has it ---- asked .. not there ->
//!                              |<- 1 is absent ------------->|             |<- 2 is absent .. ->|
//! ```
//!
//! Between its last answer and the one that says that the key is missing, an instance may have been without it for any part
//! of the time. No answer shows that, so it counts for the lease: a quorum may have had the key at every moment. Were the
//! whole time counted, a client whose links are cut one after the other would lose a lease that two of three instances keep.
//!
//! Absences that were over when a round began which a quorum confirmed are over for good.

use crate::protocol::instance_set::{InstanceId, InstanceSet};
use crate::protocol::quorum::Quorum;
use crate::protocol::time::Instant;

/// Who had the key of a lease when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyPresence {
    quorum: Quorum,
    /// For each instance, when the latest request was sent to which it had the key.
    had: Vec<Instant>,
    /// None as a rule. Those of one instance do not overlap.
    absences: Vec<Absence>,
    most_absent: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Absence {
    id: InstanceId,
    /// When the first request was sent to which the instance did not have the key.
    from: Instant,
    /// When the latest one was.
    seen: Instant,
    /// When that answer came which shows that it has the key again.
    until: Option<Instant>,
}

impl Absence {
    /// Also its beginning, if its answer took no time.
    fn covers(&self, moment: Instant) -> bool {
        self.from <= moment && (moment == self.from || self.until.is_none_or(|until| moment < until))
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.covers(other.from) || other.covers(self.from)
    }
}

impl KeyPresence {
    /// Nothing is known yet of any instance.
    pub(super) fn new(quorum: Quorum) -> Self {
        Self { quorum, had: vec![Instant::ZERO; quorum.instances()], absences: Vec::new(), most_absent: 0 }
    }

    /// The instance had the key when it carried out a request that was sent at `sent`, and answered at `answered`.
    pub(super) fn note_present(&mut self, id: InstanceId, sent: Instant, answered: Instant) {
        if let Some(had) = self.had.get_mut(id.index()) {
            *had = sent.max(*had);
        }
        let is_back = |absence: &Absence| absence.id == id && absence.until.is_none() && absence.seen < sent;
        let back = self.absences.iter_mut().filter(|absence| is_back(absence));
        back.for_each(|absence| absence.until = Some(answered));
        self.forget_what_is_past();
    }

    /// The instance did not have the key when it carried out a request that was sent at `sent`.
    pub(super) fn note_missing(&mut self, id: InstanceId, sent: Instant) {
        // Unless that is a late reply: it has had the key since.
        if self.had.get(id.index()).is_some_and(|had| *had <= sent) {
            self.note_absence(Absence { id, from: sent, seen: sent, until: None });
        }
    }

    /// The instance did not have the key, and got it again with a request that was sent at `sent`, and answered at
    /// `answered`.
    pub(super) fn note_repaired(&mut self, id: InstanceId, sent: Instant, answered: Instant) {
        self.note_absence(Absence { id, from: sent, seen: sent, until: Some(answered) });
        self.note_present(id, sent, answered);
    }

    /// Replies may be taken in in any order, and more than once.
    fn note_absence(&mut self, new: Absence) {
        if new.until.is_some_and(|until| until < self.confirmed_at()) {
            return; // it is over for good
        }
        match self.absences.iter_mut().find(|known| known.id == new.id && known.overlaps(&new)) {
            Some(known) => {
                known.until = if known.seen <= new.seen { new.until } else { known.until };
                (known.from, known.seen) = (known.from.min(new.from), known.seen.max(new.seen));
            }
            None => self.absences.push(new),
        }
        self.count();
    }

    fn count(&mut self) {
        let absent_at = |moment| {
            let covering = self.absences.iter().filter(|absence| absence.covers(moment));
            covering.map(|absence| absence.id).collect::<InstanceSet>().len()
        };
        let most = self.absences.iter().map(|absence| absent_at(absence.from)).max().unwrap_or(0);
        self.most_absent = most.max(self.most_absent);
    }

    /// The most instances that were without the key at one moment, ever.
    pub(super) const fn most_absent(&self) -> usize {
        self.most_absent
    }

    /// Whether the instance is known to have had the key, and not only since a request that was sent later than `sent`.
    pub(super) fn had_by(&self, id: InstanceId, sent: Instant) -> bool {
        self.had.get(id.index()).is_some_and(|had| Instant::ZERO < *had && *had <= sent)
    }

    /// The instances that had the key when they were asked at `since` or later, and by all that is known
    /// have it.
    pub(super) fn present(&self, since: Instant) -> InstanceSet {
        let is_absent = |id| self.absences.iter().any(|absence| absence.id == id && absence.until.is_none());
        let had = InstanceId::all(self.had.len()).zip(&self.had).filter(|(_, had)| **had >= since);
        had.map(|(id, _)| id).filter(|id| !is_absent(*id)).collect()
    }

    /// The instances that were without the key at a time that still counts.
    pub(super) fn absent(&self) -> InstanceSet {
        self.absences.iter().map(|absence| absence.id).collect()
    }

    /// When the latest round began that a quorum has confirmed.
    fn confirmed_at(&self) -> Instant {
        let mut had = self.had.clone();
        had.sort_unstable_by(|one, other| other.cmp(one));
        had.get(self.quorum.votes().saturating_sub(1)).copied().unwrap_or_default()
    }

    fn forget_what_is_past(&mut self) {
        if !self.absences.is_empty() {
            let confirmed_at = self.confirmed_at();
            self.absences.retain(|absence| absence.until.is_none_or(|until| until >= confirmed_at));
        }
    }
}
