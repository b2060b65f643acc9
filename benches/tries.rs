//! Of several clients that try a free lock at the same moment, how many get it, and how long that takes.
//!
//! `cargo run --release --package redquorum-bench --bin tries`, some five minutes; `--locks N`
//! for other than 1000, `--instances N` for one size. Clients
//! of one process, each with connections of its own, begin at a barrier; the winner keeps the lock until all have ended.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redquorum::{AcquireError, Admission, AdmissionStatus, Guard, InstanceStatus, Redlock, Renewal};
use redquorum_testkit::{Fleet, Program};
use tokio::sync::Barrier;
use tokio::task::{JoinSet, block_in_place};
use tokio::time::sleep;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const CLIENTS: [usize; 5] = [2, 3, 5, 8, 32];

/// Longer than the tries of so many clients take: what is in quarantine stays there. New servers sit it out as well.
const MAX_TTL: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    AllUp,
    OneDead,
    MinorityDead,
    OneHung,
    OneInQuarantine,
}

impl State {
    const ALL: [Self; 5] = [Self::AllUp, Self::OneDead, Self::MinorityDead, Self::OneHung, Self::OneInQuarantine];

    const fn told(self) -> &'static str {
        match self {
            Self::AllUp => "all up",
            Self::OneDead => "one dead",
            Self::MinorityDead => "minority dead",
            Self::OneHung => "one hung",
            Self::OneInQuarantine => "one in quarantine",
        }
    }
}

/// What came of the tries for all locks.
#[derive(Default)]
struct Seen {
    by_none: usize,
    by_several: usize,
    undecided: usize,
    failed: usize,
    winners: Vec<Duration>,
    losers: Vec<Duration>,
}

#[tokio::main]
async fn main() -> Outcome {
    let (mut locks, mut sizes) = (1000, vec![3, 5]);
    let mut args = std::env::args().skip(1);
    while let Some(option) = args.next() {
        match (option.as_str(), args.next()) {
            ("--locks", Some(number)) => locks = number.parse()?,
            ("--instances", Some(number)) => sizes = vec![number.parse()?],
            _ => return Err("known are --locks N and --instances N".into()),
        }
    }
    let program = Program::required()?;
    println!("{program}; {locks} free locks each.\n");
    println!(
        "| instances | clients | | taken by none | by several | undecided | failed | winner p50 | p99 | losers p50 | p99 |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    for instances in sizes {
        for state in State::ALL {
            let fleet = block_in_place(|| Fleet::start(&program, instances))?;
            let mut redlocks = Vec::new();
            for _ in 0..CLIENTS.iter().copied().max().unwrap_or_default() {
                redlocks.push(client(&fleet, state)?);
            }
            let votes = |status: &InstanceStatus| {
                status.connected && matches!(status.admission, AdmissionStatus::Admitted | AdmissionStatus::Off)
            };
            for clients in CLIENTS {
                if clients == CLIENTS[0] || state == State::OneInQuarantine {
                    while !redlocks.iter().all(|redlock| redlock.instances().iter().all(votes)) {
                        sleep(Duration::from_millis(20)).await;
                    }
                    bring_about(state, &fleet, &redlocks).await?;
                }
                let seen = measure(redlocks.get(..clients).unwrap_or_default(), state, locks).await?;
                print(instances, clients, state, seen);
            }
            if state == State::OneHung {
                fleet.first().map_or(Ok(()), |server| server.resume())?;
            }
        }
    }
    Ok(())
}

fn client(fleet: &Fleet, state: State) -> Outcome<Redlock> {
    let admission = if state == State::OneInQuarantine { Admission::On } else { Admission::Off };
    let builder = Redlock::builder().instances(fleet.addresses()).admission(admission).max_ttl(MAX_TTL);
    let redlock = builder.renew(Renewal::Off).build()?;
    redlock.want_locks(); // otherwise it writes no record, and its instances do not begin to sit out
    Ok(redlock)
}

/// Breaks what is to be broken, and waits until all clients know of it; a hung instance is for each to find.
async fn bring_about(state: State, fleet: &Fleet, redlocks: &[Redlock]) -> Outcome {
    let minority = (fleet.len() - 1) / 2;
    match state {
        State::AllUp => {}
        State::OneDead => fleet.first().map_or(Ok(()), |server| server.kill())?,
        State::MinorityDead => fleet.iter().take(minority).try_for_each(|server| server.kill())?,
        State::OneHung => fleet.first().map_or(Ok(()), |server| server.hang())?,
        State::OneInQuarantine => {
            if let Some(server) = fleet.first() {
                block_in_place(|| server.kill().and_then(|()| server.restart()))?;
            }
        }
    }
    if state == State::OneInQuarantine {
        let sits_out = |redlock: &Redlock| {
            redlock.instances().iter().any(|status| matches!(status.admission, AdmissionStatus::Quarantine(_)))
        };
        while !redlocks.iter().all(sits_out) {
            sleep(Duration::from_millis(20)).await;
        }
    }
    sleep(Duration::from_millis(200)).await;
    Ok(())
}

async fn measure(redlocks: &[Redlock], state: State, locks: usize) -> Outcome<Seen> {
    let mut seen = Seen::default();
    for number in 0..locks {
        let barrier = Arc::new(Barrier::new(redlocks.len()));
        let mut tries: JoinSet<(Result<Guard, AcquireError>, Duration)> = JoinSet::new();
        for redlock in redlocks {
            let (lock, barrier) =
                (redlock.lock(format!("{state:?}:{}:{number}", redlocks.len())), Arc::clone(&barrier));
            tries.spawn(async move {
                barrier.wait().await;
                let begun = now();
                let tried = lock.try_acquire().await;
                (tried, begun.elapsed())
            });
        }
        let mut guards = Vec::new();
        for (tried, took) in tries.join_all().await {
            match tried {
                Ok(guard) => {
                    guards.push(guard);
                    seen.winners.push(took);
                    continue;
                }
                Err(AcquireError::Contended(_)) => {}
                Err(AcquireError::SplitVote { .. }) => seen.undecided += 1,
                Err(error) => {
                    seen.failed += 1;
                    eprintln!("{error}");
                }
            }
            seen.losers.push(took);
        }
        seen.by_none += usize::from(guards.is_empty());
        seen.by_several += usize::from(guards.len() > 1);
        for guard in guards {
            let _ = guard.release().await;
        }
    }
    Ok(seen)
}

fn print(instances: usize, clients: usize, state: State, mut seen: Seen) {
    seen.winners.sort_unstable();
    seen.losers.sort_unstable();
    let at = |times: &[Duration], percent: usize| {
        let time = times.get(times.len().saturating_sub(1) * percent / 100).copied().unwrap_or_default();
        format!("{:.2} ms", time.as_secs_f64() * 1e3)
    };
    println!(
        "| {instances} | {clients} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
        state.told(),
        seen.by_none,
        seen.by_several,
        seen.undecided,
        seen.failed,
        at(&seen.winners, 50),
        at(&seen.winners, 99),
        at(&seen.losers, 50),
        at(&seen.losers, 99),
    );
}

#[expect(clippy::disallowed_methods, reason = "it measures real time")]
fn now() -> Instant {
    Instant::now()
}
