//! What going in and out costs where nobody is in the way.

use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::commands::Monitors;
use crate::section::now;
use crate::subject::{Access, Client, Kind};
use crate::table::{Table, percentile, us};
use crate::{INSTANCES, Outcome, Stage};

const MANY: usize = 64;
const SECONDS: u64 = 8;

/// How long each is measured before the next one is, again and again: what else the machine does hits all alike.
const TURN: Duration = Duration::from_millis(200);

/// For the count of commands.
const COUNTED: usize = 200;

struct Subject {
    name: &'static str,
    client: Client,
    access: Access,
    /// Whether all tasks go in at one name.
    together: bool,
    servers: usize,
    /// Of one task, and of many.
    times: [Vec<u64>; 2],
    commands: f64,
}

pub(crate) fn run(runtime: &Runtime, stage: &Stage) -> Outcome<Table> {
    let mut subjects = Vec::new();
    for (name, kind, access, together) in [
        ("redquorum lock", Kind::OursLock, Access::Write, false),
        ("redquorum read", Kind::Ours, Access::Read, false),
        ("redquorum read, all of one name", Kind::Ours, Access::Read, true),
        ("redquorum write", Kind::Ours, Access::Write, false),
        ("rslock", Kind::Rslock, Access::Write, false),
        ("distributed-lock-redis read", Kind::Port, Access::Read, false),
        ("distkit read, 1 server", Kind::Distkit, Access::Read, false),
    ] {
        let client = runtime.block_on(kind.connect(stage))?;
        let servers = if kind == Kind::Distkit { 1 } else { INSTANCES };
        subjects.push(Subject { name, client, access, together, servers, times: Default::default(), commands: 0.0 });
    }
    let turns = stage.length(SECONDS).as_millis() / TURN.as_millis();
    for _ in 0..turns {
        for subject in &mut subjects {
            for (at, tasks) in [1, MANY].into_iter().enumerate() {
                let times = runtime.block_on(turn(subject, tasks, usize::MAX))?;
                subject.times[at].extend(times);
            }
        }
    }
    for subject in subjects.iter_mut().filter(|subject| subject.servers > 1) {
        let monitors = Monitors::start(&stage.fleet)?;
        runtime.block_on(turn(subject, 1, COUNTED))?;
        std::thread::sleep(Duration::from_millis(100)); // late releases
        let commands = monitors.finish(&stage.fleet)?;
        subject.commands = f64::from(commands.of_locks + commands.of_health) / COUNTED as f64 / INSTANCES as f64;
    }
    Ok(report(&subjects, turns))
}

/// Each task goes in and out until the turn is over, so often at most.
async fn turn(subject: &Subject, tasks: usize, pairs: usize) -> Outcome<Vec<u64>> {
    let end = if pairs == usize::MAX { now() + TURN.as_nanos() as u64 } else { u64::MAX };
    let mut running = JoinSet::new();
    for task in 0..tasks {
        let (client, access) = (subject.client.clone(), subject.access);
        let name = format!("cost:{}:{}", subject.name, if subject.together { 0 } else { task });
        running.spawn(async move {
            let mut times = Vec::new();
            while now() < end && times.len() < pairs {
                let begun = now();
                client.enter(&name, access).await?.await?;
                times.push(now() - begun);
            }
            Outcome::Ok(times)
        });
    }
    let mut all = Vec::new();
    while let Some(times) = running.join_next().await {
        all.extend(times??);
    }
    Ok(all)
}

fn report(subjects: &[Subject], turns: u128) -> Table {
    let lock = [0, 1].map(|at| percentile(&subjects[0].times[at], 50));
    let rows: Vec<Vec<String>> = subjects
        .iter()
        .map(|subject| {
            let mut row = vec![subject.name.to_owned()];
            for (at, times) in subject.times.iter().enumerate() {
                let p50 = percentile(times, 50);
                row.extend([us(p50), us(percentile(times, 99)), format!("{:.2}", p50 / lock[at])]);
            }
            row.push(format!("{:.0}", subject.times[1].len() as f64 / (TURN.as_secs_f64() * turns as f64)));
            row.push(if subject.servers > 1 { format!("{:.1}", subject.commands) } else { "-".to_owned() });
            row
        })
        .collect();
    Table {
        title: format!("2. In and out, µs: one task and {MANY}, a name for each"),
        head: vec![
            "",
            "1 task p50",
            "p99",
            "of a lock",
            "64 tasks p50",
            "64 tasks p99",
            "64 tasks of a lock",
            "pairs/s",
            "commands per server",
        ],
        rows,
    }
}
