//! Read-write locks, semaphores and elections beside those of other crates: who overlaps, what they cost, and how long
//! each waits.
//!
//! `cargo run --release --package redquorum-bench --bin shared-locks -- [--quick] [--only PART]`, some four minutes. It
//! runs on five servers of its own, and one for crates that know no more; REDQUORUM_SERVER names the program. Where
//! this library lets two in beside each other, or leaders come out of order, the bench fails. What it measured is also in
//! `target/bench/shared.json`.

#[path = "shared_locks/admitted.rs"]
mod admitted;
#[path = "shared_locks/candidate.rs"]
mod candidate;
#[path = "contended/commands.rs"]
mod commands;
#[path = "shared_locks/cost.rs"]
mod cost;
#[path = "shared_locks/draws.rs"]
mod draws;
#[path = "shared_locks/election.rs"]
mod election;
#[path = "shared_locks/load.rs"]
mod load;
#[path = "shared/machine.rs"]
mod machine;
#[path = "shared/median.rs"]
mod median;
#[path = "shared/opened.rs"]
mod opened;
#[path = "shared_locks/overlap.rs"]
mod overlap;
#[path = "contended/perfect.rs"]
mod perfect;
#[path = "shared_locks/plain.rs"]
mod plain;
#[path = "shared/results.rs"]
mod results;
#[path = "contended/section.rs"]
mod section;
#[path = "shared_locks/semaphore.rs"]
mod semaphore;
#[path = "shared_locks/subject.rs"]
mod subject;
#[path = "shared_locks/sweep.rs"]
mod sweep;
#[path = "shared_locks/table.rs"]
mod table;
#[path = "shared_locks/writer.rs"]
mod writer;

use std::time::Duration;

use redquorum_testkit::{Fleet, Program, Server};

use results::Results;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const INSTANCES: usize = 5;

/// Of every lock here.
const TTL: Duration = Duration::from_secs(2);

const PARTS: [&str; 5] = ["overlap", "cost", "writer", "semaphore", "election"];

/// Where it is measured, and how much.
struct Stage {
    fleet: Fleet,
    /// For crates that know one server only.
    single: Server,
    quick: bool,
}

impl Stage {
    /// Of a measurement that takes so many seconds.
    const fn length(&self, seconds: u64) -> Duration {
        Duration::from_secs(if self.quick { seconds.div_ceil(4) } else { seconds })
    }
}

fn main() -> Outcome {
    let mut args = std::env::args().skip(1).peekable();
    if args.next_if(|first| first == candidate::ARGUMENT).is_some() {
        return candidate::run(args);
    }
    let (mut quick, mut only) = (false, None);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--quick" => quick = true,
            "--only" => only = args.next().filter(|part| PARTS.contains(&part.as_str())),
            _ => return Err(format!("{arg}: known are --quick and --only with one of {}", PARTS.join(", ")).into()),
        }
    }
    let program = Program::required()?;
    let about = format!("{program}; {}{}.", if quick { "quick; " } else { "" }, machine::described());
    println!("{about}");
    let mut results = Results::default();
    let stage = Stage { fleet: Fleet::start(&program, INSTANCES)?, single: Server::start(&program)?, quick };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    for part in PARTS.into_iter().filter(|part| only.as_ref().is_none_or(|only| only == part)) {
        let table = match part {
            "overlap" => overlap::run(&runtime, &stage)?,
            "cost" => cost::run(&runtime, &stage)?,
            "writer" => writer::run(&runtime, &stage)?,
            "semaphore" => semaphore::run(&runtime, &stage)?,
            _ => election::run(&runtime, &stage)?,
        };
        table.print();
        table.add_to(&mut results, part);
    }
    eprintln!("written: {}", results.write("shared.json", &about)?.display());
    Ok(())
}
