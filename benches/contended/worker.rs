//! This program as a worker process: it gets ready, waits for the common start, and tells what it did.

use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::time::Duration;

use tokio::time::timeout;

use crate::Outcome;
use crate::subject::{Client, Kind};
use crate::tasks;
use crate::workload::Workload;

/// A worker that takes longer than this has failed.
const LIMIT: Duration = Duration::from_secs(180);

/// What a worker is to do.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) kind: Kind,
    pub(crate) workload: Workload,
    pub(crate) process: usize,
    pub(crate) round: usize,
    pub(crate) quick: bool,
    /// Where the server is that has what the lock protects.
    pub(crate) storage: String,
    pub(crate) instances: Vec<String>,
}

impl Job {
    /// Makes this program a worker.
    pub(crate) const ARGUMENT: &str = "worker";

    /// What a worker says when it is connected, and when it has told all.
    pub(crate) const READY: &str = "ready";
    pub(crate) const DONE: &str = "done";

    pub(crate) fn arguments(&self) -> Vec<String> {
        let Self { kind, workload, process, round, quick, storage, instances } = self;
        let numbers = [process.to_string(), round.to_string(), quick.to_string()];
        [Self::ARGUMENT, kind.name(), workload.name()]
            .map(str::to_owned)
            .into_iter()
            .chain(numbers)
            .chain([storage.clone()])
            .chain(instances.iter().cloned())
            .collect()
    }

    /// From the arguments behind the first.
    pub(crate) fn parse(mut arguments: impl Iterator<Item = String>) -> Outcome<Self> {
        let mut next = || arguments.next().ok_or("a worker needs more arguments");
        let (kind, workload) = (next()?, next()?);
        Ok(Self {
            kind: Kind::ALL.into_iter().find(|known| known.name() == kind).ok_or("an unknown subject")?,
            workload: Workload::ALL.into_iter().find(|known| known.name() == workload).ok_or("an unknown workload")?,
            process: next()?.parse()?,
            round: next()?.parse()?,
            quick: next()?.parse()?,
            storage: next()?,
            instances: arguments.collect(),
        })
    }

    /// The tasks that are this process's.
    pub(crate) fn tasks(&self) -> impl Iterator<Item = usize> {
        let own = |task: &usize| self.workload.process_of(*task, self.quick) == self.process;
        (0..self.workload.tasks(self.quick)).filter(own)
    }
}

pub(crate) fn run(job: Job) -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async { timeout(LIMIT, work(job)).await? })
}

async fn work(job: Job) -> Outcome {
    let client = Client::connect(job.kind, job.instances.clone()).await?;
    println!("{}", Job::READY);
    let span = tokio::task::spawn_blocking(read_span).await??;
    std::thread::spawn(end_with_parent);
    let done = tasks::run(&job, &client, span).await?;
    if let Some(failure) = done.first_failure {
        eprintln!("{} failed, the first: {failure}", done.failed);
    }
    client.shut_down().await?;
    let mut out = BufWriter::new(io::stdout().lock());
    for section in done.sections {
        writeln!(out, "{section}")?;
    }
    writeln!(out, "{} {}", Job::DONE, done.failed)?;
    Ok(out.flush()?)
}

/// From when to when tasks ask, as the parent says it to all. If the parent has gone, so does the worker.
fn read_span() -> Outcome<Range<u64>> {
    let mut line = String::new();
    io::stdin().read_line(&mut line)?;
    let (start, end) = line.trim().split_once(' ').ok_or("no start was given")?;
    Ok(start.parse()?..end.parse()?)
}

/// The parent says nothing more, and keeps the pipe open for as long as it lives.
fn end_with_parent() {
    let _ = io::copy(&mut io::stdin(), &mut io::sink());
    std::process::exit(1);
}

#[test]
fn a_job_reads_back_as_it_was_handed_over() {
    let instances = vec!["redis://127.0.0.1:1".to_owned(), "redis://127.0.0.1:2".to_owned()];
    let storage = "storage".to_owned();
    let job = Job {
        kind: Kind::Rslock5,
        workload: Workload::Requests,
        process: 2,
        round: 3,
        quick: true,
        storage,
        instances,
    };
    let read = Job::parse(job.arguments().into_iter().skip(1));
    assert!(read.is_ok_and(|read| read.arguments() == job.arguments()));
}
