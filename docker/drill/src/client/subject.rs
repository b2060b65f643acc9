//! The libraries under drill behind one face.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rand::RngExt;
use redquorum::{AcquireError, Admission, AdmissionStatus, Guard, Leadership, ReadGuard, Redlock};
use rslock::{Lock, LockError, LockManager};
use tokio::time::{sleep, timeout};

use super::last_first::{LastFirst, Turn};
use super::{Job, LockLibrary, Share};
use crate::Outcome;
use crate::check::READ;
use crate::clock::{Nanos, nanos, now};
use crate::event::DenialReason;

/// What readers and writers share.
const PAGE: &str = "page";

/// Of these there are so many permits.
const DESKS: (&str, u32) = ("desks", 2);

/// For what candidates stand.
const LEADER: &str = "leader";

/// How long each waits for its part of what is shared.
const PATIENCE: Duration = Duration::from_millis(1_500);

/// A client of one library. Clones share connections.
#[derive(Clone)]
pub(crate) enum Subject {
    Ours(Redlock),
    LastFirst(Redlock, LastFirst),
    Rslock(LockManager),
}

/// When the library told of a loss, which a holder that looks now and then notices later.
type LostAt = Arc<OnceLock<Nanos>>;

/// A lock that is held.
pub(crate) enum Held {
    Ours(Box<Guard>, Option<Turn>, LostAt),
    Reads(Box<ReadGuard>),
    Leads(Box<Leadership>),
    Rslock(LockManager, Box<Lock>, Nanos),
}

impl Subject {
    pub(crate) fn start(job: &Job) -> Outcome<Self> {
        let admission = match job.peer {
            LockLibrary::WithAdmission | LockLibrary::WithoutOrder | LockLibrary::LastFirst => Admission::On,
            LockLibrary::WithoutAdmission => Admission::Off,
            LockLibrary::Rslock => {
                let mut manager = LockManager::new(job.instances.clone());
                manager.set_retry(1, Duration::from_millis(10));
                return Ok(Self::Rslock(manager));
            }
        };
        let builder = Redlock::builder().instances(job.instances.clone()).label(&job.name).admission(admission);
        let builder = builder.ttl(job.ttl()).max_ttl(job.ttl());
        let builder = builder.order_between_clients(job.peer != LockLibrary::WithoutOrder);
        let redlock = match job.quorum {
            Some(votes) => builder.quorum(votes).build()?,
            None => builder.build()?,
        };
        redlock.want_locks();
        Ok(match job.peer {
            LockLibrary::LastFirst => Self::LastFirst(redlock, LastFirst::default()),
            _ => Self::Ours(redlock),
        })
    }

    /// Tries once.
    pub(crate) async fn acquire(&self, resource: &str, ttl: Duration) -> Result<Held, (DenialReason, String)> {
        match self {
            Self::Ours(redlock) | Self::LastFirst(redlock, _) => {
                Held::ours(redlock.lock(resource).try_acquire().await, None)
            }
            Self::Rslock(manager) => {
                let asked = now();
                match timeout(Duration::from_secs(3), manager.lock(resource, ttl)).await {
                    Ok(Ok(lock)) => Ok(Held::rslock(manager, lock, asked, ttl)),
                    // It cannot tell "another client holds it" from "too few answered".
                    Ok(Err(error @ LockError::Unavailable)) => Err((DenialReason::Held, error.to_string())),
                    Ok(Err(error)) => Err((DenialReason::Failed, error.to_string())),
                    Err(_) => Err((DenialReason::Failed, "no answer for 3 s".to_owned())),
                }
            }
        }
    }

    /// Waits for a part of what is shared: as what it is known, and the part.
    pub(crate) async fn share(&self, share: Share) -> Result<(String, Held), (DenialReason, String)> {
        let Self::Ours(redlock) = self else { return Err((DenialReason::Failed, "it shares nothing".to_owned())) };
        let page = redlock.rw_lock(PAGE).wait_at_most(PATIENCE);
        let (desks, permits) = DESKS;
        let shared = match share {
            Share::Reader | Share::Subscriber => {
                page.read().await.map(|guard| (format!("{PAGE}{READ}"), Held::Reads(Box::new(guard))))
            }
            Share::Writer => page.write().await.map(|guard| (PAGE.to_owned(), Held::alone(guard, None))),
            Share::Candidate | Share::Leader => {
                let leads = redlock.election(LEADER).wait_at_most(PATIENCE).campaign("candidate").await;
                leads.map(|leads| (LEADER.to_owned(), Held::Leads(Box::new(leads))))
            }
            Share::Permitted | Share::Tenant => {
                redlock.semaphore(desks, permits).wait_at_most(PATIENCE).acquire().await.map(|permit| {
                    // More numbers than there are permits would be more locks, each of which has one holder.
                    let number = permit.index() % permits;
                    (format!("{desks}#{number}"), Held::alone(permit.into_guard(), None))
                })
            }
        };
        shared.map_err(|error| (answer(&error), error.to_string()))
    }

    /// Waits until it is granted.
    pub(crate) async fn wait(&self, resource: &str, ttl: Duration) -> Result<Held, (DenialReason, String)> {
        match self {
            Self::Ours(redlock) => Held::ours(redlock.lock(resource).acquire().await, None),
            Self::LastFirst(redlock, line) => {
                let turn = line.enter().await;
                Held::ours(redlock.lock(resource).acquire().await, Some(turn))
            }
            Self::Rslock(_) => loop {
                match self.acquire(resource, ttl).await {
                    Err((DenialReason::Held, _)) => {}
                    decided => return decided,
                }
                let pause = rand::rng().random_range(5..20);
                sleep(Duration::from_millis(pause)).await;
            },
        }
    }

