//! Carries rounds out over all instances with tokio: sends them, waits for their verdicts, renews leases and releases
//! keys in the background. It leaves every decision to `protocol`.

pub(crate) mod acquire;
pub(crate) mod ask_all;
pub(crate) mod attach;
pub(crate) mod background_release;
mod ballot;
pub(crate) mod counters;
pub(crate) mod extend;
pub(crate) mod held_lease;
mod in_flight;
pub(crate) mod keep;
pub(crate) mod keep_alive;
pub(crate) mod observed;
pub(crate) mod order;
mod pending_releases;
pub(crate) mod release;
mod shared;
pub(crate) mod tasks;
mod wait_events;

pub(crate) use shared::Shared;
