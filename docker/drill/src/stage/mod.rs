//! One scenario on the engine: instances, clients and a referee are started, broken, and their logs collected.

mod action;

use std::time::Duration;

use futures_util::future::try_join_all;
use tokio::time::sleep;

use crate::Outcome;
use crate::client::{Job, LockLibrary};
use crate::clock::{nanos, now};
use crate::docker::{Engine, Spec, wait_until};
use crate::event::{Event, EventKind, parse};
use crate::referee;
use crate::scenario::{Action, INSTANCES, Scenario, Setup};

/// Of every lock; small, because a scenario waits for it several times.
pub(crate) const TTL: Duration = Duration::from_secs(2);

const REFEREE: u8 = 9;
const INSTANCE: u8 = 10;
const REPLICA: u8 = 20;
const PROXY: u8 = 30;
const CLIENT: u8 = 40;

/// The server that instances run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Server {
    Redis,
    Valkey,
}

impl Server {
    pub(crate) const fn program(self) -> &'static str {
        match self {
            Self::Redis => "redis-server",
            Self::Valkey => "valkey-server",
        }
    }
}

/// A scenario on its way.
pub(crate) struct Stage<'a> {
    engine: &'a Engine,
    scenario: &'a Scenario,
    server: Server,
    peer: LockLibrary,
    /// What the drill itself did.
    log: Vec<Event>,
}

/// Carries a scenario out and gives the merged history. Nothing of it is left but the network.
pub(crate) async fn play(
    engine: &Engine,
    scenario: &Scenario,
    steps: &[(f64, Action)],
    server: Server,
    peer: LockLibrary,
) -> Outcome<Vec<Event>> {
    let mut stage = Stage { engine, scenario, server, peer, log: Vec::new() };
    let played = stage.play(steps).await;
    engine.clear().await?;
    played
}

