//! Three permits, and sixteen clients that want one.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use distributed_lock_core::traits::{DistributedSemaphore, LockHandle, SemaphoreProvider};
use distributed_lock_redis::RedisLockProvider;
use redquorum::Redlock;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::commands::Monitors;
use crate::draws::Draws;
use crate::section::{Section, now};
use crate::subject::{Release, port, released};
use crate::sweep::most;
use crate::table::{Table, ms, percentile};
use crate::{INSTANCES, Outcome, Stage, admitted, perfect};

const PERMITS: usize = 3;
const CLIENTS: usize = 16;
const WORK: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(10);
const SECONDS: u64 = 8;

/// Those of this library never let in more; the other one counts on one server.
#[derive(Clone)]
enum Client {
    Ours(Redlock),
    Port(Arc<RedisLockProvider>),
}

impl Client {
    /// Gives the index of the permit where it has one.
    async fn enter(&self) -> Outcome<(usize, Release)> {
        match self {
            Self::Ours(redlock) => {
                let permit = redlock.semaphore("semaphore", PERMITS as u32).acquire().await?;
                Ok((permit.index() as usize, released(permit.release())))
            }
            Self::Port(provider) => {
                let handle = provider.create_semaphore("semaphore", PERMITS as u32).acquire(None).await?;
                Ok((0, released(handle.release())))
            }
        }
    }
}

pub(crate) fn run(runtime: &Runtime, stage: &Stage) -> Outcome<Table> {
    let mut rows = Vec::new();
    for name in ["redquorum semaphore", "distributed-lock-redis, 1 server"] {
        let is_ours = name.starts_with("redquorum");
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            clients.push(if is_ours {
                Client::Ours(runtime.block_on(admitted::connect(stage.fleet.addresses()))?)
            } else {
                Client::Port(runtime.block_on(port(&[stage.single.address()]))?)
            });
        }
        let (sections, span) = runtime.block_on(load(&clients, stage.length(SECONDS)))?;
        let commands = if is_ours { Some(commands(runtime, stage, &clients)?) } else { None };
        if is_ours {
            check(&sections)?;
        }
        rows.push(row(name, &sections, &span, commands));
    }
    Ok(Table {
        title: format!("4. {PERMITS} permits, {CLIENTS} clients with a task each, 2 ms in and up to 10 ms out"),
        head: vec![
            "",
            "most at once",
            "times in per s",
            "wait p50, ms",
            "p99",
            "max",
            "perfect queue p50",
            "perfect queue p99",
            "commands/s and server",
        ],
        rows,
    })
}

async fn load(clients: &[Client], length: Duration) -> Outcome<(Vec<Section>, Range<u64>)> {
    let span = now()..now() + length.as_nanos() as u64;
    let mut running = JoinSet::new();
    for (task, client) in clients.iter().cloned().enumerate() {
        let end = span.end;
        running.spawn(async move {
            let (mut sections, mut draws) = (Vec::new(), Draws::new(task));
            while now() < end {
                let asked = now();
                let left = Duration::from_nanos(end.saturating_sub(asked));
                let Ok(entered) = timeout(left, client.enter()).await else { break };
                let (key, release) = entered?;
                let held = now();
                sleep(WORK).await;
                let release_begun = now();
                release.await?;
                sections.push(Section { task, key, asked, held, release_begun, released: now() });
                sleep(draws.up_to(LONGEST_PAUSE)).await;
            }
            Outcome::Ok(sections)
        });
    }
    let mut all = Vec::new();
    while let Some(sections) = running.join_next().await {
        all.extend(sections??);
    }
    Ok((all, span))
}

/// For each time in, on each server; counted in a run of its own, which MONITOR slows down.
fn commands(runtime: &Runtime, stage: &Stage, clients: &[Client]) -> Outcome<f64> {
    let monitors = Monitors::start(&stage.fleet)?;
    let (sections, _) = runtime.block_on(load(clients, Duration::from_secs(1)))?;
    let commands = monitors.finish(&stage.fleet)?;
    check(&sections)?;
    Ok(f64::from(commands.of_locks + commands.of_health) / sections.len() as f64 / INSTANCES as f64)
}

/// Never more than there are, and never two with the same one.
fn check(sections: &[Section]) -> Outcome {
    let at_once = most(sections.iter().copied());
    if at_once > PERMITS {
        return Err(format!("{at_once} had a permit of {PERMITS}").into());
    }
    let of = |index| most(sections.iter().filter(|section| section.key == index).copied());
    match (0..PERMITS).find(|index| of(*index) > 1) {
        Some(index) => Err(format!("two had permit {index}").into()),
        None => Ok(()),
    }
}

fn row(name: &str, sections: &[Section], span: &Range<u64>, commands: Option<f64>) -> Vec<String> {
    let waits: Vec<u64> = sections.iter().map(|section| section.held - section.asked).collect();
    let perfect = perfect::waits(sections, CLIENTS, PERMITS, span);
    let rate = sections.len() as f64 * 1e9 / (span.end - span.start) as f64;
    vec![
        name.to_owned(),
        most(sections.iter().copied()).to_string(),
        format!("{rate:.0}"),
        ms(percentile(&waits, 50)),
        ms(percentile(&waits, 99)),
        ms(percentile(&waits, 100)),
        ms(percentile(&perfect, 50)),
        ms(percentile(&perfect, 99)),
        commands.map_or("-".to_owned(), |each| format!("{:.0}", each * rate)),
    ]
}
