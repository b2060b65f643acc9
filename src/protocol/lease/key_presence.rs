//! Which instances had the key of a lease over its life, and which did not (P20).
//!
//! Another client can have held the lock only if at one moment so many instances were without the key
//! that no quorum was left. Of an instance that had the key at one request, and did not at
//! a later one, it is known only that the key went away in between. So an absence reaches from
//! the last time at which the instance was known to have the key until it has it again. When within its round trip an
//! instance has carried out a request is not known: an absence begins when the last request was sent to which the key
//! was there, and ends with the answer to the one that found or set it again. What
//! counts is how many absences may have fallen together. It does not matter what showed them: an extend, a renewal, a key check,
//! before or after the verdict.
//!
//! At a moment at which a quorum had the key the lease was whole, however long other instances had been silent. An absence that
//! is found later begins no earlier: that those instances were without the key before, together with others that have it again, is
//! possible, but no answer shows it.
//!
//! ```text
//! instance 1   had it -------- asked .. repaired --------- asked .. has it ------------>
//! instance 2   has it ---------------------------- asked .. has it ---- asked .. not there ->
//! instance 3   silent ----------------------------------------------- asked .. not there ->
//!              |<- 1 is absent ---------->|        |<- 2 is absent ................. ->|
//!                                                  |<- 3 is absent ................. ->|
//! ```
//!
//! When instance 2 was asked first, 1 and 2 had the key. So 2 and 3 may have been without it together, but neither of them
//! together with 1. Had instance 2 been asked before instance 1 answered, it might be all three.

use crate::protocol::instance_set::{InstanceId, InstanceSet};
use crate::protocol::quorum::Quorum;
use crate::protocol::time::Instant;

/// So many absences are kept apart. They are forgotten soon, unless another instance is silent for long.
const MOST: usize = 64;

/// Who had the key of a lease when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyPresence {
    quorum: Quorum,
    /// For each instance.
    had: Vec<Had>,
    /// None as a rule.
    absences: Vec<Absence>,
    most_absent: usize,
}

/// To which requests an instance had the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Had {
    /// When the latest of them was sent.
    at: Instant,
    /// When the latest one before that was sent.
    before: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Absence {
    id: InstanceId,
    /// Since when the key may have been away.
    from: Instant,
    /// When the latest request was sent to which the instance did not have it.
    seen: Instant,
    /// When that answer came which shows that it has the key again.
    until: Option<Instant>,
}

impl Absence {
    fn covers(&self, moment: Instant) -> bool {
        self.from <= moment && self.until.is_none_or(|until| moment < until)
    }
}

impl KeyPresence {
    /// Nothing is known yet of any instance.
    pub(super) fn new(quorum: Quorum) -> Self {
        let never = Had { at: Instant::ZERO, before: Instant::ZERO };
        Self { quorum, had: vec![never; quorum.instances()], absences: Vec::new(), most_absent: 0 }
    }

    /// The instance had the key when it carried out a request that was sent at `sent`, and answered at `answered`.
    pub(super) fn note_present(&mut self, id: InstanceId, sent: Instant, answered: Instant) {
        self.note_back(id, (sent, answered), |absence| absence.seen < sent);
        self.forget_what_is_past();
    }

    /// The instance did not have the key when it carried out a request that was sent at `sent`.
    pub(super) fn note_missing(&mut self, id: InstanceId, sent: Instant) {
        self.note_gone(id, sent);
        self.count(); // what is known to be over later may be forgotten then
    }

    fn note_gone(&mut self, id: InstanceId, sent: Instant) {
        let Some(had_at) = self.had.get(id.index()).map(|had| had.at).filter(|had_at| *had_at <= sent) else {
            return; // a late reply: it has had the key since
        };
        let (is_full, from) = (self.absences.len() >= MOST, had_at.max(self.was_whole_by(sent)));
        // One that may have begun before the former was over continues it. Where there are too many, twice absent counts
        // as absent in between, on the safe side.
        let goes_on = |absence: &Absence| absence.until.is_none_or(|until| from < until) || is_full;
        let known = self.absences.iter_mut().find(|absence| absence.id == id && goes_on(absence));
        match known {
            Some(absence) => {
                // It says so again: answers from before the absence are in by now. Else one that stays without the key would
                // keep absences of others from being forgotten.
                if let Some(had) = self.had.get_mut(id.index()).filter(|_| absence.seen < sent) {
                    had.before = had.at;
                }
                (absence.seen, absence.until) = (absence.seen.max(sent), None);
            }
            None => self.absences.push(Absence { id, from, seen: sent, until: None }),
        }
    }

    /// The latest moment, not after `sent`, at which a quorum is known to have had the key.
    fn was_whole_by(&self, sent: Instant) -> Instant {
        let moments = self.had.iter().map(|had| had.at).chain(self.absences.iter().map(|absence| absence.from));
        let is_whole = |moment: &Instant| {
            let ids = InstanceId::all(self.had.len());
            ids.filter(|id| self.had_key_at(*id, *moment)).count() >= self.quorum.votes()
        };
        moments.map(|moment| moment.min(sent)).filter(is_whole).max().unwrap_or_default()
    }

