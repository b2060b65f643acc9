//! The instances of a stage, with their links, and the clients that use them.

use std::time::Duration;

use redquorum_testkit::{Fleet, Program, Proxy, Server};
use tokio::runtime::{Builder, Runtime};
use tokio::time::sleep;

use crate::options::Options;
use crate::subject::{Kind, Subject};
use crate::workload::{Stage, Workload};
use crate::{Outcome, TTL};

/// A service goes on after its last release; one that ended at once would leave keys on the instances that had not
/// answered it yet. So long the thread stays.
const ON_THEIR_WAY: Duration = Duration::from_millis(100);

/// Servers that are up, and clients that were connected before anything was broken.
pub(crate) struct Running {
    stage: Stage,
    fleet: Fleet,
    /// In front of the last instances.
    proxies: Vec<Proxy>,
    threads: Runtime,
    subjects: Vec<Subject>,
}

impl Running {
    pub(crate) fn start(program: &Program, stage: Stage, options: &Options) -> Outcome<Self> {
        let fleet = Fleet::start(program, stage.instances)?;
        let proxies: Vec<Proxy> =
            fleet[stage.instances - stage.links.of..].iter().map(Proxy::start).collect::<Result<_, _>>()?;
        let threads = Builder::new_multi_thread().enable_all().build()?;
        let mut running = Self { stage, fleet, proxies, threads, subjects: Vec::new() };
        for kind in Kind::chosen(options) {
            let subject = running.threads.block_on(Subject::connect(kind, running.addresses(), TTL))?;
            running.subjects.push(subject);
        }
        let each_way = Duration::from_millis(stage.links.round_trip_ms) / 2;
        for proxy in &running.proxies {
            proxy.delay(each_way, each_way)?;
        }
        stage.bring_about(&running.fleet)?;
        Ok(running)
    }

    pub(crate) fn addresses(&self) -> Vec<String> {
        let near = self.fleet.iter().take(self.stage.instances - self.proxies.len()).map(Server::address);
        near.chain(self.proxies.iter().map(Proxy::address)).collect()
    }

    /// The servers that answer.
    pub(crate) fn reachable(&self) -> &[Server] {
        &self.fleet[..self.stage.reachable()]
    }

    /// Runs what a subject does in a workload, on the runtime that the workload wants. On one thread it is a new client:
    /// nobody would poll an older one meanwhile.
    pub(crate) fn with<T>(
        &self,
        workload: &Workload,
        kind: Kind,
        run: impl AsyncFnOnce(Subject) -> Outcome<T>,
    ) -> Outcome<T> {
        if workload.one_thread {
            let thread = Builder::new_current_thread().enable_all().build()?;
            return thread.block_on(async {
                let done = run(Subject::connect(kind, self.addresses(), TTL).await?).await;
                sleep(ON_THEIR_WAY).await;
                done
            });
        }
        let connected = self.subjects.iter().find(|subject| subject.kind() == kind);
        let subject = connected.ok_or("it is not connected")?.clone();
        self.threads.block_on(run(subject))
    }
}
