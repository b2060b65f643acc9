//! An instance's record as a client knows it: how requests name it, and what it means for that client (P14, P16).

use std::sync::Arc;

use crate::protocol::admission::record::AdmissionRecord;
use crate::protocol::fencing::FencingToken;
use crate::protocol::round::cause::NotUsable;

/// The record as a request names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachedRecord {
    /// The record.
    pub record: Arc<AdmissionRecord>,
    wire: Arc<str>,
    /// Whether the instance's clock shows the record's instant by now, as far as this connection knows.
    pub quarantine_over: bool,
}

impl AttachedRecord {
    /// A record that is named for the first time.
    pub fn new(record: AdmissionRecord, quarantine_over: bool) -> Self {
        let wire = record.to_wire().into();
        Self { record: Arc::new(record), wire, quarantine_over }
    }

    /// The same at another time.
    pub fn at(&self, quarantine_over: bool) -> Self {
        Self { quarantine_over, ..self.clone() }
    }

    /// P28: whether plain commands may propose this token where the instance's clock shows at least `wall_us`. They compare neither the
    /// record's instant nor how far a token is ahead, so both must be known (P12, P14).
    pub fn lets_plain(&self, token: FencingToken, wall_us: u64) -> bool {
        self.quarantine_over && !token.is_ahead_of(wall_us)
    }

    /// The record as it is stored.
    pub fn wire(&self) -> &str {
        &self.wire
    }
}

/// What the instance's record means for this client. No vote is requested unless it is
/// [`Recorded`](Self::Recorded).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordMeaning {
    /// The record is valid.
    Recorded,
    /// There is no valid record. A client that wants locks writes one (P15).
    Unrecorded,
    /// It gives no vote to a client with these settings (P16, P29).
    Refused(NotUsable),
}