    fn had_key_at(&self, id: InstanceId, moment: Instant) -> bool {
        let is_over = |absence: &Absence| absence.until.is_some_and(|until| until < moment);
        let is_away = |absence: &Absence| absence.id == id && absence.from < moment && !is_over(absence);
        self.had.get(id.index()).is_some_and(|had| had.at >= moment) && !self.absences.iter().any(is_away)
    }

    /// The instance did not have the key, and got it again with a request that was sent at `sent`, and answered at
    /// `answered`.
    pub(super) fn note_repaired(&mut self, id: InstanceId, sent: Instant, answered: Instant) {
        let Some(had) = self.had.get(id.index()).copied() else { return };
        if had.at < sent {
            self.note_gone(id, sent);
            self.note_back(id, (sent, answered), |absence| absence.seen <= sent);
            self.count();
            self.forget_what_is_past();
        } else if had.before < sent {
            self.note_past(Absence { id, from: had.before, seen: sent, until: Some(answered) });
        }
    }

    /// An absence is known that was over before the last answer of its instance: that answer was taken in first, though
    /// it came behind this one, or this one was taken in before.
    fn note_past(&mut self, past: Absence) {
        let overlaps = |known: &&mut Absence| {
            let begins_before = past.until.is_none_or(|until| known.from < until);
            known.id == past.id && begins_before && known.until.is_none_or(|until| past.from < until)
        };
        match self.absences.iter_mut().find(overlaps) {
            Some(known) => {
                known.from = known.from.min(past.from);
                known.until = known.until.zip(past.until).map(|(known, past)| known.max(past));
            }
            None => self.absences.push(past),
        }
        self.count();
        self.forget_what_is_past();
    }

    /// Whether the instance is known to have had the key, and not only since a request that was sent later than `sent`.
    pub(super) fn had_by(&self, id: InstanceId, sent: Instant) -> bool {
        self.had.get(id.index()).is_some_and(|had| Instant::ZERO < had.at && had.at <= sent)
    }

    fn note_back(&mut self, id: InstanceId, (sent, answered): (Instant, Instant), is_over: impl Fn(&Absence) -> bool) {
        if let Some(had) = self.had.get_mut(id.index()) {
            if had.at < sent {
                *had = Had { at: sent, before: had.at };
            } else if sent < had.at {
                had.before = had.before.max(sent);
            }
        }
        for absence in &mut self.absences {
            if absence.id == id && absence.until.is_none() && is_over(absence) {
                absence.until = Some(answered);
            }
        }
    }

    /// The most instances that may have been without the key at one moment, ever.
    pub(super) const fn most_absent(&self) -> usize {
        self.most_absent
    }

    fn count(&mut self) {
        let at = |moment| self.absences.iter().filter(|absence| absence.covers(moment)).count();
        let most = self.absences.iter().map(|absence| at(absence.from)).max().unwrap_or(0);
        self.most_absent = most.max(self.most_absent);
    }

    /// The instances that had the key when they were asked at `since` or later, and by all that is known
    /// have it.
    pub(super) fn present(&self, since: Instant) -> InstanceSet {
        let is_absent = |id| self.absences.iter().any(|absence| absence.id == id && absence.until.is_none());
        let had = InstanceId::all(self.had.len()).zip(&self.had).filter(|(_, had)| had.at >= since);
        had.map(|(id, _)| id).filter(|id| !is_absent(*id)).collect()
    }

    /// The instances that were without the key at a time that still counts.
    pub(super) fn absent(&self) -> InstanceSet {
        self.absences.iter().map(|absence| absence.id).collect()
    }

    /// Forgets an absence with which none that becomes known later can fall together: every other
    /// instance has had the key twice since, or its own absence is known already.
    fn forget_what_is_past(&mut self) {
        let Some(earliest) = self.absences.iter().filter_map(|absence| absence.until).min() else { return };
        let is_known = |id, since| {
            let mut open = self.absences.iter().filter(|absence| absence.id == id && absence.until.is_none());
            open.any(|absence| absence.from <= since)
        };
        let others = InstanceId::all(self.had.len()).zip(&self.had).filter(|(id, had)| !is_known(*id, had.before));
        let Some(known_since) = others.map(|(_, had)| had.before).min() else { return };
        if known_since >= earliest {
            self.absences.retain(|absence| absence.until.is_none_or(|until| until > known_since));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Instant = Instant::from_millis;

    /// Otherwise it would fall together with what was over before, and a lease that is kept would count as lost.
    #[test]
    fn an_absence_begins_at_the_last_answer_before_it_also_if_that_came_late() {
        let [first, second] = [0, 1].map(InstanceId::new);
        let mut presence = KeyPresence::new(Quorum::majority(3).unwrap());
        for sent in [10, 40, 30] {
            presence.note_present(first, MS(sent), MS(sent + 1));
        }
        presence.note_present(second, MS(10), MS(11));
        presence.note_missing(second, MS(20));
        presence.note_present(second, MS(24), MS(25));
        presence.note_repaired(first, MS(35), MS(36));
        assert_eq!(presence.most_absent(), 1);
    }
}
