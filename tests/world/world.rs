//! One simulated world: servers, clients on machines of their own, a network, and users.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use redquorum::testing::simulation::{Data, MachineClock, Server, builder};
use redquorum::{Admission, Builder, Redlock};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::history::History;
use crate::judge::Judge;
use crate::lua;
use crate::net::Link;
use crate::operator::Operator;
use crate::recorder::Recorder;
use crate::scenario::{Part, Scenario};
use crate::time::{now, sleep_until};
use crate::users::User;

pub(crate) struct World {
    pub(crate) scenario: Scenario,
    /// The runtime of nearly everything.
    main: Handle,
    users: Mutex<Vec<JoinHandle<()>>>,
    pub(crate) apart: ApartState,
    is_over: AtomicBool,
    pub(crate) servers: Vec<Server>,
    pub(crate) machines: Vec<Machine>,
    /// By client, then by server.
    pub(crate) links: Vec<Vec<Link>>,
    history: Mutex<History>,
    judge: Mutex<Judge>,
    /// Told of each lock that was given. It wakes those who wait in their order, as a `watch` does not.
    pub(crate) given: Notify,
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
    suspended_until: Duration,
    /// When it was suspended last.
    disturbed_at: Duration,
}

impl World {
    pub(crate) fn new(scenario: Scenario, told: bool) -> Arc<Self> {
        let clock = |at: usize| {
            let (rate_ppm, wall_us) = scenario.clocks[at];
            let grain_us = if at < scenario.servers { 1 } else { scenario.grain_us };
            Arc::new(MachineClock::driven_by(now, wall_us, rate_ppm).coarse(grain_us))
        };
        let server = |index: usize| Server::new(scenario.rng(Part::Server(index)).next(), clock(index));
        let servers: Vec<Server> = (0..scenario.servers).map(server).collect();
        if !scenario.fresh {
            servers.iter().for_each(|server| server.admit(scenario.max_ttl, Duration::ZERO));
        }
        if !scenario.pushes {
            servers.iter().for_each(Server::deny_tracking);
        }
        servers.iter().for_each(|server| server.run_scripts_by(lua::run_with_all_rights));
        servers.iter().for_each(Server::watch);
        let machine = |client: usize| {
            let state =
                MachineState { client: None, life: 0, suspended_until: Duration::ZERO, disturbed_at: Duration::ZERO };
            Machine { clock: clock(scenario.servers + client), state: Mutex::new(state) }
        };
        let machines: Vec<Machine> = (0..scenario.clients).map(machine).collect();
        let link = |client: usize, server| {
            let (rng, clock) = (scenario.rng(Part::Link(client, server)), Arc::clone(&machines[client].clock));
            Link::new(rng, scenario.delays, scenario.is_read, clock)
        };
        let links =
            (0..scenario.clients).map(|client| (0..scenario.servers).map(|server| link(client, server)).collect());
        let history = Mutex::new(History { log: told.then(Vec::new), ..History::default() });
        let given = Notify::new();
        let world = Self {
            main: Handle::current(),
            users: Mutex::default(),
            apart: ApartState::default(),
            is_over: AtomicBool::new(false),
            links: links.collect(),
            machines,
            servers,
            history,
            judge: Mutex::default(),
            given,
            scenario,
        };
        let world = Arc::new(world);
        if !world.scenario.is_opened_first() {
            world.begin_clients();
        }
        world.begin_left_behind();
        world
    }

    pub(crate) fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn judge(&self) -> MutexGuard<'_, Judge> {
        self.judge.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True time since the beginning.
    pub(crate) fn at(&self) -> Duration {
        now()
    }

    pub(crate) fn note(&self, kind: &'static str, numbers: [u64; 2], what: impl FnOnce() -> String) {
        self.history().note(self.at(), kind, numbers, what);
    }

    pub(crate) fn violate(&self, invariant: &'static str, what: String) {
        self.history().violate(self.at(), invariant, what);
    }

    pub(crate) fn main(&self) -> Handle {
        self.main.clone()
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.history().calm_since.is_some()
    }
}

/// Clients.
impl World {
    /// Those in this runtime.
    pub(crate) fn begin_clients(self: &Arc<Self>) {
        let here = (0..self.machines.len()).filter(|client| self.scenario.apart != Some(*client));
        here.for_each(|client| drop(self.begin_client(client)));
    }

    /// A client in place of the machine's present one; gives that.
    pub(crate) fn begin_client(self: &Arc<Self>, client: usize) -> Option<Redlock> {
        let life = self.machines[client].state().life + 1;
        let asked = self.scenario.longest_of(client);
        let built = self.builder((client, life), None).max_ttl(asked).build();
        self.history().stats.clients += 1;
        let mut state = self.machines[client].state();
        state.life += 1;
        state.client.replace(built.expect("settings that fit each other"))
    }

