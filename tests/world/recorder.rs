//! P15, P29: an operator who opens new servers, tries that with servers in use, and raises and lowers the longest ttl in the records.

use std::sync::Arc;
use std::time::Duration;

use redquorum::{Admission, Redlock};
use tokio::time::sleep;

use crate::deeds::Deed;
use crate::rng::Rng;
use crate::scenario::Part;
use crate::time::{now, since};
use crate::world::World;

pub(crate) struct Recorder {
    world: Arc<World>,
    rng: Rng,
}

impl Recorder {
    pub(crate) fn new(world: &Arc<World>) -> Self {
        Self { world: Arc::clone(world), rng: world.scenario.rng(Part::Operator) }
    }

    /// Opens new servers before there is a client, in each second run; in the others that is tried while clients begin.
    pub(crate) async fn begin(&mut self) {
        if self.world.scenario.is_opened_first() {
            self.open().await;
            self.world.begin_clients();
        }
    }

    /// Until faults have ended; then all clients get votes again.
    pub(crate) async fn live(mut self) {
        if self.world.scenario.fresh && !self.world.scenario.is_opened_first() {
            self.open().await;
        }
        while !self.world.is_calm() {
            let ttl_ms = u64::try_from(self.world.scenario.ttl.as_millis()).unwrap_or(1);
            sleep(Duration::from_millis(self.rng.below(ttl_ms * 2))).await;
            let (ttl, max_ttl) = (self.world.scenario.ttl, self.world.scenario.max_ttl);
            let (time, server) = (self.rng.pick(&[ttl, max_ttl, max_ttl]), self.rng.index(self.world.servers.len()));
            let of = self.rng.percent(50).then_some(server);
            match self.rng.below(10) {
                // Where none has a record all may have lost their data: then nobody may say that no lock was held (A9).
                0..3 if self.world.servers.iter().any(|server| server.longest_ttl().is_some()) => self.open().await,
                _ => _ = self.set(time, of).await,
            }
        }
        let begun = now();
        while !self.set(self.world.scenario.max_ttl, None).await {
            if since(begun) > self.world.time_to_get_in() {
                return self.world.violate("records are set when all is well", format!("{:?}", since(begun)));
            }
            sleep(self.world.scenario.ttl / 2).await;
        }
        // A client learns of a new record by the answer to its next request.
        for client in (0..self.world.machines.len()).filter_map(|machine| self.world.client(machine)) {
            drop(client.0.lock("another").wait_at_most(self.world.time_to_get_in()).acquire().await);
        }
    }

    /// A tool that goes by the records and would write this time.
    async fn tool(&mut self, time: Duration, of: Option<usize>) -> Redlock {
        let machine = self.rng.index(self.world.machines.len());
        self.world.machines[machine].awake().await;
        let tool = self.world.builder((machine, 0), of).admission(Admission::AsRecorded);
        let tool = tool.max_ttl(time).quarantine(time).build().expect("settings that fit each other");
        drop(tool.wait_connected(self.world.scenario.instance_timeout * 3).await);
        tool
    }

    async fn open(&mut self) {
        let time = self.world.scenario.max_ttl;
        let tool = self.tool(time, None).await;
        let (are_used, accidents) = (self.world.are_used(), self.world.judge().accidents.len());
        let opened = tool.admission_records().open(time).await;
        self.world.history().stats.did(if opened.is_ok() { Deed::Open } else { Deed::RefuseToOpen });
        self.world.note("opened", [u64::from(opened.is_ok()), 0], || format!("{opened:?}"));
        if opened.is_ok() && self.world.judge().accidents.len() == accidents {
            self.world.check_opened(are_used);
        }
    }

    /// Sets the time of all records or of one; whether it says that it has.
    async fn set(&mut self, time: Duration, of: Option<usize>) -> bool {
        let tool = self.tool(time, of).await;
        let servers: Vec<usize> = (0..self.world.servers.len()).filter(|at| of.is_none_or(|of| of == *at)).collect();
        let begun = self.world.at();
        let mut is_lowered = false;
        for server in &servers {
            let former = self.world.servers[*server].longest_ttl().filter(|former| *former > time);
            is_lowered |= former.is_some();
            self.world.judge().lowered.extend(former.map(|former| (*server, begun, [former, time])));
        }
        let set = tool.admission_records().set().await;
        self.world.note("set", [u64::from(set.is_ok()), of.map_or(9, |of| of as u64)], || format!("{time:?}: {set:?}"));
        if set.is_err() {
            return false;
        }
        self.world.history().stats.did(if is_lowered { Deed::Lower } else { Deed::Raise });
        servers.iter().for_each(|server| self.world.check_record(*server, time));
        true
    }
}

impl World {
    /// Whether any has a record.
    fn are_used(&self) -> bool {
        self.servers.iter().any(|server| server.longest_ttl().is_some())
    }

    /// They were opened, and may have been in use.
    pub(crate) fn check_opened(&self, are_used: bool) {
        if are_used {
            self.violate("servers in use are not opened", format!("{:?}", self.scenario.plan));
        }
    }

    /// An operator is told that this time was set.
    pub(crate) fn check_record(&self, server: usize, time: Duration) {
        // A client that has noticed something since writes a record of its own.
        let befell = self.judge().accidents.iter().any(|accident| accident.server == server);
        let there = self.servers[server].longest_ttl();
        if !befell && there != Some(time) {
            self.violate("a record has the time that was set", format!("{there:?} instead of {time:?}"));
        }
    }
}
