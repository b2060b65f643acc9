//! What admission costs in availability: how long instances do not vote after they have, or may have, forgotten locks.
//!
//! `make admission-price`, or `cargo run --release --package redquorum-bench --bin admission`. Each event happens to five servers
//! of its own, for each `max_ttl` and without admission, all side by side; the longest takes six minutes. What it measured is in
//! `target/bench/admission.json`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redquorum::{Admission, AdmissionStatus, InstanceStatus, Redlock};
use redquorum_testkit::{Fleet, Program, Server};
use tokio::task::{JoinSet, block_in_place};
use tokio::time::sleep;

#[path = "shared/machine.rs"]
mod machine;
#[path = "shared/median.rs"]
mod median;
#[path = "shared/results.rs"]
mod results;

use results::{Metric, Results};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const INSTANCES: usize = 5;
const QUORUM: usize = 3;

/// In seconds.
const MAX_TTLS: [u64; 3] = [10, 30, 60];

/// Between two tries, and two looks at who votes.
const TICK: Duration = Duration::from_millis(50);

/// Between two restarts, where nobody waits until the instance votes again.
const HURRY: Duration = Duration::from_secs(2);

/// How soon a client knows of an event that concerns it.
const NOTICE: Duration = Duration::from_secs(3);

/// How long a replica may take until it follows.
const PATIENCE: Duration = Duration::from_secs(20);

/// For how long it is watched before the event, and after all vote again.
const CALM: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// One instance without persistence is restarted.
    Restart,
    Flush,
    /// One becomes a replica of an empty server, and then a master again.
    Promotion,
    /// All are restarted, each when the one before votes again.
    Patient,
    /// All are restarted, two seconds apart.
    Hurried,
}

impl Event {
    const ALL: [Self; 5] = [Self::Restart, Self::Flush, Self::Promotion, Self::Patient, Self::Hurried];

    const fn told(self) -> &'static str {
        match self {
            Self::Restart => "one instance is restarted, without its data",
            Self::Flush => "one instance is flushed (`FLUSHALL`)",
            Self::Promotion => "one instance follows an empty server, and is promoted",
            Self::Patient => "all are restarted, each when the one before votes again",
            Self::Hurried => "all are restarted, 2 s apart",
        }
    }
}

/// What one client has seen.
#[derive(Debug, Default)]
struct Seen {
    /// How long the instance that was longest without a vote was so.
    vote_missing: Duration,
    without_quorum: Duration,
    /// From the first restart until all vote again.
    until_all_vote: Duration,
    tries: usize,
    failed: usize,
    longest_gap: Duration,
}

#[tokio::main]
async fn main() -> Outcome {
    let program = Program::required()?;
    let longest = MAX_TTLS.iter().max().copied().unwrap_or_default();
    eprintln!("{program}: {} runs side by side, some {} s", Event::ALL.len() * (MAX_TTLS.len() + 1), longest * 6 + 30);
    let stood_still = Arc::<AtomicU64>::default();
    std::thread::spawn({
        let stood_still = Arc::clone(&stood_still);
        move || note_standstills(&stood_still)
    });
    let mut runs = JoinSet::new();
    for event in Event::ALL {
        let with = MAX_TTLS.map(|seconds| (Admission::On, seconds));
        for (admission, seconds) in with.into_iter().chain([(Admission::Off, MAX_TTLS[0])]) {
            let program = program.clone();
            runs.spawn(async move {
                let seen = run(&program, event, admission, Duration::from_secs(seconds)).await;
                seen.map(|seen| ((event as usize, admission == Admission::Off, seconds), event, seen))
                    .map_err(|error| format!("{event:?}, {admission:?}, {seconds} s: {error}"))
            });
        }
    }
    let mut all = Vec::new();
    while let Some(seen) = runs.join_next().await {
        all.push(seen??);
        eprintln!("{} done: {:?}", all.len(), all.last());
    }
    all.sort_by_key(|(order, ..)| *order);
    let mut results = Results::default();
    for ((_, is_off, seconds), event, seen) in &all {
        let max_ttl = if *is_off { "off".to_owned() } else { format!("{seconds} s") };
        results.add(event.told(), &max_ttl, &seen.metrics());
    }
    let stood_still = Duration::from_millis(stood_still.load(Ordering::Relaxed)).as_secs_f64();
    let about = format!(
        "{program}, five instances without persistence on one machine, one client for each row; {}. The machine stalled the program for at most \
         {stood_still:.1} s, so shorter times without a lock mean nothing.",
        machine::described()
    );
    eprintln!("written: {}", results.write("admission.json", &about)?.display());
    Ok(())
}

