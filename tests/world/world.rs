//! One simulated world: servers, clients on machines of their own, a network, and users.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redquorum::testing::simulation::{Data, MachineClock, Server, builder};
use redquorum::{LeaseView, Redlock};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::faults::FaultKind;
use crate::history::{History, Hold};
use crate::net::{Link, now};
use crate::scenario::{Part, Scenario};

pub(crate) struct World {
    pub(crate) scenario: Scenario,
    pub(crate) began: Instant,
    pub(crate) servers: Vec<Server>,
    pub(crate) machines: Vec<Machine>,
    /// By client, then by server.
    pub(crate) links: Vec<Vec<Link>>,
    history: Mutex<History>,
    /// Told of each lock that was given. It wakes those who wait in their order, as a `watch` does not.
    given: Notify,
}

/// A machine with a client on it.
pub(crate) struct Machine {
    pub(crate) clock: Arc<MachineClock>,
    state: Mutex<MachineState>,
}

struct MachineState {
    client: Option<Redlock>,
    /// How many clients it has had.
    life: u64,
    suspended_until: Instant,
    /// When it was suspended last.
    disturbed_at: Instant,
}

impl World {
    pub(crate) fn new(scenario: Scenario, told: bool) -> Arc<Self> {
        let began = now();
        let clock = |at: usize| {
            let (rate_ppm, wall_us) = scenario.clocks[at];
            Arc::new(MachineClock::new(began, wall_us, rate_ppm))
        };
        let server = |index: usize| Server::new(scenario.rng(Part::Server(index)).next(), clock(index));
        let servers: Vec<Server> = (0..scenario.servers).map(server).collect();
        if scenario.fresh {
            servers.iter().for_each(|server| server.start(Data::Nothing));
        }
        let link = |client, server| Link::new(scenario.rng(Part::Link(client, server)), scenario.delays, began);
        let links =
            (0..scenario.clients).map(|client| (0..scenario.servers).map(|server| link(client, server)).collect());
        let machine = |client: usize| {
            let state = MachineState { client: None, life: 0, suspended_until: began, disturbed_at: began };
            Machine { clock: clock(scenario.servers + client), state: Mutex::new(state) }
        };
        let machines = (0..scenario.clients).map(machine).collect();
        let history = Mutex::new(History { log: told.then(Vec::new), ..History::default() });
        let given = Notify::new();
        let world = Self { links: links.collect(), machines, servers, began, history, given, scenario };
        let world = Arc::new(world);
        (0..world.machines.len()).for_each(|client| drop(world.begin_client(client)));
        world
    }

    pub(crate) fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True time since the beginning.
    pub(crate) fn at(&self) -> Duration {
        now().saturating_duration_since(self.began)
    }

    pub(crate) fn note(&self, kind: &'static str, numbers: [u64; 2], what: impl FnOnce() -> String) {
        self.history().note(self.at(), kind, numbers, what);
    }

    pub(crate) fn violate(&self, invariant: &'static str, what: String) {
        self.history().violate(self.at(), invariant, what);
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.history().calm_since.is_some()
    }
}

/// Clients.
impl World {
    /// A client in place of the machine's present one; gives that.
    pub(crate) fn begin_client(self: &Arc<Self>, client: usize) -> Option<Redlock> {
        let links = self.links[client].clone();
        let servers = self.servers.clone();
        let dial = move |index: usize| {
            let (link, server) = (links[index].clone(), servers[index].clone());
            async move {
                let (ours, theirs) = link.connect(|| server.is_up()).await?;
                tokio::spawn(async move { server.serve(theirs).await });
                Ok(ours)
            }
        };
        let Scenario { ttl, max_ttl, instance_timeout, .. } = self.scenario;
        let built = builder(self.servers.len(), Arc::clone(&self.machines[client].clock), dial)
            .ttl(ttl)
            .max_ttl(max_ttl)
            .instance_timeout(instance_timeout)
            .retry_delay(ttl / 40, ttl / 5)
            .label(format!("c{client}"))
            .build();
        self.history().stats.clients += 1;
        match built {
            Ok(built) => {
                let mut state = self.machines[client].state();
                state.life += 1;
                state.client.replace(built)
            }
            Err(error) => {
                self.violate("a client can be built", error.to_string());
                None
            }
        }
    }

