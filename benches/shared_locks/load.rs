//! Tasks that go in and out until the time is over.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::Outcome;
use crate::draws::Draws;
use crate::section::{Section, now};
use crate::subject::{Access, Client, Kind};

/// What one task does again and again.
#[derive(Clone)]
pub(crate) struct Task {
    pub(crate) client: Client,
    pub(crate) kind: Kind,
    pub(crate) access: Access,
    pub(crate) work: Duration,
    pub(crate) pause: Pause,
}

#[derive(Clone, Copy)]
pub(crate) enum Pause {
    UpTo(Duration),
    /// It asks so often, or as soon as it is out again.
    Every(Duration),
}

/// One time that a task was in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Visit {
    pub(crate) kind: Kind,
    pub(crate) access: Access,
    pub(crate) section: Section,
}

#[derive(Default)]
pub(crate) struct Record {
    pub(crate) visits: Vec<Visit>,
    /// For how long writers had waited that were not in by the end.
    pub(crate) in_vain: Vec<u64>,
    pub(crate) failed: usize,
    pub(crate) first_failure: Option<String>,
}

pub(crate) async fn run(tasks: Vec<Task>, name: &str, length: Duration) -> Outcome<Record> {
    let end = now() + length.as_nanos() as u64;
    let mut running = JoinSet::new();
    for (number, task) in tasks.into_iter().enumerate() {
        running.spawn(again_and_again(task, number, name.to_owned(), end));
    }
    let mut all = Record::default();
    while let Some(one) = running.join_next().await {
        let one = one?;
        all.visits.extend(one.visits);
        all.in_vain.extend(one.in_vain);
        all.failed += one.failed;
        all.first_failure = all.first_failure.or(one.first_failure);
    }
    Ok(all)
}

async fn again_and_again(task: Task, number: usize, name: String, end: u64) -> Record {
    let (mut record, mut draws) = (Record::default(), Draws::new(number));
    while now() < end {
        let asked = now();
        let entering = timeout(Duration::from_nanos(end.saturating_sub(asked)), task.client.enter(&name, task.access));
        let released = match entering.await {
            Ok(Ok(release)) => {
                let held = now();
                sleep(task.work).await;
                let release_begun = now();
                let result = release.await;
                let section = Section { task: number, key: 0, asked, held, release_begun, released: now() };
                record.visits.push(Visit { kind: task.kind, access: task.access, section });
                result
            }
            Ok(Err(error)) => Err(error),
            Err(_) if task.access == Access::Write => {
                record.in_vain.push(now() - asked);
                break;
            }
            Err(_) => break,
        };
        if let Err(error) = released {
            record.failed += 1;
            record.first_failure.get_or_insert_with(|| error.to_string());
        }
        sleep(match task.pause {
            Pause::UpTo(longest) => draws.up_to(longest),
            Pause::Every(interval) => interval.saturating_sub(Duration::from_nanos(now() - asked)),
        })
        .await;
    }
    record
}
