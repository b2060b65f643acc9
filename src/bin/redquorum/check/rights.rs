//! Whether the user may do what locks need, by doing it on one instance alone.

use redquorum::Guard;

use super::{Attempt, Finding, Verdict};
use crate::settings::Settings;

/// Acquires, shows, extends and releases a lock on this instance, which must have a record.
pub(super) async fn of_instance(index: usize, address: &str, attempt: &Attempt<'_>, settings: &Settings) -> Finding {
    match try_all(index, attempt, settings).await {
        Ok(()) => Finding::new(Verdict::Good, address, "acquired, extended and released a lock of its own"),
        Err((verdict, problem)) => Finding::new(verdict, address, problem),
    }
}

async fn try_all(index: usize, attempt: &Attempt<'_>, settings: &Settings) -> Result<(), (Verdict, String)> {
    let bad = |step: &str, error: &dyn std::fmt::Display| (Verdict::Bad, format!("{step}: {error}"));
    let alone = settings.client_of_one(index).map_err(|failure| (Verdict::Bad, failure.message))?;
    alone.wait_connected(settings.connect_timeout).await.map_err(|error| bad("connect", &error))?;
    let guard: Guard = attempt.lock(&alone).try_acquire().await.map_err(|error| {
        let verdict = if error.is_contended() { Verdict::Doubtful } else { Verdict::Bad };
        (verdict, format!("acquire: {error}"))
    })?;
    let seen = alone.inspect(attempt.resource).await.map_err(|error| bad("inspect", &error))?;
    let extended = guard.extend().await;
    // Also if it was not extended: a guard that is only dropped may still hold its lock when the next step wants it.
    let released = guard.release().await;
    extended.map_err(|error| bad("extend", &error))?;
    let released = released.map_err(|error| bad("release", &error))?;
    if !released.was_still_held {
        return Err((Verdict::Bad, "release: the lock was gone".to_owned()));
    }
    match seen.unknown.first() {
        None => Ok(()),
        Some(unknown) => Err((Verdict::Doubtful, format!("inspect: {}", unknown.cause))), // nothing that a service needs
    }
}

/// What keeps readers off this instance. Not every service has some, and what a reader leaves behind keeps out locks: so this comes last.
pub(super) async fn of_readers(
    index: usize,
    address: &str,
    attempt: &Attempt<'_>,
    settings: &Settings,
) -> Option<Finding> {
    let alone = settings.client_of_one(index).ok()?;
    alone.wait_connected(settings.connect_timeout).await.ok()?;
    let problem = match attempt.rw_lock(&alone).try_read().await {
        Ok(reader) => reader.release().await.err()?.to_string(),
        Err(error) if error.is_contended() => return None,
        Err(error) => error.to_string(),
    };
    Some(Finding::new(Verdict::Doubtful, address, format!("read, beside other readers: {problem}")))
}
