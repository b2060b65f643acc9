//! What an operator finds on an instance (P15, P29).

use std::pin::Pin;

use crate::protocol::{AdmissionRecord, Cause, ProcessIdentity};

/// What an operator asks of the record of one instance.
pub(crate) type RecordFuture<T> = Pin<Box<dyn Future<Output = Result<T, Cause>> + Send>>;

/// The admission record of an instance as it was read.
#[derive(Clone, Debug)]
pub(crate) struct FoundRecord {
    /// What is stored; `None` if nothing is.
    pub(crate) stored: Option<Vec<u8>>,
    /// The process that runs.
    pub(crate) identity: ProcessIdentity,
    /// The instance's clock then, in milliseconds since the Unix epoch.
    pub(crate) now_ms: u64,
}

impl FoundRecord {
    /// The record, if it is one.
    pub(crate) fn record(&self) -> Option<AdmissionRecord> {
        AdmissionRecord::from_wire(self.stored.as_deref()?)
    }
}

/// What shows that an instance was used before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trace {
    /// Nothing does.
    Unused,
    /// It has this record.
    Record(String),
    /// It has a fencing token, of this lock.
    Token(String),
    /// A client listens to this channel to be woken.
    Listener(String),
    /// It was flushed since it started.
    Flushed,
}