    /// A builder for a client on a machine, of all servers or of one.
    pub(crate) fn builder(self: &Arc<Self>, (client, life): (usize, u64), of: Option<usize>) -> Builder {
        let links = self.links[client].clone();
        let (servers, main) = (self.servers.clone(), self.main.clone());
        let world = Arc::downgrade(self);
        let dial = move |index: usize| {
            let index = of.unwrap_or(index);
            let (link, server, main) = (links[index].clone(), servers[index].clone(), main.clone());
            let world = Weak::clone(&world);
            async move {
                let has_crashed =
                    || world.upgrade().is_some_and(|world| world.history().crashed.contains(&(client, life)));
                let (ours, theirs) = link.connect(|| server.is_up() && !has_crashed()).await?;
                let named =
                    world.upgrade().map(|world| world.judge().connect((client, life), index, ours.connection()));
                main.spawn(async move { server.serve_as(theirs, named.unwrap_or_default()).await });
                Ok(ours)
            }
        };
        let Scenario { ttl, max_ttl, instance_timeout, quorum, admission, in_order, .. } = self.scenario;
        let instances = if of.is_some() { 1 } else { self.servers.len() };
        builder(instances, Arc::clone(&self.machines[client].clock), dial)
            .ttl(ttl)
            .quarantine(max_ttl)
            .instance_timeout(instance_timeout)
            .retry_delay(ttl / 40, ttl / 5)
            .order_between_clients(in_order.is_some_and(|each| client.is_multiple_of(each)))
            .quorum(if of.is_some() { 1 } else { quorum })
            .admission(if admission { Admission::On } else { Admission::Off })
            .label(format!("c{client}"))
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
            sleep_until(until).await;
        }
    }

    /// Whether it was suspended after this instant.
    pub(crate) fn was_disturbed_since(&self, since: Duration) -> bool {
        self.state().disturbed_at > since
    }
}

/// Users.
impl World {
    /// Those on the machine of a client, in the runtime that is entered.
    pub(crate) fn begin_users(self: &Arc<Self>, client: usize) {
        for index in (0..self.scenario.users).filter(|index| index % self.machines.len() == client) {
            self.begin_user(tokio::spawn(User::new(self, index).live()));
        }
    }

    /// A user that takes locks away from them, in some runs.
    pub(crate) fn begin_operator(self: &Arc<Self>, recorder: Option<Recorder>) {
        if self.scenario.has_operator {
            self.begin_user(tokio::spawn(Operator::new(self).live()));
        }
        if let Some(recorder) = recorder {
            self.begin_user(tokio::spawn(recorder.live()));
        }
    }

    /// One who changes the records, in some runs, and what comes before all else.
    pub(crate) async fn begin_recorder(self: &Arc<Self>) -> Option<Recorder> {
        let mut recorder = self.scenario.is_operated.then(|| Recorder::new(self))?;
        recorder.begin().await;
        Some(recorder)
    }

    /// One more.
    pub(crate) fn begin_user(&self, user: JoinHandle<()>) {
        self.lock_users().push(user);
    }

    /// Waits until all of them are done.
    pub(crate) async fn users_end(&self) {
        while let Some(user) = self.next_user() {
            // One whose runtime has ended is gone.
            if let Err(error) = user.await.or_else(|error| if error.is_panic() { Err(error) } else { Ok(()) }) {
                self.violate("nothing panics", error.to_string());
            }
        }
    }

    /// They do nothing more.
    pub(crate) fn end_users(&self) {
        self.lock_users().drain(..).for_each(|user| user.abort());
    }

    fn next_user(&self) -> Option<JoinHandle<()>> {
        self.lock_users().pop()
    }

    fn lock_users(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is planned for the client with a runtime of its own.
#[derive(Default)]
pub(crate) struct ApartState {
    blocked_until: Mutex<Duration>,
    ends: AtomicBool,
}

impl ApartState {
    fn lock(&self) -> MutexGuard<'_, Duration> {
        self.blocked_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its thread does nothing for so long.
    pub(crate) fn block(&self, time: Duration) {
        let mut until = self.lock();
        *until = (now() + time).max(*until);
    }

    pub(crate) fn is_blocked(&self, at: Duration) -> bool {
        at < *self.lock()
    }

    fn go_on(&self) {
        *self.lock() = Duration::ZERO;
    }

    /// Its runtime ends, and another begins.
    pub(crate) fn end(&self) {
        self.ends.store(true, Ordering::Relaxed);
    }

    pub(crate) fn shall_end(&self) -> bool {
        self.ends.swap(false, Ordering::Relaxed)
    }
}

/// The end.
impl World {
    /// Whether nobody does anything any more.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    pub(crate) fn set_over(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Everything works from now on.
    pub(crate) fn calm_down(&self) {
        for (index, server) in self.servers.iter().enumerate() {
            if !server.is_up() {
                server.start(Data::Present);
            }
            server.go_on();
            server.deny(None);
            self.judge().ends_denial(index, server.commands());
        }
        self.links.iter().flatten().for_each(Link::heal);
        self.machines.iter().for_each(|machine| machine.clock.go_on());
        self.apart.go_on();
        let at = self.at();
        let mut history = self.history();
        history.calm_since = Some(at);
        history.note(at, "calm", [0; 2], || "no more faults".to_owned());
    }

    /// How far servers' clocks were set back, in all.
    pub(crate) fn set_back(&self) -> Duration {
        self.set_back_in(&self.history())
    }
}
