//! Many who want one lock: how long it lies between two holders, how long each waits, and who gets how much.
//!
//! `make bench-contended`, or `cargo run --release --package redquorum-bench --bin contended -- [--quick]
//! [--rounds N] [--only WORKLOAD] [--subject SUBJECT]` (also `BENCH_ROUNDS=N`). It runs on five servers
//! of its own and one for what the lock protects; REDQUORUM_SERVER names the program.
//! In every round each subject does the same work in turn. A client that wants locks lives in worker processes:
//! this program again, which say when each section was asked for, held and given back, on the one
//! monotonic clock of the machine. A round in which two held a lock at once, or what it protects was lost,
//! or a key was left behind, ends the bench as a failure. Printed are the medians over the rounds;
//! `target/bench/contended.json` has them too.

#[path = "contended/check.rs"]
mod check;
#[path = "contended/commands.rs"]
mod commands;
#[path = "shared/machine.rs"]
mod machine;
#[path = "contended/measure.rs"]
mod measure;
#[path = "shared/median.rs"]
mod median;
#[path = "shared/opened.rs"]
mod opened;
#[path = "shared/options.rs"]
mod options;
#[path = "contended/perfect.rs"]
mod perfect;
#[path = "shared/ratio.rs"]
mod ratio;
#[path = "shared/read.rs"]
mod read;
#[path = "contended/report.rs"]
mod report;
#[path = "shared/results.rs"]
mod results;
#[path = "contended/section.rs"]
mod section;
#[path = "contended/storage.rs"]
mod storage;
#[path = "contended/subject.rs"]
mod subject;
#[path = "contended/tasks.rs"]
mod tasks;
#[path = "contended/worker.rs"]
mod worker;
#[path = "contended/workers.rs"]
mod workers;
#[path = "contended/workload.rs"]
mod workload;

use std::time::Duration;

use redquorum_testkit::{Fleet, Program, Server};

use commands::Monitors;
use options::Options;
use results::{Metric, Results};
use subject::Kind;
use tasks::Record;
use worker::Job;
use workers::Workers;
use workload::Workload;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const INSTANCES: usize = 5;

/// Of every lock here, and how long the servers must have been up before this library uses them.
const TTL: Duration = Duration::from_secs(2);

fn main() -> Outcome {
    let mut args = std::env::args().skip(1);
    if args.next().as_deref() == Some(Job::ARGUMENT) {
        return worker::run(Job::parse(args)?);
    }
    let options = Options::read(&Workload::ALL.map(Workload::name), &Kind::ALL.map(Kind::name))?;
    let program = Program::required()?;
    let about = options.about(&program, &machine::described());
    eprintln!("{about}");
    let servers = Servers { fleet: Fleet::start(&program, INSTANCES)?, storage: Server::start(&program)? };
    let mut results = Results::default();
    let kinds: Vec<_> = Kind::ALL.into_iter().filter(|kind| options.has_subject(kind.name())).collect();
    for round in 0..options.rounds {
        for workload in Workload::ALL.into_iter().filter(|workload| options.has_workload(workload.name())) {
            for at in 0..kinds.len() {
                let kind = kinds[(at + round) % kinds.len()]; // nobody is always first
                eprintln!("round {} of {}: {workload}, {kind}", round + 1, options.rounds);
                let metrics = run(&servers, &servers.job(kind, workload, round, options.quick))
                    .map_err(|error| format!("{workload}, {kind}: {error}"))?;
                results.add(workload.name(), kind.name(), &metrics);
            }
        }
    }
    report::print(&results);
    let path = results.write("contended.json", &about)?;
    eprintln!("written: {}", path.display());
    Ok(())
}

struct Servers {
    fleet: Fleet,
    /// What the lock protects.
    storage: Server,
}

impl Servers {
    fn job(&self, kind: Kind, workload: Workload, round: usize, quick: bool) -> Job {
        let (storage, instances) = (self.storage.address(), self.fleet.addresses());
        Job { kind, workload, process: 0, round, quick, storage, instances }
    }

    /// What every run must show.
    fn check(&self, job: &Job, record: &Record) -> Outcome {
        check::exclusion(&record.sections)?;
        check::storage(&self.storage, job.workload, job.quick)?;
        check::no_key_left(&self.fleet)
    }
}

/// One run of a workload by one subject, and one in which its commands are counted.
fn run(servers: &Servers, job: &Job) -> Outcome<Vec<Metric>> {
    storage::clear(&servers.storage)?;
    let mut workers = Workers::start(job)?;
    let span = workers.begin(job.workload.length(job.quick))?;
    let record = workers.collect()?;
    servers.check(job, &record)?;
    let mut metrics = measure::times(job.workload, &record, &span);

    storage::clear(&servers.storage)?;
    let mut workers = Workers::start(job)?;
    let monitors = Monitors::start(&servers.fleet)?;
    workers.begin(job.workload.length(true))?;
    let record = workers.collect()?;
    let commands = monitors.finish(&servers.fleet)?;
    servers.check(job, &record)?;
    metrics.extend(measure::commands(&record, &commands));
    Ok(metrics)
}
