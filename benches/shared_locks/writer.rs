//! Readers that never pause, and a writer that asks every 50 ms.

use std::time::Duration;

use tokio::runtime::Runtime;

use crate::load::{self, Pause, Record, Task};
use crate::section::Section;
use crate::subject::{Access, Kind};
use crate::sweep::most;
use crate::table::{Table, ms, percentile};
use crate::{Outcome, Stage};

const CLIENTS: usize = 4;
const READERS: usize = 64;
const INTERVAL: Duration = Duration::from_millis(50);
const WORK: Duration = Duration::from_millis(2);
const SECONDS: u64 = 8;

pub(crate) fn run(runtime: &Runtime, stage: &Stage) -> Outcome<Table> {
    let mut rows = Vec::new();
    for kind in [Kind::Ours, Kind::Port, Kind::Distkit, Kind::Local] {
        let record = runtime.block_on(measure(kind, stage))?;
        rows.push(row(kind, &record, stage.length(SECONDS)));
    }
    Ok(Table {
        title: format!(
            "3. {READERS} readers in a loop ({CLIENTS} clients, 2 ms each), and a writer every 50 ms of a client of its own"
        ),
        head: vec![
            "",
            "writes",
            "of",
            "wait p50, ms",
            "p99",
            "max",
            "readers at once between two writes: median",
            "reads/s",
            "failed",
        ],
        rows,
    })
}

async fn measure(kind: Kind, stage: &Stage) -> Outcome<Record> {
    let clients = kind.connect_all(stage, CLIENTS + 1).await?;
    let task = |client: usize, access, pause| Task { client: clients[client].clone(), kind, access, work: WORK, pause };
    let reader = |number: usize| task(number % CLIENTS, Access::Read, Pause::UpTo(Duration::ZERO));
    let mut tasks: Vec<Task> = (0..READERS).map(reader).collect();
    tasks.push(task(CLIENTS, Access::Write, Pause::Every(INTERVAL)));
    load::run(tasks, &format!("writer:{}", kind.name()), stage.length(SECONDS)).await
}

fn row(kind: Kind, record: &Record, length: Duration) -> Vec<String> {
    let of = |access| {
        let visits = record.visits.iter().filter(move |visit| visit.access == access);
        visits.map(|visit| visit.section)
    };
    let mut writes: Vec<Section> = of(Access::Write).collect();
    writes.sort_unstable_by_key(|section| section.held);
    let mut waits: Vec<u64> = writes.iter().map(|section| section.held - section.asked).collect();
    waits.extend(&record.in_vain);
    let mut reads: Vec<Section> = of(Access::Read).collect();
    reads.sort_unstable_by_key(|section| section.held);
    let together: Vec<u64> = writes.windows(2).map(|pair| between(&reads, &pair[0], &pair[1]) as u64).collect();
    if let Some(failure) = &record.first_failure {
        eprintln!("{}: {} failed, one: {failure}", kind.name(), record.failed);
    }
    vec![
        kind.name().to_owned(),
        writes.len().to_string(),
        (length.as_millis() / INTERVAL.as_millis()).to_string(),
        ms(percentile(&waits, 50)),
        ms(percentile(&waits, 99)),
        ms(percentile(&waits, 100)),
        format!("{:.0}", percentile(&together, 50)),
        format!("{:.0}", reads.len() as f64 / length.as_secs_f64()),
        record.failed.to_string(),
    ]
}

/// The most that read at once between two writes.
fn between(reads: &[Section], first: &Section, second: &Section) -> usize {
    let begin = reads.partition_point(|read| read.held < first.release_begun);
    let end = reads.partition_point(|read| read.held < second.held);
    most(reads.get(begin..end).unwrap_or_default().iter().copied())
}
