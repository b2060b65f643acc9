//! What is known of an instance beyond its present connection.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::admission::server_info::ServerInfo;
use super::trouble::CurrentTrouble;
use crate::protocol::{AdmissionState, SeenRecords};

/// Shared by its connections, one after the other, and those who look at it.
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
    /// Whether it let the former connection be told of changes.
    pub(super) tracking: Option<bool>,
    /// The records of the process that was connected last.
    pub(super) seen: SeenRecords,
    /// How the former connection left the instance: its clock may step while nobody is connected.
    /// With how far the own clock had been put forward.
    pub(super) previous_admission: Option<(AdmissionState, Duration)>,
}

impl InstanceHealth {
    pub(super) fn lock(&self) -> MutexGuard<'_, LastKnown> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
