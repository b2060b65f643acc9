//! Compares this library with the least that a quorum lock can cost, and with another crate.
//!
//! `make bench`, or `cargo run --release --package redquorum-bench -- [--quick] [--rounds N]
//! [--only WORKLOAD] [--subject SUBJECT]` (also `BENCH_ROUNDS=N`). It runs on
//! servers of its own, five unless a workload says otherwise; REDQUORUM_SERVER names the program.
//! In every round the subjects take turns at the same work, so that what else the machine does hits all alike.
//! Printed are the medians over the turns, and of the ratios within a turn; `target/bench/results.json` has them too.

#[path = "compare/cost.rs"]
mod cost;
#[path = "shared/machine.rs"]
mod machine;
#[path = "compare/measure.rs"]
mod measure;
#[path = "shared/median.rs"]
mod median;
#[path = "compare/memory.rs"]
mod memory;
#[path = "shared/opened.rs"]
mod opened;
#[path = "shared/options.rs"]
mod options;
#[path = "compare/other.rs"]
mod other;
#[path = "compare/ours.rs"]
mod ours;
#[path = "shared/progress.rs"]
mod progress;
#[path = "shared/ratio.rs"]
mod ratio;
#[path = "compare/raw.rs"]
mod raw;
#[path = "shared/read.rs"]
mod read;
#[path = "compare/report.rs"]
mod report;
#[path = "shared/resident.rs"]
mod resident;
#[path = "shared/results.rs"]
mod results;
#[path = "compare/stage.rs"]
mod stage;
#[path = "compare/subject.rs"]
mod subject;
#[path = "compare/workload.rs"]
mod workload;

use std::time::Duration;

use redquorum_testkit::Program;

use measure::run;
use options::Options;
use progress::Progress;
use results::Results;
use stage::Running;
use subject::Kind;
use workload::{WORKLOADS, Workload};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const INSTANCES: usize = 5;

/// Of every lock here, and how long the servers must have been up before this library uses them.
const TTL: Duration = Duration::from_secs(2);

fn main() -> Outcome {
    let options = Options::read(&WORKLOADS.map(|workload| workload.name), &Kind::ALL.map(Kind::name))?;
    let program = Program::required()?;
    let about = options.about(&program, &machine::described());
    eprintln!("{about}");
    let mut results = Results::default();
    let mut progress = Progress::new(steps(&options));
    for kind in Kind::chosen(&options).into_iter().filter(|_| options.only.is_empty()) {
        progress.step(format_args!("memory: {kind}")); // first, as memory that was freed before would hide growth
        let runtime = tokio::runtime::Runtime::new()?;
        results.add("memory", kind.name(), &runtime.block_on(memory::grown(&program, kind, &options))?);
    }
    for workloads in Workload::chosen(&options) {
        compare(&program, &workloads, &options, &mut progress, &mut results)?;
    }
    report::print(&results);
    let path = results.write("results.json", &about)?;
    eprintln!("written: {}", path.display());
    Ok(())
}

/// How many runs there will be.
fn steps(options: &Options) -> usize {
    let kinds = Kind::chosen(options);
    let suits = |workload: &Workload| kinds.iter().filter(|kind| workload.suits(**kind)).count();
    let runs: usize =
        Workload::chosen(options).concat().iter().map(|workload| workload.turns(options) * suits(workload)).sum();
    options.rounds * runs + if options.only.is_empty() { kinds.len() } else { 0 }
}

/// All workloads of one stage, on servers of its own.
fn compare(
    program: &Program,
    workloads: &[Workload],
    options: &Options,
    progress: &mut Progress,
    results: &mut Results,
) -> Outcome {
    let Some(first) = workloads.first() else { return Ok(()) };
    let running = Running::start(program, first.stage, options)?;
    let kinds = Kind::chosen(options);
    for round in 0..options.rounds {
        for workload in workloads {
            for turn in 0..workload.turns(options) * kinds.len() {
                let kind = kinds[(turn + turn / kinds.len() + round) % kinds.len()]; // nobody is always first
                if workload.suits(kind) {
                    progress.step(format_args!("{workload}, {kind}, round {} of {}", round + 1, options.rounds));
                    let metrics = run(&running, workload, kind, workload.times(kind, options))?;
                    results.add(workload.name, kind.name(), &metrics);
                }
            }
        }
    }
    Ok(())
}
