//! What is known of an instance beyond its present connection.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::admission::server_info::About;
use super::trouble::Troubles;
use crate::protocol::{Seen, Standing};

/// Shared by its connections, one after the other, and those who look at it.
#[derive(Debug, Default)]
pub(super) struct Known {
    knowledge: Mutex<Knowledge>,
    pub(super) troubles: Troubles,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Knowledge {
    pub(super) about: Option<About>,
    pub(super) round_trip: Option<Duration>,
    pub(super) last_error: Option<String>,
    /// Whether it let the former connection be told of changes.
    pub(super) tracking: Option<bool>,
    /// The records of the process that was connected last.
    pub(super) seen: Seen,
    /// How the former connection left the instance: its clock may step while nobody is connected.
    /// With how far the own clock had been put forward.
    pub(super) former: Option<(Standing, Duration)>,
}

impl Known {
    pub(super) fn get(&self) -> MutexGuard<'_, Knowledge> {
        self.knowledge.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