    /// The present client of a machine, and which it is.
    pub(crate) fn client(&self, client: usize) -> Option<(Redlock, u64)> {
        let state = self.machines[client].state();
        state.client.clone().map(|client| (client, state.life))
    }

    pub(crate) fn end_client(&self, client: usize) -> Option<Redlock> {
        self.machines[client].state().client.take()
    }
}

impl Machine {
    fn state(&self) -> MutexGuard<'_, MachineState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nobody on it does anything for so long.
    pub(crate) fn suspend(&self, time: Duration) {
        let mut state = self.state();
        state.suspended_until = state.suspended_until.max(now() + time);
        state.disturbed_at = state.suspended_until;
    }

    /// Waits until it is not suspended.
    pub(crate) async fn awake(&self) {
        loop {
            let until = self.state().suspended_until;
            if until <= now() {
                return;
            }
            tokio::time::sleep_until(until).await;
        }
    }

    /// Whether it was suspended after this instant.
    pub(crate) fn was_disturbed_since(&self, since: Instant) -> bool {
        self.state().disturbed_at > since
    }
}

/// Locks that are given and let go.
impl World {
    /// Somebody was given a lock: gives its number. All that must be true then is checked.
    pub(crate) fn given(
        &self,
        (client, life): (usize, u64),
        resources: u8,
        has_holder: bool,
        lease: &LeaseView,
    ) -> usize {
        let mut history = self.history();
        let number = history.holds.len();
        history.stats.given += 1;
        let what = || format!("lock {number} on {resources:03b} to client {client}, token {}", lease.fencing_token());
        history.note(self.at(), "given", [client as u64, lease.fencing_token().get()], what);
        let hold = Hold {
            client,
            life,
            resources,
            has_holder,
            token: lease.fencing_token(),
            lease: Some(lease.clone()),
            is_succeeded: false,
            was_over: false,
        };
        history.holds.push(hold);
        drop(history);
        self.check_given(number);
        self.given.notify_waiters();
        number
    }

    /// Waits until this lock is given; for how long it is valid then.
    pub(crate) async fn lock_given(&self, number: usize) -> Duration {
        loop {
            let given = self.given.notified();
            if self.history().holds.len() > number {
                break;
            }
            given.await;
        }
        let history = self.history();
        let lease = history.holds.get(number).and_then(|hold| hold.lease.as_ref());
        lease.map_or(Duration::ZERO, LeaseView::remaining)
    }

    /// Its user relies on it no more.
    pub(crate) fn let_go(&self, number: usize) {
        let mut history = self.history();
        history.holds[number].lease = None;
        history.note(self.at(), "let go", [number as u64, 0], || format!("lock {number}"));
    }

    /// Another user has asked in the name of the shared holder, and may have got it: every earlier lease
    /// of the holder elsewhere may be over without knowing (P23).
    pub(crate) fn may_have_succeeded(&self, by: (usize, u64), resources: u8) {
        for hold in &mut self.history().holds {
            if hold.has_holder && hold.resources & resources != 0 && (hold.client, hold.life) != by {
                hold.is_succeeded = true;
            }
        }
    }
}

/// The end.
impl World {
    /// Everything works from now on.
    pub(crate) fn calm_down(&self) {
        for server in &self.servers {
            if !server.is_up() {
                server.start(Data::Present);
            }
            server.go_on();
        }
        self.links.iter().flatten().for_each(Link::heal);
        self.machines.iter().for_each(|machine| machine.clock.go_on());
        let at = self.at();
        let mut history = self.history();
        history.calm_since = Some(at);
        history.note(at, "calm", [0; 2], || "no more faults".to_owned());
    }

    /// How far servers' clocks were set back, in all.
    pub(crate) fn set_back(&self) -> Duration {
        let steps = self.history().marks.iter().filter(|mark| mark.what == FaultKind::StepBack).count();
        crate::chaos::LONGEST_STEP.saturating_mul(u32::try_from(steps).unwrap_or(u32::MAX))
    }
}
