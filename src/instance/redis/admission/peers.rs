//! What the connections of one client find out together: whose clock it was that jumped (P17).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::{sleep, timeout};

use super::shared::Guarded;
use crate::clock::CorrectedClock;
use crate::instance::redis::connection::{Link, heartbeat};
use crate::protocol::{ClockWatch, WhoseClock, whose_clock};

/// How long connections that broke with the own standstill have to come back, at least.
const LOOK_LEAST: Duration = Duration::from_millis(500);

/// The pause between two looks at instances too few of which have answered.
const PAUSE: Duration = Duration::from_millis(20);

/// The connections of one client, and the clock that it goes by.
#[derive(Debug)]
pub(crate) struct Peers {
    /// What the client's rounds and leases go by.
    clock: Arc<CorrectedClock>,
    quorum: usize,
    look: Duration,
    /// How long everybody who is connected takes to notice a step.
    notice: Duration,
    links: Mutex<Vec<(usize, Weak<Link>)>>,
}

impl Peers {
    pub(crate) fn new(
        clock: Arc<CorrectedClock>,
        quorum: usize,
        instance_timeout: Duration,
        max_ttl: Duration,
    ) -> Self {
        let notice = heartbeat(max_ttl).saturating_add(instance_timeout);
        let look = instance_timeout.max(LOOK_LEAST);
        Self { clock, quorum, look, notice, links: Mutex::default() }
    }

    pub(crate) fn enter(&self, index: usize, link: &Arc<Link>) {
        let mut links = self.links();
        links.retain(|(other, _)| *other != index);
        links.push((index, Arc::downgrade(link)));
    }

    pub(crate) fn leave(&self, index: usize) {
        self.links().retain(|(other, _)| *other != index);
    }

    /// How far the own clock has been put forward, in all.
    pub(crate) fn own_clock_ahead(&self) -> Duration {
        self.clock.ahead()
    }

    /// Whether the instance behind `link` seems to have jumped because the own clock stood still. If so
    /// the own leases have aged by that, and nothing more needs to be done about any instance.
    ///
    /// Before anything is written: a client that takes itself for the one that went on would put every
    /// instance into quarantine, and end the leases of everybody else.
    pub(crate) async fn stood_still(&self, link: &Link) -> bool {
        // One instance alone cannot tell. An error means that too few were there in time.
        self.quorum > 1 && timeout(self.look, self.look_at_all(link)).await.unwrap_or(false)
    }

    async fn look_at_all(&self, link: &Link) -> bool {
        loop {
            let peers: Vec<Arc<Link>> = self.links().iter().filter_map(|(_, link)| link.upgrade()).collect();
            let beat = async |index: usize, link: Arc<Link>| link.beat().await.map(|_| index);
            let mut beats: FuturesUnordered<_> =
                peers.iter().enumerate().map(|(index, link)| beat(index, Arc::clone(link))).collect();
            let mut answered: Vec<&Arc<Link>> = Vec::new();
            while let Some(beat) = beats.next().await {
                answered.extend(beat.and_then(|index| peers.get(index)));
                let watches = watches(&answered);
                if whose_clock(watches.iter(), self.quorum) == WhoseClock::Theirs {
                    return false;
                }
            }
            match self.settle(link, &peers, &answered) {
                WhoseClock::Ours(_) => return true,
                WhoseClock::Theirs => return false,
                WhoseClock::Unknown => sleep(PAUSE).await,
            }
        }
    }

    /// Decides, and ages the own leases once, whichever connection finds out first.
    fn settle(&self, link: &Link, peers: &[Arc<Link>], answered: &[&Arc<Link>]) -> WhoseClock {
        let _one_at_a_time = self.links();
        if !link.guarded().is_some_and(Guarded::has_jumped) {
            return WhoseClock::Ours(Duration::ZERO);
        }
        let watches = watches(answered);
        let verdict = whose_clock(watches.iter(), self.quorum);
        if let WhoseClock::Ours(by) = verdict {
            tracing::warn!(?by, "the clock of this machine stood still: its locks have aged by that");
            self.clock.put_forward(by);
            let guarded = peers.iter().filter_map(|link| link.guarded());
            guarded.for_each(|guarded| guarded.own_clock_stood_still(by, self.notice));
        }
        verdict
    }

    fn links(&self) -> MutexGuard<'_, Vec<(usize, Weak<Link>)>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn watches(links: &[&Arc<Link>]) -> Vec<ClockWatch> {
    links.iter().filter_map(|link| Some(*link.guarded()?.snapshot().watch())).collect()
}
