//! The measuring itself.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use redquorum::{AcquireError, Redlock};
use tokio::time::{sleep, timeout};

use super::samples::Samples;
use crate::clock::since_boot;
use crate::exit::Failure;

/// Of acquires and releases, each by itself.
#[derive(Debug, Default)]
pub(super) struct Pair {
    pub(super) acquire: Samples,
    pub(super) release: Samples,
    /// Why the last acquire was still waiting when the time was over.
    pub(super) failure: Option<AcquireError>,
}

/// One after the other, without contention.
pub(super) async fn uncontended(redlock: &Redlock, resource: &str, long: Duration) -> Result<Pair, Failure> {
    let (mut pair, ends, lock) = (Pair::default(), since_boot().saturating_add(long), redlock.lock(resource));
    loop {
        let begun = since_boot();
        if begun >= ends {
            return Ok(pair);
        }
        let left = ends.saturating_sub(begun);
        let guard = match lock.clone().wait_at_most(left).acquire().await {
            Ok(guard) => guard,
            Err(error) if since_boot() >= ends => {
                pair.failure = Some(error); // such a try says nothing of how long one takes
                return Ok(pair);
            }
            Err(error) => return Err(error.into()),
        };
        let acquired = since_boot();
        pair.acquire.add(acquired.saturating_sub(begun));
        if guard.release().await.is_ok() {
            pair.release.add(since_boot().saturating_sub(acquired));
        }
    }
}

/// Reads who has a lock, one question after the other; those without an answer do not count.
pub(super) async fn answers(redlock: &Redlock, resource: &str, long: Duration) -> Result<Samples, Failure> {
    let (mut samples, ends) = (Samples::default(), since_boot().saturating_add(long));
    loop {
        let begun = since_boot();
        if begun >= ends {
            return Ok(samples);
        }
        if redlock.inspect(resource).await?.unknown.is_empty() {
            samples.add(since_boot().saturating_sub(begun));
        } else {
            sleep(HELD).await; // what is refused at once is not asked again at once
        }
    }
}

/// For how long the lock is held before it is handed over, so that the other one waits for it by then.
const HELD: Duration = Duration::from_millis(10);

/// Who released last, and when that began.
type LastRelease = Mutex<Option<(usize, Duration)>>;

/// From the beginning of a release to the other client's having the lock, over and over.
pub(super) async fn hand_overs(clients: [&Redlock; 2], resource: &str, long: Duration) -> Samples {
    let (last, samples) = (LastRelease::default(), Mutex::new(Samples::default()));
    let work = |number: usize, client: &Redlock| {
        let (lock, last, samples) = (client.lock(resource), &last, &samples);
        async move {
            while let Ok(guard) = lock.acquire().await {
                let now = since_boot();
                let former = last.lock().unwrap_or_else(PoisonError::into_inner).take();
                if let Some((_, released)) = former.filter(|(whose, _)| *whose != number) {
                    samples.lock().unwrap_or_else(PoisonError::into_inner).add(now.saturating_sub(released));
                }
                sleep(HELD).await;
                *last.lock().unwrap_or_else(PoisonError::into_inner) = Some((number, since_boot()));
                let _ = guard.release().await; // the other one gets the lock, or waits for its ttl
            }
        }
    };
    let [one, other] = clients;
    let _ = timeout(long, async { tokio::join!(work(0, one), work(1, other)) }).await;
    samples.into_inner().unwrap_or_else(PoisonError::into_inner)
}
