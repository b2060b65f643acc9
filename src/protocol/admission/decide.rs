//! Instances that may have forgotten locks do not vote (P14, P15, P16).
//!
//! Every instance holds one record: which process it was written for, and from which instant, by
//! the instance's own clock, that process may vote. Whatever makes an instance forget locks also
//! takes the record away, or leaves one that names another process: a restart gives a new run id, a
//! promotion or a resynchronisation a new replication id, a flush removes the record.

use crate::protocol::admission::record::{AdmissionRecord, AdmissionTerms, ProcessIdentity, RecordOrigin, SeenRecords};
use crate::protocol::round::cause::NotUsable;

/// What a server reports about itself when a client connects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessFacts {
    /// Which life of which process.
    pub identity: ProcessIdentity,
    /// Whether it is a master now.
    pub is_master: bool,
    /// Whether it has been a replica in this life, as far as it reports.
    pub was_replica: bool,
    /// Whether any of its data was flushed in this life, as far as it reports.
    pub was_flushed: bool,
    /// How long it has been up, in whole seconds as it counts them.
    pub uptime_s: u64,
    /// Its clock, in milliseconds since the Unix epoch.
    pub now_ms: u64,
}

impl ProcessFacts {
    /// The same facts at a later instant of the instance's clock: its start does not move.
    #[must_use]
    pub fn at(&self, now_ms: u64) -> Self {
        let passed_s = (now_ms / 1000).saturating_sub(self.now_ms / 1000);
        Self { uptime_s: self.uptime_s.saturating_add(passed_s), now_ms, ..self.clone() }
    }
}

/// What a client does about the record that it found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordAction {
    /// The record names this process: go by it.
    Keep(AdmissionRecord),
    /// It does, but this client asks for a longer ttl, or waits for longer, than it says. This record must be written, the
    /// same but for that, provided that the one that was found is still there (P29).
    Raise(AdmissionRecord),
    /// A record must be written that lets the process vote a quarantine after the writing, provided that the one that was found
    /// is still there.
    Write {
        /// How the record comes to be.
        origin: RecordOrigin,
    },
}

/// Decides what a record means for a client with these terms (P15, P29).
///
/// `found` is what the instance has under the record's key, `None` if nothing; `seen` is what the client
/// remembers of its records.
///
/// # Errors
/// [`NotUsable`] if the instance must not be used at all.
pub fn decide_record(
    facts: &ProcessFacts,
    found: Option<&[u8]>,
    ours: AdmissionTerms,
    seen: &SeenRecords,
) -> Result<RecordAction, NotUsable> {
    if !facts.is_master {
        return Err(NotUsable::Replica);
    }
    let Some(found) = found else {
        return Ok(RecordAction::Write { origin: origin_without_record(facts, ours, seen) });
    };
    let restarted = RecordAction::Write { origin: RecordOrigin::Waits };
    let Some(record) = AdmissionRecord::from_wire(found) else {
        return Ok(restarted); // somebody wrote over it: as good as another process
    };
    check_terms(record.terms, ours)?;
    // Where the clock was set back the instance would sit out the difference; a quarantine from now is long enough
    // whatever it forgot.
    let stands = record.identity == facts.identity && !record.is_from_later(facts.now_ms) && seen.accepts(&record);
    if !stands {
        return Ok(restarted);
    }
    let covering = AdmissionRecord { terms: record.terms.covering(ours), ..record.clone() };
    Ok(if covering == record { RecordAction::Keep(record) } else { RecordAction::Raise(covering) })
}

/// Decides what a record means for a client that only looks, whatever the times of those that lock (P15): where a record
/// stands it is kept as it is, and where one would have to be written there is none to go by.
///
/// # Errors
/// As [`decide_record`], without what its own settings lead to.
pub fn decide_as_recorded(
    facts: &ProcessFacts,
    found: Option<&[u8]>,
    ours: AdmissionTerms,
    seen: &SeenRecords,
) -> Result<RecordAction, NotUsable> {
    let record = found.and_then(AdmissionRecord::from_wire);
    // Under its own times any record fits.
    decide_record(facts, found, record.map_or(ours, |record| record.terms), seen)
}

/// P29: every client waits for as long as any other may ask for.
fn check_terms(recorded: AdmissionTerms, ours: AdmissionTerms) -> Result<(), NotUsable> {
    if ours.quarantine_ms < recorded.max_ttl_ms {
        return Err(NotUsable::OtherMaxTtl { recorded_ms: recorded.max_ttl_ms, ours_ms: ours.quarantine_ms });
    }
    if recorded.quarantine_ms < ours.max_ttl_ms {
        return Err(NotUsable::ShortQuarantine { recorded_ms: recorded.quarantine_ms, ours_ms: ours.max_ttl_ms });
    }
    Ok(())
}

/// How a record comes to be where there was none. However young the process says that it is, it waits from now: it counts
/// from its start by a clock that may have been set since, in either direction.
fn origin_without_record(facts: &ProcessFacts, ours: AdmissionTerms, seen: &SeenRecords) -> RecordOrigin {
    // The start is reported in whole seconds, cut off: it may have been up to a second later.
    let started_ms = (facts.now_ms / 1000).saturating_sub(facts.uptime_s).saturating_add(1).saturating_mul(1000);
    // Whatever was granted before its start has expired.
    let is_old = facts.now_ms >= started_ms.min(facts.now_ms).saturating_add(ours.quarantine_ms);
    // What it forgot may be younger than the process: a key that was there before the start and extended since, or a grant
    // of the master before. And where this client has seen a record, something has removed it.
    let was_used = facts.was_replica || facts.was_flushed || seen.has_any();
    if is_old && !was_used { RecordOrigin::Blank } else { RecordOrigin::Waits }
}

/// What an instance shows of whether it was ever used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstLook {
    /// Its record, read after every one of the records had been written.
    pub record: AdmissionRecord,
    /// Its clock then, in milliseconds since the Unix epoch.
    pub now_ms: u64,
    /// Whether it has a fencing token of any lock, read while the record stayed as it is.
    pub has_tokens: bool,
}

/// Whether nobody has ever used a set of instances, so that they may vote at once (P15).
///
/// `looks` are what *all* configured instances answered. An instance that voted has a token, and keeps it for at
/// least as long as the lock; only if every instance of its quorum forgot it would there be none.
///
/// The record alone is no evidence: once a clock is set back, an instance that has voted seems to be waiting
/// still, and two that had forgotten a lock were let vote beside such a third one (the simulator's planted bug
/// `OpenBySetBack`). It only spares those that vote already.
#[must_use]
pub fn never_used(looks: &[FirstLook], instances: usize) -> bool {
    let is_unused = |look: &FirstLook| look.record.is_untouched(look.now_ms) && !look.has_tokens;
    looks.len() == instances && looks.iter().all(is_unused)
}

#[cfg(test)]
mod tests;
