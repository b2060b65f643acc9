//! Elections in which threads campaign.

use std::time::Duration;

use super::lock::seen_to_its_end;
use super::{Blocking, Guard};
use crate::config::Renewal;
use crate::election::Leader;
use crate::error::{AcquireError, BadRequest, LeaderError, ReleaseError};
use crate::guard::Released;
use crate::lease::LeaseView;
use crate::lock::lease_settings;

/// As [`redquorum::Election`](crate::Election): one of several candidates leads.
pub type Election = Blocking<crate::Election>;

/// As [`redquorum::Leadership`](crate::Leadership): the lead. Dropped, it resigns in the background. It has all that a [`Guard`] has.
pub type Leadership = crate::Leadership<Guard>;

/// As [`redquorum::Observer`](crate::Observer): sees one leader after the other, as an iterator.
pub type Observer = Blocking<crate::Observer>;

impl Election {
    lease_settings!(inner);

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
    pub fn campaign(&self, info: &str) -> Result<Leadership, AcquireError> {
        let crate::Leadership { guard, info } = self.wait(self.inner.campaign(info))?;
        Ok(Leadership { guard: self.with(guard), info })
    }

    /// Leads again and again, with `work` on this thread, until that ends while it leads: see [`Election::lead`](crate::Election::lead).
    ///
    /// The work is not interrupted if the lead is lost: it is given a view of its lease, which says so, and should end then. What it returned
    /// is dropped, and it begins again with the next lead.
    pub fn lead<T>(&self, info: &str, mut work: impl FnMut(LeaseView) -> T) -> Result<T, AcquireError> {
        let work = async |lease: LeaseView| seen_to_its_end(work(lease.clone()), lease.is_valid(), lease.lost()).await;
        self.wait(self.inner.lead(info, work))
    }

    /// Who leads now: see [`Election::leader`](crate::Election::leader).
    pub fn leader(&self) -> Result<Option<Leader>, LeaderError> {
        self.wait(self.inner.leader())
    }

    /// Sees the present leader, and every later one: see [`Election::observe`](crate::Election::observe).
    pub fn observe(&self) -> Result<Observer, BadRequest> {
        Ok(self.with(self.inner.observe()?))
    }
}

impl Observer {
    /// Waits for the next leader, for `limit` at most; `None` if there was none.
    #[must_use]
    pub fn next_within(&mut self, limit: Duration) -> Option<Leader> {
        self.running.wait(async { tokio::time::timeout(limit, self.inner.next()).await.ok() })
    }
}

/// Waits for one leader after the other, without end: see [`Observer::next`](crate::Observer::next).
impl Iterator for Observer {
    type Item = Leader;

    fn next(&mut self) -> Option<Leader> {
        Some(self.running.wait(self.inner.next()))
    }
}

impl Leadership {
    /// Gives the lead up, and waits until a quorum of instances has answered: see [`Leadership::resign`](crate::Leadership::resign).
    pub fn resign(self) -> Result<Released, ReleaseError> {
        self.guard.release()
    }
}
