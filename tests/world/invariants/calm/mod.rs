//! When all is well there are no excuses: each answer is known before it comes.
//!
//! The clients are connected to all servers, and what these have forgotten they have sat out.

mod alone;
mod crowd;
mod ended;
mod holder;
mod several;
mod taken;
mod together;
mod tries;
mod turns;

use std::time::Duration;

use redquorum::{AcquireError, Guard, Holder, Redlock};
use tokio::time::{sleep, timeout};

use crate::faults::FaultKind;
use crate::schedule::{Boxed, Schedule};
use crate::world::World;

/// A try that anybody may poll, or drop.
fn asks(client: &Redlock, name: &'static str, holder: Option<&str>) -> Boxed<Result<Guard, AcquireError>> {
    let (client, holder) = (client.clone(), holder.map(Holder::from));
    Box::pin(async move {
        let lock = client.lock(name);
        if let Some(holder) = holder { lock.holder(holder) } else { lock }.try_acquire().await
    })
}

/// A user that gives up in the middle of a round trip, at one moment or another.
const MOMENTS: [Schedule; 3] = [
    Schedule::Dropped(10, Duration::ZERO),
    Schedule::Dropped(10, Duration::from_millis(1)),
    Schedule::Dropped(10, Duration::from_millis(2)),
];

/// Longer than bytes are on their way that were sent before all was well.
const LATEST: Duration = Duration::from_millis(500);

/// Longer than anything here takes that is not about a ttl.
const LONG: Duration = Duration::from_secs(10);

impl World {
    /// One scene after the other, each with locks of its own, in every other run.
    pub(crate) async fn check_calm(&self, clients: &[(usize, Redlock)]) {
        if !self.scenario.seed.is_multiple_of(2) {
            return; // the scenes are the same each time, and cost more than half a run
        }
        sleep(LATEST + self.scenario.max_ttl * 2 + self.set_back()).await;
        let [(_, one), (_, other), ..] = clients else { return };
        let scenes = async {
            self.notice_steps_of_clocks(&[one, other]).await;
            self.check_kept(clients).await;
            self.check_several(one, other).await;
            self.check_holder(one, other).await;
            self.check_crowd(one).await;
            self.check_turns(one, other).await;
            self.check_uncollected(one, other).await;
            self.check_left_to_run_out(one, other).await;
            self.check_taken_away(one, other).await;
            self.check_tries(clients).await;
        };
        if timeout(LONG + self.scenario.ttl * 20, scenes).await.is_err() {
            self.violate("without faults no wait is long", "a scene does not end".to_owned());
        }
    }

    /// A client learns that its clock stood still, or an instance's stepped, from answers that tell the time; then it counts no
    /// votes until that is over.
    async fn notice_steps_of_clocks(&self, clients: &[&Redlock]) {
        let is_step = |what| matches!(what, FaultKind::StandStill | FaultKind::StepForward | FaultKind::StepBack);
        if !self.history().marks.iter().any(|mark| is_step(mark.what)) {
            return;
        }
        for client in clients {
            drop(self.must_give("the first lock", client.lock("first").wait_at_most(LONG).acquire().await));
        }
        sleep(LATEST + self.scenario.max_ttl * 2).await;
    }

    /// The lock of a user that must get one.
    fn must_give(&self, what: &'static str, result: Result<Guard, AcquireError>) -> Option<Guard> {
        result.inspect_err(|error| self.violate("a free lock is given", format!("{what}: {error}"))).ok()
    }

    /// A user that must be refused.
    fn must_refuse(&self, what: &'static str, result: Result<Guard, AcquireError>) {
        if let Ok(guard) = result {
            self.violate("a lock that is held is refused", format!("{what}: {guard:?}"));
        }
    }
}
