//! What outlives a connection: what the client last learnt about the instance.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::admission::server_info::ServerInfo;
use super::trouble::CurrentTrouble;
use crate::protocol::{AdmissionState, SeenRecords};

/// Shared by the connections of an instance, one after the other, and by those who ask for its status.
#[derive(Debug, Default)]
pub(super) struct InstanceHealth {
    last: Mutex<LastKnown>,
    pub(super) trouble: CurrentTrouble,
}

#[derive(Clone, Debug, Default)]
pub(super) struct LastKnown {
    pub(super) info: Option<ServerInfo>,
    pub(super) round_trip: Option<Duration>,
    pub(super) last_error: Option<String>,
    /// The run id of the process and how that calls the last connection.
    pub(super) session: Option<(String, u64)>,
    /// Whether changes of keys were pushed over the previous connection.
    pub(super) tracking: Option<bool>,
    /// Whether messages of other clients came over it.
    pub(super) hears: Option<bool>,
    /// The records of the process that was connected last.
    pub(super) seen: SeenRecords,
    pub(super) previous_admission: Option<PreviousAdmission>,
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
}
