//! Compares this library with the least that a quorum lock can cost, and with another crate.
//!
//! `make bench`, or `cargo run --release --package redquorum-bench -- [--quick] [--rounds N]
//! [--only WORKLOAD] [--subject SUBJECT]` (also `BENCH_ROUNDS=N`). It runs on five
//! servers of its own; REDQUORUM_SERVER names the program.
//! In every round each subject does the same work in turn, so that what else the machine does hits
//! all alike. Printed are the medians over the rounds; `target/bench/results.json` has them too.

#[path = "compare/measure.rs"]
mod measure;
#[path = "compare/memory.rs"]
mod memory;
#[path = "shared/options.rs"]
mod options;
#[path = "compare/other.rs"]
mod other;
#[path = "compare/ours.rs"]
mod ours;
#[path = "compare/raw.rs"]
mod raw;
#[path = "compare/report.rs"]
mod report;
#[path = "shared/results.rs"]
mod results;
#[path = "compare/subject.rs"]
mod subject;
#[path = "compare/workload.rs"]
mod workload;

use std::time::Duration;

use redquorum_testkit::{Fleet, Program};

use measure::run;
use options::Options;
use report::WORKLOADS;
use results::Results;
use subject::{Kind, Subject};
use workload::{Fault, Workload};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const INSTANCES: usize = 5;

/// Of every lock here, and how long the servers must have been up before this library uses them.
const TTL: Duration = Duration::from_secs(2);

#[tokio::main]
async fn main() -> Outcome {
    let options = Options::read(&WORKLOADS, &Kind::ALL.map(Kind::name))?;
    let program = Program::required()?;
    eprintln!("{INSTANCES} x {program}, {} rounds{}", options.rounds, if options.quick { ", quick" } else { "" });
    let mut results = Results::default();
    for kind in Kind::chosen(&options).into_iter().filter(|_| options.only.is_empty()) {
        eprintln!("memory: {kind}"); // first, as memory that was freed before would hide growth
        results.add("memory", kind.name(), &memory::grown(&program, kind, &options).await?);
    }
    for fault in [Fault::None, Fault::Hung, Fault::Dead] {
        compare(&program, fault, &options, &mut results).await?;
    }
    report::print(&results);
    let path = results.write("results.json")?;
    eprintln!("written: {}", path.display());
    Ok(())
}

/// Everything that is to be measured with one fault, on servers of its own.
async fn compare(program: &Program, fault: Fault, options: &Options, results: &mut Results) -> Outcome {
    let workloads = Workload::chosen(fault, options);
    if workloads.is_empty() {
        return Ok(());
    }
    let fleet = Fleet::start(program, INSTANCES)?;
    let mut subjects = Vec::new();
    for kind in Kind::chosen(options) {
        subjects.push(Subject::connect(kind, &fleet, TTL).await?);
    }
    fault.bring_about(&fleet)?;
    for round in 0..options.rounds {
        for &workload in &workloads {
            for at in 0..subjects.len() {
                let subject = &subjects[(at + round) % subjects.len()]; // nobody is always first
                eprintln!("round {} of {}: {workload}, {}", round + 1, options.rounds, subject.kind());
                let metrics = run(subject, workload, workload.pairs(subject.kind(), options), &fleet).await?;
                results.add(workload.name(), subject.kind().name(), &metrics);
            }
        }
    }
    Ok(())
}
