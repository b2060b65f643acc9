//! What the examples share: a database, five servers to lock against, and processes that use both.

pub mod database;
pub mod groups;
pub mod http;
pub mod mariadb;
pub mod stage;
pub mod worker;

use std::time::{Duration, Instant};

/// What an example gives: the first thing that went wrong, if any did.
pub type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Of every lock, and how long the new servers sit out before they vote.
pub const TTL: Duration = Duration::from_secs(2);

/// Milliseconds.
#[must_use]
pub const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// What an example shows must be so, or it ends with an error.
///
/// # Errors
/// When it is not.
pub fn check(holds: bool, claim: &str) -> Outcome {
    if holds { Ok(()) } else { Err(format!("this should be so, and is not: {claim}").into()) }
}

/// The time, to say how long things take.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "it shows how long things take")]
pub fn now() -> Instant {
    Instant::now()
}
