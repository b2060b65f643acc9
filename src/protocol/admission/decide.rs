//! Instances that may have forgotten locks grant nothing new (P14, P15, P16).
//!
//! Every instance holds one record: which process it was written for, and from which instant, by
//! the instance's own clock, that process may vote. What makes an instance forget locks also
//! takes the record away, or leaves one that names another process: a restart gives a new run id, a
//! promotion or a resynchronisation a new replication id, a flush removes the record.

use crate::protocol::admission::record::{AdmissionRecord, AdmissionTerms, ProcessIdentity, SeenRecords};
use crate::protocol::round::cause::NotUsable;

/// What a server reports about itself when a client connects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessFacts {
    /// Which process, and which life of it.
    pub identity: ProcessIdentity,
    /// Whether it is a master now.
    pub is_master: bool,
}

/// What a client does about the record that it found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordAction {
    /// The record names this process and is valid.
    Keep(AdmissionRecord),
    /// A record must be written that lets the process vote a quarantine after the writing, provided that the one that was found
    /// is still there.
    Write,
}

/// Decides what a record means for a client with these terms (P15, P29).
///
/// `found` is what the instance has under the record's key, `None` if nothing, while its clock shows `now_ms`; `seen` is what the client
/// remembers of its records.
///
/// # Errors
/// [`NotUsable`] if the instance must not be used at all.
pub fn decide_record(
    facts: &ProcessFacts,
    (found, now_ms): (Option<&[u8]>, u64),
    ours: AdmissionTerms,
    seen: &SeenRecords,
) -> Result<RecordAction, NotUsable> {
    if !facts.is_master {
        return Err(NotUsable::Replica);
    }
    // An unreadable record was overwritten by hand. It counts as none, and none as that of another process.
    let Some(record) = found.and_then(AdmissionRecord::from_wire) else { return Ok(RecordAction::Write) };
    // Where the clock was set back the instance would sit out the difference. But the wait of others may be longer than this client's.
    let left_ms = record.vote_from_ms.saturating_sub(now_ms);
    let is_from_later = now_ms < record.order && left_ms > record.longest_ttl_ms.max(ours.quarantine_ms);
    let stands = record.identity == facts.identity && !is_from_later && seen.accepts(&record);
    if !stands {
        return Ok(RecordAction::Write);
    }
    check_terms(record.longest_ttl_ms, ours)?;
    Ok(RecordAction::Keep(record))
}

/// Decides what a record means for a client that only looks, without regard to its times (P15). An existing record is
/// kept. Where a client that locks would write one, there is none.
///
/// # Errors
/// As [`decide_record`], without what its own settings lead to.
pub fn decide_as_recorded(
    facts: &ProcessFacts,
    found: (Option<&[u8]>, u64),
    ours: AdmissionTerms,
    seen: &SeenRecords,
) -> Result<RecordAction, NotUsable> {
    let record = found.0.and_then(AdmissionRecord::from_wire);
    let longest_ttl_ms = record.map_or(0, |record| record.longest_ttl_ms);
    // With these times any record fits.
    let fitting = AdmissionTerms { max_ttl_ms: 0, quarantine_ms: ours.quarantine_ms.max(longest_ttl_ms) };
    decide_record(facts, found, fitting, seen)
}

/// P29: a client uses no longer ttl than the record allows, and makes an instance wait for no less.
///
/// # Errors
/// What does not fit, with both times.
pub const fn check_terms(recorded_ms: u64, ours: AdmissionTerms) -> Result<(), NotUsable> {
    let AdmissionTerms { max_ttl_ms, quarantine_ms } = ours;
    if quarantine_ms < recorded_ms {
        return Err(NotUsable::QuarantineBelowRecord { recorded_ms, ours_ms: quarantine_ms });
    }
    if max_ttl_ms > recorded_ms {
        return Err(NotUsable::TtlAboveRecord { recorded_ms, ours_ms: max_ttl_ms });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
