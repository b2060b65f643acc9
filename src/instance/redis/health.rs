//! What outlives a connection: what the client last learnt about the instance.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::address::Endpoint;
use super::admission::server_info::ServerInfo;
use super::excess::Excess;
use super::reply_counts::ReplyCounts;
use super::reply_limit::TooMuch;
use super::trouble::CurrentTrouble;
use crate::protocol::{AdmissionState, NotUsable, SeenRecords};

/// Shared by the connections of an instance, one after the other, and by those who ask for its status.
#[derive(Debug, Default)]
pub(super) struct InstanceHealth {
    last: Mutex<LastKnown>,
    pub(super) trouble: CurrentTrouble,
    pub(super) counts: ReplyCounts,
    /// A reply with the values of leases was longer than those: something else is stored under the keys of locks.
    pub(super) has_long_values: AtomicBool,
    pub(super) excess: Excess,
}

#[derive(Clone, Debug, Default)]
pub(super) struct LastKnown {
    pub(super) info: Option<ServerInfo>,
    /// What was connected to last.
    pub(super) endpoint: Option<Endpoint>,
    pub(super) round_trip: Option<Duration>,
    pub(super) last_error: Option<String>,
    /// The connections that the process may still have.
    pub(super) sessions: Sessions,
    /// Whether changes of keys were pushed over the previous connection.
    pub(super) tracking: Option<bool>,
    /// Whether messages of other clients came over it.
    pub(super) hears: Option<bool>,
    /// Whether it took the name that it was to have.
    pub(super) named: Option<bool>,
    /// The records of the process that was connected last.
    pub(super) seen: SeenRecords,
    pub(super) previous_admission: Option<PreviousAdmission>,
    /// Why it gave this client no votes when that was last known.
    pub(super) refusal: Option<NotUsable>,
}

/// How a process calls those of the client's connections to it that are not known to be ended (P28).
#[derive(Clone, Debug, Default)]
pub(super) struct Sessions {
    run_id: String,
    ids: Vec<u64>,
}

/// So many are remembered. Each more would be a connection that broke just before those of before it were ended.
const MOST_SESSIONS: usize = 16;

impl Sessions {
    /// Notes a connection, and gives those of before it that the same process may still have.
    pub(super) fn begin(&mut self, run_id: String, session: Option<u64>) -> Vec<u64> {
        if self.run_id != run_id {
            *self = Self { run_id, ids: Vec::new() };
        }
        let former = self.ids.clone();
        self.ids.extend(session);
        let too_many = self.ids.len().saturating_sub(MOST_SESSIONS);
        self.ids.drain(..too_many);
        former
    }

    /// The process was told to end these.
    pub(super) fn note_ended(&mut self, former: &[u64]) {
        self.ids.retain(|id| !former.contains(id));
    }
}

/// How the previous connection left the instance: its clock may step while nobody is connected.
#[derive(Clone, Debug)]
pub(super) struct PreviousAdmission {
    pub(super) state: AdmissionState,
    /// How far the own clock had been put forward by then.
    pub(super) own_clock_ahead: Duration,
}

impl InstanceHealth {
    pub(super) fn lock(&self) -> MutexGuard<'_, LastKnown> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in how the present connection has ended: what was too much, if that was why.
    pub(super) fn note_excess(&self) -> Option<TooMuch> {
        let too_much = self.excess.take()?;
        // Values of others are no fault of the instance. From now on they are cut, so it happens once.
        if too_much.may_be_a_value() && !self.has_long_values.swap(true, Ordering::Relaxed) {
            self.excess.forgive_last();
        }
        Some(too_much)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_remembered_until_their_process_was_told_to_end_them() {
        let mut sessions = Sessions::default();
        let mut begin = |run_id: &str, session| sessions.begin(run_id.to_owned(), Some(session));
        assert_eq!(begin("one", 1), [0; 0]);
        assert_eq!(begin("one", 2), [1]);
        assert_eq!(begin("one", 3), [1, 2], "the second broke before the first was ended");
        sessions.note_ended(&[1, 2]);
        assert_eq!(sessions.begin("one".to_owned(), None), [3]);
        assert_eq!(sessions.begin("another".to_owned(), Some(1)), [0; 0]);
        (2..100).for_each(|session| drop(sessions.begin("another".to_owned(), Some(session))));
        assert_eq!(sessions.begin("another".to_owned(), None).len(), MOST_SESSIONS);
    }
}
