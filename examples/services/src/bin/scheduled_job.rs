//! A job that is due every so often, in three processes for the case that one dies. Each time it is to run once.
//!
//! `cargo run -p redquorum-examples --bin scheduled_job`

use std::time::Duration;

use redquorum::Redlock;
use redquorum_examples::database::Connection;
use redquorum_examples::stage::{Stage, role};
use redquorum_examples::worker::Worker;
use redquorum_examples::{Outcome, check, ms};
use tokio::time::{MissedTickBehavior, interval, sleep};

const TIMES: i64 = 6;
const PROCESSES: i64 = 3;
/// Longer than any clock is behind.
const MARK: Duration = ms(20_000);
/// When the first of the processes is killed.
const CRASH_AFTER: i64 = 3;

/// Sends a report, say; the row shows that it ran.
async fn job(database: &Connection, time: i64, process: i64) -> Outcome {
    sleep(ms(5)).await;
    database.execute("INSERT INTO run (time, process) VALUES ($1, $2)", &[time.into(), process.into()]).await?;
    Ok(())
}

/// The lock is kept for longer than any clock is behind, so that a process which comes late finds it, however soon the job was done. Should
/// the process die in the middle of the job, the job is not done that time: where that must not be, wait with `run`, and look
/// whether it is done.
async fn once(redlock: &Redlock, database: &Connection, time: i64, process: i64) -> Outcome {
    let lock = redlock.lock(format!("report:{time}")).at_least(MARK);
    // If it is none, another process does the job, or has done it.
    lock.try_run(async |_lease| job(database, time, process).await).await?.transpose()?;
    Ok(())
}

async fn process(number: i64, with_lock: bool) -> Outcome {
    let stage = Stage::of_parent()?;
    let (redlock, database) = (stage.redlock().await?, stage.database().await?);
    println!("ready");
    let mut clock = interval(ms(200));
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for time in 0..TIMES {
        clock.tick().await;
        if with_lock {
            once(&redlock, &database, time, number).await?;
        } else {
            job(&database, time, number).await?;
        }
        println!("{time}");
        if (number, time) == (0, CRASH_AFTER) {
            std::future::pending::<()>().await; // here it is killed, and not in the middle of the next time
        }
    }
    redlock.shutdown(ms(2_000)).await?;
    Ok(())
}

async fn start(stage: &Stage, mode: &str) -> Outcome<Vec<Worker>> {
    let mut workers = Vec::new();
    for number in 0..PROCESSES {
        workers.push(stage.spawn(&[&number.to_string(), mode])?);
    }
    for worker in &mut workers {
        worker.line().await?;
    }
    Ok(workers)
}

async fn show(stage: &Stage, database: &Connection, mode: &str) -> Outcome {
    database.execute("DELETE FROM run", &[]).await?;
    let mut workers = start(stage, mode).await?;
    let mut first = workers.remove(0);
    while first.number().await? < CRASH_AFTER {}
    first.crash().await?;
    for worker in workers {
        worker.end().await?;
    }
    let runs = database.number("SELECT COUNT(*) FROM run", &[]).await?;
    let times = database.number("SELECT COUNT(DISTINCT time) FROM run", &[]).await?;
    println!("{mode} the lock: it was due {TIMES} times, ran at {times} of them, and {runs} times in all");
    check((runs == TIMES) == (mode == "with"), "it runs once each time with the lock, more often without")
}

#[tokio::main]
async fn main() -> Outcome {
    if let [number, mode] = &*role() {
        return process(number.parse()?, mode == "with").await;
    }
    let stage = Stage::start().await?;
    let database = stage.database().await?;
    database.execute("CREATE TABLE run (time BIGINT NOT NULL, process BIGINT NOT NULL)", &[]).await?;
    println!("A job in {PROCESSES} processes, one of which is killed on the way:");
    show(&stage, &database, "without").await?;
    show(&stage, &database, "with").await
}
