//! The admission record of an instance, as `admission.lua` and `write_record.lua` read and write it.

use std::sync::Arc;

use redquorum::protocol::{AdmissionRecord, AdmissionTerms, ProcessIdentity, RecordOrigin};

use crate::instance::{Answer, Request, Script, Store};
use crate::mutants::Mutant;

/// What a client wants to have written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordWrite {
    pub(crate) found: Option<Arc<AdmissionRecord>>,
    pub(crate) identity: ProcessIdentity,
    pub(crate) terms: AdmissionTerms,
    pub(crate) origin: RecordOrigin,
    /// Of one that follows another; else a quarantine begins.
    pub(crate) vote_from_ms: Option<u64>,
    /// The least of it where a quarantine begins.
    pub(crate) order: u64,
}

impl RecordWrite {
    /// What takes the place of a record, and is the next in order.
    pub(crate) fn following(record: AdmissionRecord, found: Option<Arc<AdmissionRecord>>) -> Self {
        let AdmissionRecord { identity, vote_from_ms, terms, origin, order, .. } = record;
        Self { found, identity, terms, origin, vote_from_ms: Some(vote_from_ms), order: order + 1 }
    }
}

/// Whether the record that is stored is the one that the client knows.
pub(crate) fn is_known(
    stored: Option<&Arc<AdmissionRecord>>,
    known: &Arc<AdmissionRecord>,
    mutant: Option<Mutant>,
) -> bool {
    match stored {
        None => mutant == Some(Mutant::MissingRecordVotes),
        Some(stored) => Arc::ptr_eq(stored, known) || stored == known || mutant == Some(Mutant::AnyIdentity),
    }
}

impl Store {
    /// Why the instance does not vote now, as `admission.lua` and `clock.lua` say it. `quarantine_over`: the
    /// client looks at the instant, and the instance does not.
    pub(crate) fn not_admitted(
        &self,
        now_us: u64,
        known: Option<&Arc<AdmissionRecord>>,
        quarantine_over: bool,
    ) -> Option<Answer> {
        let known = known.filter(|_| !self.is(Mutant::NoAdmission))?;
        if !is_known(self.record.as_ref(), known, self.mutant) {
            return Some(Answer::NotAdmitted { left_ms: None });
        }
        let record = self.record.as_ref()?;
        let left_us = (record.vote_from_ms * 1000).saturating_sub(now_us);
        let waits = left_us > 0 && !quarantine_over && !self.is(Mutant::NoQuarantine);
        waits.then_some(Answer::NotAdmitted { left_ms: Some(left_us.div_ceil(1000)) })
    }

    /// `write_record.lua`, and the plain read of the record.
    pub(crate) fn execute_admission(&mut self, now_ms: u64, request: &Request) -> Answer {
        if let (Script::Admit, Some(note)) = (request.script, &request.note)
            && self.record == note.found
        {
            self.write_record(now_ms, note);
        }
        let has_tokens = self.fences.iter().any(Option::is_some);
        Answer::Record { record: self.record.clone(), has_tokens }
    }

    fn write_record(&mut self, now_ms: u64, note: &RecordWrite) {
        let (vote_from_ms, order) = match note.vote_from_ms {
            Some(from) => (from, note.order),
            None if self.is(Mutant::FlushedVotesAtOnce) && note.found.is_none() => (now_ms, note.order.max(now_ms)),
            None => (now_ms + note.terms.quarantine_ms, note.order.max(now_ms)),
        };
        let (identity, terms, origin) = (note.identity.clone(), note.terms, note.origin);
        self.record = Some(Arc::new(AdmissionRecord { identity, vote_from_ms, terms, origin, order, cluster: None }));
    }
}