impl Stage<'_> {
    async fn play(&mut self, steps: &[(f64, Action)]) -> Outcome<Vec<Event>> {
        self.start_instances().await?;
        let version = self.engine.shell("i1", &format!("{} --version", self.server.program())).await?;
        self.note(EventKind::Server { version: version.split(" sha=").next().unwrap_or_default().to_owned() });
        self.start_clients().await?;
        if self.scenario.setup == Setup::WrongAccess {
            self.state(&[4, 5], "wrong");
        }
        for action in self.scenario.prepare {
            self.act(action).await?;
        }
        let (engine, clients) = (self.engine, 1..=self.scenario.clients.len());
        try_join_all(clients.map(|client| async move { engine.shell(&client_name(client), "> /tmp/go").await }))
            .await?;
        // New instances vote a ttl after the first client has connected, which may take a while.
        sleep(TTL + Duration::from_secs(1)).await;
        let start = now();
        let last = steps.len().saturating_sub(1);
        for (index, (at, action)) in steps.iter().enumerate() {
            sleep_until(start, *at).await;
            if index == 0 {
                self.note(EventKind::Fault);
            }
            if index == last {
                self.note(EventKind::Healed);
            }
            self.act(action).await?;
        }
        sleep_until(start, self.scenario.seconds).await;
        self.collect().await
    }

    async fn start_instances(&self) -> Outcome {
        let referee = Spec { host: REFEREE, command: vec!["drill".into(), "referee".into()], ..Spec::default() };
        self.engine.run("referee", referee).await?;
        try_join_all((1..=INSTANCES).map(|number| self.start_instance(number))).await?;
        if self.has_replica() {
            let master = format!("{} 6379", self.engine.address(host(INSTANCE, 3)));
            let mut spec = self.server(REPLICA, &["--replicaof", &master, "--repl-diskless-sync-delay", "0"]);
            spec.may_filter = true;
            self.engine.run("replica", spec).await?;
            let linked = || async {
                let info = self.engine.shell("replica", "redis-cli info replication").await;
                info.is_ok_and(|info| info.contains("master_link_status:up"))
            };
            if !wait_until(Duration::from_secs(15), linked).await {
                return Err("the replica did not get in touch with its master".into());
            }
        }
        if self.scenario.setup == Setup::Proxies {
            try_join_all((1..=INSTANCES).map(|number| async move {
                let target = format!("{}:6379", self.engine.address(host(INSTANCE, number)));
                let command = vec!["drill".into(), "proxy".into(), target];
                let spec = Spec { host: host(PROXY, number), command, ..Spec::default() };
                self.engine.run(&format!("p{number}"), spec).await
            }))
            .await?;
        }
        Ok(())
    }

    async fn start_instance(&self, number: usize) -> Outcome {
        let name = instance_name(number);
        let password: &[&str] = match self.scenario.setup {
            Setup::WrongAccess if number == 4 => &["--requirepass", "nobody-knows"],
            _ => &[],
        };
        self.engine.run(&name, self.server(host(INSTANCE, number), password)).await?;
        self.wait_until_up(&name).await
    }

    async fn wait_until_up(&self, name: &str) -> Outcome {
        let up = || async {
            let answer = self.engine.shell(name, "redis-cli ping 2>&1").await;
            answer.is_ok_and(|answer| answer.contains("PONG") || answer.contains("NOAUTH"))
        };
        if wait_until(Duration::from_secs(15), up).await { Ok(()) } else { Err(format!("{name} did not start").into()) }
    }

    fn server(&self, host: u8, more: &[&str]) -> Spec {
        let mut command = vec![self.server.program().to_owned()];
        command.extend(["--save", "", "--appendonly", "no", "--protected-mode", "no"].map(str::to_owned));
        command.extend(more.iter().map(|argument| (*argument).to_owned()));
        Spec { host, command, env: vec!["LD_PRELOAD=/lib/clockstep.so".to_owned()], ..Spec::default() }
    }

    async fn start_clients(&self) -> Outcome {
        let (via, scheme) = match self.scenario.setup {
            Setup::Proxies => (PROXY, "redis"),
            Setup::WrongAccess => (INSTANCE, "rediss"),
            _ => (INSTANCE, "redis"),
        };
        let numbers = 1..=INSTANCES;
        let url = |number| format!("{}://i{number}", if number == INSTANCES { scheme } else { "redis" });
        try_join_all(self.scenario.clients.iter().enumerate().map(|(index, roles)| {
            let job = Job {
                name: client_name(index + 1),
                peer: self.peer,
                instances: numbers.clone().map(url).collect(),
                quorum: (self.scenario.setup == Setup::ReplicaSuperquorum).then_some(4),
                ttl_ms: u64::try_from(TTL.as_millis()).unwrap_or(u64::MAX),
                referee: format!("referee:{}", referee::PORT),
                roles: roles.to_vec(),
            };
            let mut hosts: Vec<_> = numbers.clone().map(|number| (instance_name(number), host(via, number))).collect();
            hosts.push(("referee".to_owned(), REFEREE));
            async move {
                // Behind a shell, as the first process of a container can neither kill nor stop itself; the shell
                // has nothing to say about that.
                let shell = ["/bin/sh", "-c", "exec 3>&2 2>/dev/null; drill client \"$0\" 2>&3; :"];
                let mut command: Vec<String> = shell.map(str::to_owned).to_vec();
                command.push(serde_json::to_string(&job)?);
                let host = host(CLIENT, index + 1);
                let spec = Spec { host, command, hosts, may_filter: true, ..Spec::default() };
                self.engine.run(&job.name, spec).await
            }
        }))
        .await?;
        Ok(())
    }

    /// Ends the clients and merges all logs.
    async fn collect(&mut self) -> Outcome<Vec<Event>> {
        let mut names: Vec<String> = (1..=self.scenario.clients.len()).map(client_name).collect();
        try_join_all(names.iter().map(|name| self.engine.kill(name))).await?;
        names.push("referee".to_owned());
        let outputs = try_join_all(names.iter().map(|name| self.engine.output(name))).await?;
        let mut history = std::mem::take(&mut self.log);
        history.extend(outputs.iter().flat_map(|output| parse(output)));
        history.sort_by_key(|event| event.at); // stable: events of one writer stay in order
        Ok(history)
    }

    const fn has_replica(&self) -> bool {
        matches!(self.scenario.setup, Setup::Replica | Setup::ReplicaSuperquorum)
    }

    fn note(&mut self, kind: EventKind) {
        self.log.push(Event { at: now(), who: "drill".to_owned(), kind });
    }
}

async fn sleep_until(start: u64, seconds: f64) {
    let due = start.saturating_add(nanos(Duration::from_secs_f64(seconds)));
    sleep(Duration::from_nanos(due.saturating_sub(now()))).await;
}

fn host(base: u8, number: usize) -> u8 {
    base.saturating_add(u8::try_from(number).unwrap_or(0))
}

fn instance_name(number: usize) -> String {
    format!("i{number}")
}

fn client_name(number: usize) -> String {
    format!("c{number}")
}