    /// `votes`, `quarantine` or `away`, for each instance; nothing where the library does not tell.
    pub(crate) fn sees(&self) -> Vec<&'static str> {
        let (Self::Ours(redlock) | Self::LastFirst(redlock, _)) = self else { return Vec::new() };
        let state = |status: &redquorum::InstanceStatus| match status.admission {
            _ if !status.connected => "away",
            AdmissionStatus::Quarantine(_) => "quarantine",
            AdmissionStatus::Admitted | AdmissionStatus::Off => "votes",
            _ => "away",
        };
        redlock.instances().iter().map(state).collect()
    }
}

fn answer(error: &AcquireError) -> DenialReason {
    match error {
        AcquireError::SplitVote { .. } => DenialReason::Held,
        error if error.is_contended() => DenialReason::Held, // also one that has waited as long as it may
        AcquireError::TryAgain(_) if error.kind() == "stale_token" => DenialReason::Held,
        _ => DenialReason::Failed,
    }
}

impl Held {
    fn alone(guard: Guard, turn: Option<Turn>) -> Self {
        let lost_at = LostAt::default();
        guard.on_lost({
            let lost_at = Arc::clone(&lost_at);
            move |_| {
                let _ = lost_at.set(now());
            }
        });
        Self::Ours(Box::new(guard), turn, lost_at)
    }

    /// When it was lost, if the library has told.
    pub(crate) fn lost_at(&self) -> Option<Nanos> {
        let Self::Ours(_, _, lost_at) = self else { return None };
        lost_at.get().copied()
    }

    fn ours(acquired: Result<Guard, AcquireError>, turn: Option<Turn>) -> Result<Self, (DenialReason, String)> {
        match acquired {
            Ok(guard) => Ok(Self::alone(guard, turn)),
            Err(error) => Err((answer(&error), error.to_string())),
        }
    }

    /// It promises `validity_time` milliseconds; from the reply, so no more than the ttl from the request is taken
    /// at its word.
    fn rslock(manager: &LockManager, lock: Lock, asked: Nanos, ttl: Duration) -> Self {
        let promised = Duration::from_millis(u64::try_from(lock.validity_time).unwrap_or(0));
        let until = now().saturating_add(nanos(promised)).min(asked.saturating_add(nanos(ttl)));
        Self::Rslock(manager.clone(), Box::new(lock), until)
    }

    /// Until when the holder may rely on it, by the clock of the logs.
    pub(crate) fn valid_until(&self) -> Nanos {
        let at = now(); // first: a pause between the two makes it earlier
        let remaining = match self {
            Self::Ours(guard, ..) => guard.remaining(),
            Self::Reads(guard) => guard.remaining(),
            Self::Leads(leadership) => leadership.remaining(),
            Self::Rslock(_, _, until) => return *until,
        };
        // When it ended is not known any more. One that was hung past the end must not call now an extension.
        if remaining.is_zero() { 0 } else { at.saturating_add(nanos(remaining)) }
    }

    pub(crate) fn is_valid(&self) -> bool {
        match self {
            Self::Ours(guard, ..) => guard.is_valid(),
            Self::Reads(guard) => guard.is_valid(),
            Self::Leads(leadership) => leadership.is_valid(),
            Self::Rslock(_, _, until) => now() < *until,
        }
    }

    pub(crate) const fn reads(&self) -> bool {
        matches!(self, Self::Reads(_))
    }

    /// Readers have none.
    pub(crate) fn token(&self) -> Option<u64> {
        let token = match self {
            Self::Ours(guard, ..) => guard.fencing_token(),
            Self::Leads(leadership) => leadership.fencing_token(),
            Self::Reads(_) | Self::Rslock(..) => return None,
        };
        u64::try_from(token.as_i64()).ok()
    }

    /// Ends when the library says that the lock is lost; never with one that does not say so.
    pub(crate) async fn lost(&self) {
        match self {
            Self::Ours(guard, ..) => drop(guard.lost().await),
            Self::Reads(guard) => drop(guard.lost().await),
            Self::Leads(leadership) => drop(leadership.lost().await),
            Self::Rslock(..) => std::future::pending().await,
        }
    }

    /// Extends by hand, where the library does not do so by itself.
    pub(crate) async fn extend(&mut self, ttl: Duration) -> Result<(), String> {
        let Self::Rslock(manager, lock, _) = self else { return Ok(()) };
        let asked = now();
        match timeout(Duration::from_secs(3), manager.extend(lock, ttl)).await {
            Ok(Ok(longer)) => {
                *self = Self::rslock(&manager.clone(), longer, asked, ttl);
                Ok(())
            }
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("no answer for 3 s".to_owned()),
        }
    }

    pub(crate) async fn release(self) {
        match self {
            // What is not confirmed goes on in the background.
            Self::Ours(guard, turn, _) => drop((guard.release().await, turn)),
            Self::Reads(guard) => drop(guard.release().await),
            Self::Leads(leadership) => drop(leadership.resign().await),
            Self::Rslock(manager, lock, _) => drop(timeout(Duration::from_secs(3), manager.unlock(&lock)).await),
        }
    }
}
