//! For operators and their tools: admission records, lists of locks, and what servers say of themselves.
//!
//! The command line `redquorum` has all of it: `admission`, `list`, `check` and `status`. A service that locks needs none of it.

pub use crate::admission::{AdmissionRecords, RecordRefusal, RecordsError, ShownRecord, Written};
pub use crate::instance::{ClockOffset, Examination, OtherList, ServerDetails};
pub use crate::listing::Listing;
