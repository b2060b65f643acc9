//! What the tasks of a worker do.

use std::ops::Range;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::Outcome;
use crate::section::{Section, now};
use crate::storage::Table;
use crate::subject::Client;
use crate::worker::Job;
use crate::workload::{LONGEST_PAUSE, WORK, Workload};

/// What came of one or of many tasks.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) sections: Vec<Section>,
    pub(crate) failed: usize,
    pub(crate) first_failure: Option<String>,
}

impl Record {
    fn add(&mut self, turn: Turn) {
        self.sections.extend(turn.section);
        if let Err(error) = turn.result {
            self.failed += 1;
            self.first_failure.get_or_insert_with(|| error.to_string());
        }
    }

    pub(crate) fn append(&mut self, other: Self) {
        self.sections.extend(other.sections);
        self.failed += other.failed;
        self.first_failure = self.first_failure.take().or(other.first_failure);
    }
}

/// Has all tasks of this process begin at the start of the span.
pub(crate) async fn run(job: &Job, client: &Client, span: Range<u64>) -> Outcome<Record> {
    let mut tasks = JoinSet::new();
    match job.workload {
        Workload::Sections { pauses, .. } => {
            let name = format!("bench:{}", job.kind);
            for task in job.tasks() {
                let draws = pauses.then(|| Draws::new(job.round, task));
                tasks.spawn(ask_again(client.clone(), name.clone(), task, span.clone(), draws));
            }
        }
        Workload::Requests => {
            let table = Table::connect(&job.storage).await?;
            for task in job.tasks() {
                let key = task % Workload::keys(job.quick);
                tasks.spawn(ask_once(
                    client.clone(),
                    format!("bench:{}:{key}", job.kind),
                    table.clone(),
                    task,
                    key,
                    span.start,
                ));
            }
        }
    }
    let mut all = Record::default();
    while let Some(record) = tasks.join_next().await {
        all.append(record?);
    }
    Ok(all)
}

/// Works in one section after the other until the span is over.
async fn ask_again(client: Client, name: String, task: usize, span: Range<u64>, mut draws: Option<Draws>) -> Record {
    let mut record = Record::default();
    wait_for(span.start).await;
    while now() < span.end {
        record.add(turn(&client, &name, task, 0, work()).await);
        if let Some(draws) = &mut draws {
            sleep(draws.pause()).await;
        }
    }
    record
}

async fn work() -> Outcome {
    sleep(WORK).await;
    Ok(())
}

/// Puts an entry into the table that the lock protects.
async fn ask_once(client: Client, name: String, mut table: Table, task: usize, key: usize, start: u64) -> Record {
    let mut record = Record::default();
    wait_for(start).await;
    record.add(turn(&client, &name, task, key, table.insert(key, task)).await);
    record
}

/// One acquire and what follows.
struct Turn {
    /// Also where the work or the release failed: the lock was held.
    section: Option<Section>,
    result: Outcome,
}

async fn turn(client: &Client, name: &str, task: usize, key: usize, work: impl Future<Output = Outcome>) -> Turn {
    let asked = now();
    let guard = match client.acquire(name).await {
        Ok(guard) => guard,
        Err(error) => return Turn { section: None, result: Err(error) },
    };
    let held = now();
    let worked = work.await;
    let release_begun = now();
    let result = guard.release().await;
    Turn {
        section: Some(Section { task, key, asked, held, release_begun, released: now() }),
        result: worked.and(result),
    }
}

async fn wait_for(start: u64) {
    sleep(Duration::from_nanos(start.saturating_sub(now()))).await;
}

/// Pauses that are the same for every subject: SplitMix64, whose state is a count.
struct Draws(u64);

impl Draws {
    fn new(round: usize, task: usize) -> Self {
        Self((round as u64) << 32 | (task as u64) << 16)
    }

    /// Uniform, in whole microseconds.
    fn pause(&mut self) -> Duration {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        let longest = LONGEST_PAUSE.as_micros() as u64;
        Duration::from_micros((mixed ^ mixed >> 31) % (longest + 1))
    }
}

#[test]
fn pauses_are_spread_evenly_and_others_for_each_task() {
    let mean = |task| {
        let mut draws = Draws::new(0, task);
        (0..10_000).map(|_| draws.pause()).sum::<Duration>() / 10_000
    };
    let means: Vec<_> = (0..16).map(mean).collect();
    assert!(means.iter().all(|mean| mean.abs_diff(LONGEST_PAUSE / 2) < Duration::from_millis(1)), "{means:?}");
    assert!(means.windows(2).all(|pair| pair[0] != pair[1]), "{means:?}");
}