/// How long, at most, the machine did not let a thread go on that wanted to: others had it.
fn note_standstills(longest: &AtomicU64) {
    loop {
        let start = now();
        std::thread::sleep(TICK);
        let late = start.elapsed().saturating_sub(TICK).as_millis();
        longest.fetch_max(u64::try_from(late).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

impl Seen {
    fn metrics(&self) -> [Metric; 6] {
        [
            ("vote missing", self.vote_missing.as_secs_f64(), "s"),
            ("all vote again", self.until_all_vote.as_secs_f64(), "s"),
            ("no quorum", self.without_quorum.as_secs_f64(), "s"),
            ("failed", self.failed as f64, "tries"),
            ("tries", self.tries as f64, "tries"),
            ("longest gap", self.longest_gap.as_secs_f64(), "s"),
        ]
    }
}

async fn run(program: &Program, event: Event, admission: Admission, max_ttl: Duration) -> Outcome<Seen> {
    let fleet = Fleet::start(program, INSTANCES)?;
    let builder = Redlock::builder().instances(fleet.addresses()).admission(admission);
    let redlock = builder.ttl(max_ttl).max_ttl(max_ttl).connect().await?;
    until_all_vote(&redlock).await;
    let ends = Arc::<AtomicBool>::default();
    let watching = tokio::spawn(watch(redlock.clone(), Arc::clone(&ends)));
    sleep(CALM).await;
    let begun = now();
    happen(event, program, &fleet, &redlock).await?;
    until_all_vote(&redlock).await;
    let until_all_vote = begun.elapsed();
    sleep(CALM).await;
    ends.store(true, Ordering::Relaxed);
    Ok(Seen { until_all_vote, ..watching.await?? })
}

async fn happen(event: Event, program: &Program, fleet: &Fleet, redlock: &Redlock) -> Outcome {
    let third = &fleet[2];
    match event {
        Event::Restart => block_in_place(|| third.restart())?,
        Event::Flush => drop(block_in_place(|| third.command(&["FLUSHALL"]))?),
        Event::Promotion => block_in_place(|| promote(program, third))?,
        Event::Patient => {
            for server in fleet.iter() {
                block_in_place(|| server.restart())?;
                until_noticed(redlock).await;
                until_all_vote(redlock).await;
            }
        }
        Event::Hurried => {
            for server in fleet.iter() {
                block_in_place(|| server.restart())?;
                sleep(HURRY).await;
            }
        }
    }
    until_noticed(redlock).await;
    Ok(())
}

/// Makes it a replica of a server that has nothing, until it has nothing either, and then a master again.
fn promote(program: &Program, server: &Server) -> Outcome {
    let empty = Server::start(program)?;
    server.command(&["REPLICAOF", "127.0.0.1", &empty.port().to_string()])?;
    let begun = now();
    while server.info("replication", "master_link_status")?.as_deref() != Some("up") {
        if begun.elapsed() > PATIENCE {
            return Err("it does not follow the empty server".into());
        }
        std::thread::sleep(TICK);
    }
    server.command(&["REPLICAOF", "NO", "ONE"])?;
    Ok(())
}

/// Locks again and again, and looks who votes.
async fn watch(redlock: Redlock, ends: Arc<AtomicBool>) -> Outcome<Seen> {
    let mut seen = Seen::default();
    let mut missing_since = [None; INSTANCES];
    let (mut last_look, mut last_grant) = (now(), now());
    while !ends.load(Ordering::Relaxed) {
        seen.tries += 1;
        match redlock.lock(format!("price:{}", seen.tries)).try_acquire().await {
            Ok(guard) => {
                seen.longest_gap = seen.longest_gap.max(last_grant.elapsed());
                last_grant = now();
                drop(guard);
            }
            Err(_) => seen.failed += 1,
        }
        let mut votes = 0;
        for (status, since) in redlock.instances().iter().zip(&mut missing_since) {
            if may_vote(status) {
                votes += 1;
                *since = None;
            } else {
                seen.vote_missing = seen.vote_missing.max(since.get_or_insert_with(now).elapsed());
            }
        }
        if votes < QUORUM {
            seen.without_quorum += last_look.elapsed();
        }
        last_look = now();
        sleep(TICK).await;
    }
    Ok(seen)
}

fn may_vote(status: &InstanceStatus) -> bool {
    status.connected && matches!(status.admission, AdmissionStatus::Admitted | AdmissionStatus::Off)
}

async fn until_all_vote(redlock: &Redlock) {
    redlock.want_locks();
    while !redlock.instances().iter().all(may_vote) {
        sleep(TICK).await;
    }
}

/// Until the client knows that something has happened; without admission it may never.
async fn until_noticed(redlock: &Redlock) {
    let begun = now();
    while redlock.instances().iter().all(may_vote) && begun.elapsed() < NOTICE {
        sleep(TICK / 10).await;
    }
}

#[expect(clippy::disallowed_methods, reason = "it measures")]
fn now() -> Instant {
    Instant::now()
}
