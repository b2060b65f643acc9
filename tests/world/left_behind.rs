//! A client that was left behind when others were given longer ttls: it makes instances wait for less than their locks may last. It
//! gets no votes, and writes records all the same (P29).

use std::sync::Arc;
use std::time::Duration;

use redquorum::testing::simulation::{MachineClock, builder};
use redquorum::{AdmissionStatus, Redlock};
use tokio::time::sleep;

use crate::net::Link;
use crate::scenario::Part;
use crate::time::now;
use crate::world::World;

const POLL: Duration = Duration::from_millis(5);

/// Where its links draw by chance; no client of a scenario has this number.
const NUMBER: usize = 50;

impl World {
    /// It wants locks once it has seen what others ask for, until faults end.
    pub(crate) fn begin_left_behind(self: &Arc<Self>) {
        if !self.scenario.has_left_behind {
            return;
        }
        let world = Arc::downgrade(self);
        let redlock = self.left_behind();
        tokio::spawn(async move {
            while world.upgrade().is_some_and(|world| !world.is_calm()) {
                if redlock.instances().iter().any(|known| known.admission == AdmissionStatus::Refused) {
                    redlock.want_locks();
                }
                sleep(POLL).await;
            }
        });
    }

    fn left_behind(&self) -> Redlock {
        let scenario = &self.scenario;
        let clock = Arc::new(MachineClock::driven_by(now, scenario.clocks[0].1, 0));
        let link =
            |server| Link::new(scenario.rng(Part::Link(NUMBER, server)), scenario.delays, false, Arc::clone(&clock));
        let links: Vec<Link> = (0..self.servers.len()).map(link).collect();
        let (servers, main) = (self.servers.clone(), self.main());
        let dial = move |index: usize| {
            let (link, server, main) = (links[index].clone(), servers[index].clone(), main.clone());
            async move {
                let (ours, theirs) = link.connect(|| server.is_up()).await?;
                main.spawn(async move { server.serve(theirs).await });
                Ok(ours)
            }
        };
        let (ttl, instance_timeout) = (scenario.max_ttl / 4, scenario.instance_timeout);
        let built = builder(self.servers.len(), clock, dial).ttl(ttl).max_ttl(ttl).instance_timeout(instance_timeout);
        let built = built.quorum(scenario.quorum).order_between_clients(false).build();
        built.expect("settings that fit each other")
    }
}
