//! Readers and writers of one lock, and how often two were in that must not be.

use std::time::Duration;

use redquorum_testkit::{Server, wait_until};
use tokio::runtime::Runtime;

use crate::load::{self, Pause, Record, Task};
use crate::subject::{Access, Client, Kind};
use crate::sweep::overlaps;
use crate::table::{Table, ms, percentile};
use crate::{Outcome, Stage};

const CLIENTS: usize = 4;
const READERS: usize = 12;
const WRITERS: usize = 4;
const SECONDS: u64 = 8;

/// Above what a lock of this library lies, and nothing else.
const NAME: &str = "shared:redquorum";

pub(crate) fn run(runtime: &Runtime, stage: &Stage) -> Outcome<Table> {
    let mut rows = Vec::new();
    for kind in [Kind::Ours, Kind::Port, Kind::PortOnOne, Kind::Distkit] {
        let clients = runtime.block_on(kind.connect_all(stage, CLIENTS))?;
        let of = |access| move |client: &Client| task(kind, client, access);
        let spread = || clients.iter().cycle();
        let mut tasks: Vec<Task> = spread().take(READERS).map(of(Access::Read)).collect();
        tasks.extend(spread().take(WRITERS).map(of(Access::Write)));
        let name = if kind == Kind::Ours { NAME.to_owned() } else { format!("shared:{}", kind.name()) };
        let record = runtime.block_on(load::run(tasks, &name, stage.length(SECONDS)))?;
        rows.push(row(kind.name(), &record));
        if kind == Kind::Ours {
            check(stage, &record)?;
        }
    }
    let (mixed, record) = runtime.block_on(mixed(stage))?;
    rows.push(row(&mixed, &record));
    check(stage, &record)?;
    Ok(Table {
        title: format!("1. {READERS} readers and {WRITERS} writers of {CLIENTS} clients, {SECONDS} s each"),
        head: vec![
            "",
            "reads",
            "writes",
            "reader beside writer",
            "writer beside writer",
            "writer waits p50, ms",
            "max",
            "failed",
        ],
        rows,
    })
}

fn task(kind: Kind, client: &Client, access: Access) -> Task {
    let (work, pause) = (Duration::from_millis(1), Pause::UpTo(Duration::from_millis(20)));
    Task { client: client.clone(), kind, access, work, pause }
}

/// Readers and writers of this library beside ordinary locks of its own, of rslock and of plain commands, all at one key.
async fn mixed(stage: &Stage) -> Outcome<(String, Record)> {
    let mut tasks = Vec::new();
    let parties = [(Kind::Ours, 8, 2), (Kind::OursLock, 0, 2), (Kind::Rslock, 0, 2), (Kind::Plain, 0, 2)];
    for (kind, readers, writers) in parties {
        let clients = kind.connect_all(stage, 2).await?;
        let spread = || clients.iter().cycle();
        tasks.extend(spread().take(readers).map(|client| task(kind, client, Access::Read)));
        tasks.extend(spread().take(writers).map(|client| task(kind, client, Access::Write)));
    }
    let record = load::run(tasks, NAME, stage.length(SECONDS)).await?;
    let writes = |kind| {
        let of = record.visits.iter().filter(|visit| visit.kind == kind && visit.access == Access::Write);
        format!("{} {}", kind.name(), of.count())
    };
    let label = format!("all at one key ({})", parties.map(|(kind, ..)| writes(kind)).join(", "));
    Ok((label, record))
}

fn row(name: &str, record: &Record) -> Vec<String> {
    let (seen, count) = (overlaps(&record.visits), |access| {
        record.visits.iter().filter(|visit| visit.access == access).count().to_string()
    });
    let of_writers = record.visits.iter().filter(|visit| visit.access == Access::Write);
    let mut waits: Vec<u64> = of_writers.map(|visit| visit.section.held - visit.section.asked).collect();
    waits.extend(&record.in_vain);
    if let Some(failure) = &record.first_failure {
        eprintln!("{name}: {} failed, one: {failure}", record.failed);
    }
    vec![
        name.to_owned(),
        count(Access::Read),
        count(Access::Write),
        seen.reader_beside_writer.to_string(),
        seen.writer_beside_writer.to_string(),
        ms(percentile(&waits, 50)),
        ms(percentile(&waits, 100)),
        record.failed.to_string(),
    ]
}

/// Nobody of this library was in beside anybody, and nothing is left at its key.
fn check(stage: &Stage, record: &Record) -> Outcome {
    let seen = overlaps(&record.visits);
    if seen.reader_beside_writer + seen.writer_beside_writer > 0 {
        return Err(format!("two were in that must not be: {seen:?}").into());
    }
    let free = |server: &Server| server.keys().is_ok_and(|keys| !keys.iter().any(|key| key == NAME));
    let is_free = wait_until(Duration::from_secs(5), || stage.fleet.iter().all(free));
    if is_free { Ok(()) } else { Err("a key was left behind".into()) }
}
