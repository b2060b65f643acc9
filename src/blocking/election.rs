//! Elections in which threads campaign.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::client::Running;
use super::guard::Guard;
use super::lock::seen_to_its_end;
use crate::config::Renewal;
use crate::election::{Election as AsyncElection, Leader, Observer as AsyncObserver};
use crate::error::{AcquireError, BadRequest, LeaderError, ReleaseError};
use crate::guard::Released;
use crate::lease::LeaseView;
use crate::lock::lease_settings;

/// As [`redquorum::Election`](crate::Election): one of several candidates leads.
#[derive(Clone)]
#[must_use = "an election does nothing until somebody campaigns or asks"]
pub struct Election {
    election: AsyncElection,
    running: Arc<Running>,
}

/// As [`redquorum::Leadership`](crate::Leadership): the lead. Dropped, it resigns in the background. It has all that a [`Guard`] has.
#[must_use = "the leader resigns when it is dropped"]
pub struct Leadership {
    guard: Guard,
    info: Arc<str>,
}

/// As [`redquorum::Observer`](crate::Observer): sees one leader after the other, as an iterator.
pub struct Observer {
    observer: AsyncObserver,
    running: Arc<Running>,
}

impl Election {
    pub(super) const fn new(election: AsyncElection, running: Arc<Running>) -> Self {
        Self { election, running }
    }

    lease_settings!(election);

    /// Waits until this candidate leads: see [`Election::campaign`](crate::Election::campaign).
    ///
    /// ```
    /// # use redquorum::testing::Cluster;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let cluster = Cluster::new(3);
    /// # let redlock = redquorum::blocking::Redlock::connect(cluster.builder())?;
    /// let election = redlock.election("scheduler");
    /// let leadership = election.campaign("10.0.0.7:8080")?;
    /// assert_eq!(election.leader()?.map(|leader| leader.token), Some(leadership.fencing_token()));
    /// leadership.resign()?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn campaign(&self, info: &str) -> Result<Leadership, AcquireError> {
        let (guard, info) = self.running.wait(self.election.campaign(info))?.into_parts();
        Ok(Leadership { guard: Guard::new(guard, Arc::clone(&self.running)), info })
    }

    /// Leads again and again, with `work` on this thread, until that ends while it leads: see [`Election::lead`](crate::Election::lead).
    ///
    /// The work is not interrupted if the lead is lost: it is given a view of its lease, which says so, and should end then. What it returned
    /// is dropped, and it begins again with the next lead.
    ///
    /// # Errors
    /// As there.
    pub fn lead<T>(&self, info: &str, mut work: impl FnMut(LeaseView) -> T) -> Result<T, AcquireError> {
        let work = async |lease: LeaseView| seen_to_its_end(work(lease.clone()), lease.is_valid(), lease.lost()).await;
        self.running.wait(self.election.lead(info, work))
    }

    /// Who leads now: see [`Election::leader`](crate::Election::leader).
    ///
    /// # Errors
    /// As there.
    pub fn leader(&self) -> Result<Option<Leader>, LeaderError> {
        self.running.wait(self.election.leader())
    }

    /// Sees the present leader, and every later one: see [`Election::observe`](crate::Election::observe).
    ///
    /// # Errors
    /// As there.
    pub fn observe(&self) -> Result<Observer, BadRequest> {
        Ok(Observer { observer: self.election.observe()?, running: Arc::clone(&self.running) })
    }
}

impl Observer {
    /// Waits for the next leader, for `limit` at most; `None` if there was none.
    #[must_use]
    pub fn next_within(&mut self, limit: Duration) -> Option<Leader> {
        self.running.wait(async { tokio::time::timeout(limit, self.observer.next()).await.ok() })
    }
}

/// Waits for one leader after the other, without end: see [`Observer::next`](crate::Observer::next).
impl Iterator for Observer {
    type Item = Leader;

    fn next(&mut self) -> Option<Leader> {
        Some(self.running.wait(self.observer.next()))
    }
}

impl Leadership {
    /// What others read of this leader.
    #[must_use]
    pub fn info(&self) -> &str {
        &self.info
    }

    /// Gives the lead up, and waits until a quorum of instances has answered: see [`Leadership::resign`](crate::Leadership::resign).
    ///
    /// # Errors
    /// As there.
    pub fn resign(self) -> Result<Released, ReleaseError> {
        self.guard.release()
    }
}

/// What it shows of its lease, and how to extend it.
impl Deref for Leadership {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("blocking::Election").field(&self.election).finish()
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("blocking::Leadership").field("info", &self.info).field("guard", &self.guard).finish()
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("blocking::Observer").field(&self.observer).finish()
    }
}
