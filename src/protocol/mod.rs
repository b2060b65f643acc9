//! The protocol, free of I/O, clocks, randomness and any runtime.
//!
//! Everything here is plain data and pure rules; time and random numbers are arguments. The
//! simulator and production run this same code. A rule has a number, and the code that upholds it
//! cites the number:
//!
//! | rule | in a few words | upheld by |
//! |---|---|---|
//! | P1 | one random value for one round | [`Value`], `crate::token` |
//! | P2 | validity counts from before the first send | [`LeaseTerms`], [`Round`] |
//! | P3 | the deciding clock counts suspended time | `crate::clock` |
//! | P4 | the verdict falls when a quorum has granted, or no longer can | [`Quorum`], [`Round`] |
//! | P5 | unknown is a result: never a grant, always released | [`Reply`], [`Round::must_release`] |
//! | P6 | calls are awaited past the verdict, releases are sent until confirmed, and leave a tombstone | `crate::runtime::background_release`, `release.lua` |
//! | P7 | a release compares, on every instance | `release.lua`, [`Lease::release_targets`] |
//! | P8 | a failed extend deletes nothing | [`Lease::settle`], `extend.lua` |
//! | P9 | an extend continues a lease that is still valid | [`Round::extend`], [`Lease`] |
//! | P10 | an extend repairs, unless its lease was released; in quarantine an instance keeps what it has | `extend.lua`, [`CountedVotes`] |
//! | P14, P15, P16, P29 | instances that may have forgotten do not vote | [`decide_record`], [`AdmissionRecord`], [`SeenRecords`], `acquire.lua` |
//! | P17 | votes after a clock step do not count | [`ClockWatch`], [`AdmissionState`], [`which_clock_jumped`] |
//! | P19 | leases are renewed at a third, then every tenth of the ttl | [`RenewalSchedule`], `crate::runtime::keep_alive` |
//! | P20 | a lease that no quorum can have kept is lost | [`Lease::note_replies`], [`Lease::no_quorum_has_key`], `crate::runtime::keep_alive` |
//! | P21, P22 | work ends with its lease, guards can be dropped anywhere | `crate::lock`, `crate::guard` |
//! | P23 | re-entry: the same holder enters its lease again | `crate::runtime::acquire::share` |
//! | P24 | waiters of one client queue, and the lease is handed over | [`FencingToken::next_in_lease`], `crate::runtime::acquire::slot`, `crate::runtime::held_lease` |
//! | P25, P26, P27 | waiting clients find each other, and are served in order | [`ClientId`], [`Message`], [`Waiters`], `crate::runtime::order` |
//! | P32 | a lease can be moved by its value | `crate::runtime::attach` |
//! | P31 | of several that try a free lock one gets it | [`Contest`], [`RoundFailure`], [`Round::hopeless_at`], `crate::runtime::acquire` |
//! | P28 | the usual acquire as plain commands in one write | [`AttachedRecord::lets_plain`], `crate::instance::redis::classify`, `crate::instance::redis::batch` |
//! | P33, P34 | readers share a lock, and a writer that waits lets in no more of them | [`Access`], [`WriterMark`], `read.lua`, `acquire.lua`, `crate::runtime::acquire::read` |
//! | P35 | a semaphore is numbered locks, of which one is enough | `crate::runtime::acquire::several` |
//! | P36 | a leader's value contains its token, and is replaced for a larger one | [`leader_label`], [`read_leader`], `crate::runtime::acquire` |
//! | P12, P13 | fencing tokens in the same round trip, from clocks that agree | [`FencingToken`], [`proposing_clock`], [`Round::stale_token`], `acquire.lua` |

mod admission;
mod client_id;
mod fencing;
mod instance_set;
mod leader;
mod lease;
mod message;
mod quorum;
mod readers;
mod retry;
mod round;
mod terms;
mod time;
mod token_forms;
mod value;
mod waiters;

pub use admission::clock_watch::{ClockWatch, Jump, Observation};
pub use admission::decide::{ProcessFacts, RecordAction, check_terms, decide_as_recorded, decide_record};
pub use admission::own_clock::{JumpedClock, which_clock_jumped};
pub use admission::record::{AdmissionRecord, AdmissionTerms, LONGEST_TTL, ProcessIdentity, RecordOrigin, SeenRecords};
pub use admission::state::{AdmissionState, AttachedRecord, RawReply, RecordMeaning};
pub use client_id::{CHANNEL, CLIENT_ID_BYTES, ClientId};
pub use fencing::{ClocksApart, FencingToken, MAX_AHEAD, ProposingClock, proposing_clock};
pub use instance_set::{InstanceId, InstanceSet};
pub use leader::{MAX_LEADER_INFO, leader_label, read_leader};
pub use lease::counted_votes::{CountedVotes, VoteRequest};
pub use lease::schedule::RenewalSchedule;
pub use lease::{ExtendRejected, Lease};
pub use message::{MAX_MESSAGE, MAX_MESSAGE_KEY, Message};
pub use quorum::{MAX_INSTANCES, Quorum, QuorumError, Verdict};
pub use readers::{Access, READERS, WriterMark};
pub use retry::{RetryDelay, reconnect_delay};
pub use round::cause::{Cause, NotUsable};
pub use round::contest::Contest;
pub use round::failure::{Contention, RoundFailure};
pub use round::reply::{Refusal, Reply};
pub use round::{Round, TimedReply};
pub use terms::{DEFAULT_DRIFT_PPM, DRIFT_FLOOR, LeaseTerms, TtlError};
pub use time::Instant;
pub use token_forms::NotAToken;
pub use value::{CurrentHolder, HolderKind, Value};
pub use waiters::{Announcement, MAX_WAITERS, Waiter, Waiters};
