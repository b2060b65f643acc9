//! What kept fencing tokens cost a server (P13): memory, and the removal of very many old ones.
//!
//! `make bench-tokens`, or `cargo run --release --package redquorum-bench --bin tokens -- [--tokens N] [--clients N] [--tasks N]`. It first says
//! how many bytes each token takes, of names `orders:<n>`, on each kind of server. Then it gives five servers ten million old
//! tokens each, connects so many clients, and lets them lock new names there and on five other servers in turn, until all
//! old tokens are removed and some turns longer.

#[path = "shared/median.rs"]
mod median;
#[path = "shared/opened.rs"]
mod opened;
#[path = "shared/ratio.rs"]
mod ratio;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use redquorum::Redlock;
use redquorum_testkit::{Fleet, Program, Reply, Server};
use tokio::task::{JoinSet, block_in_place};
use tokio::time::sleep;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const TURN: Duration = Duration::from_secs(3);
/// When no old token is left.
const LAST_TURNS: usize = 5;
/// What the log of slow commands has of each server.
const SLOW_US: &str = "200";

/// Numbers of tokens, each close to the middle between two doublings of a server's table or what a rate of names comes to.
const KEPT: [u64; 3] = [60_000, 1_000_000, 10_000_000];

/// Adds those from one number to another, with scores that begin at a third.
const FILL: &str = "for i = ARGV[1], ARGV[2] do redis.call('ZADD', 'redquorum:fence', ARGV[3] + i, 'orders:' .. i) end";
const FORGET: &str = include_str!("../src/instance/redis/scripts/forget_tokens.lua");

#[tokio::main]
async fn main() -> Outcome {
    let (mut tokens, mut clients, mut tasks) = (10_000_000, 1, 64);
    let mut args = std::env::args().skip(1);
    while let Some(option) = args.next() {
        match (option.as_str(), args.next()) {
            ("--tokens", Some(number)) => tokens = number.replace('_', "").parse()?,
            ("--clients", Some(number)) => clients = number.parse()?,
            ("--tasks", Some(number)) => tasks = number.parse()?,
            _ => return Err("known are --tokens N, --clients N and --tasks N".into()),
        }
    }
    println!("| server | tokens | bytes of each | `MEMORY USAGE` of each |\n|---|---|---|---|");
    for program in Program::all_required()? {
        for kept in KEPT.into_iter().filter(|kept| *kept <= tokens) {
            block_in_place(|| bytes(&program, kept))?;
        }
    }
    old(&Program::required()?, tokens, clients, tasks).await
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn bytes(program: &Program, kept: u64) -> Outcome {
    let server = Server::start(program)?;
    let before = number(server.info("memory", "used_memory")?)?;
    fill(&server, kept)?;
    let grown = (number(server.info("memory", "used_memory")?)? - before) / kept as f64;
    let usage = server.command(&["MEMORY", "USAGE", "redquorum:fence", "SAMPLES", "0"])?.int().ok_or("no number")?;
    println!("| {program} | {kept} | {grown:.1} | {:.1} |", usage as f64 / kept as f64);
    Ok(())
}

/// Old ones: the newest is ten minutes old.
fn fill(server: &Server, count: u64) -> Outcome {
    let time = server.command(&["TIME"])?;
    let seconds: u64 = time.items().first().and_then(Reply::text).ok_or("no time")?.parse()?;
    let least = ((seconds - 1_735_689_600 - 600) * 1_000_000 - count).to_string();
    for from in (1..=count).step_by(10_000) {
        let (from, to) = (from.to_string(), count.min(from + 9_999).to_string());
        if let Reply::Error(error) = server.command(&["EVAL", FILL, "0", &from, &to, &least])? {
            return Err(error.into());
        }
    }
    Ok(())
}

/// Servers, and clients that lock new names there when they are told to.
struct Place {
    fleet: Fleet,
    redlocks: Vec<Redlock>,
    rates: Vec<f64>,
}

impl Place {
    async fn new(program: &Program, tokens: u64, clients: usize) -> Outcome<Self> {
        let fleet = Fleet::start(program, 5)?;
        opened::open(&fleet.addresses(), Duration::from_secs(10)).await;
        block_in_place(|| {
            std::thread::scope(|scope| {
                let filled: Vec<_> = fleet.iter().map(|server| scope.spawn(move || fill(server, tokens))).collect();
                filled.into_iter().try_for_each(|filled| filled.join().map_err(|_| "it panicked")?)
            })
        })?;
        for server in fleet.iter() {
            server.command(&["CONFIG", "SET", "slowlog-log-slower-than", SLOW_US, "slowlog-max-len", "100000"])?;
        }
        let mut redlocks = Vec::new();
        for _ in 0..clients {
            redlocks.push(Redlock::builder().instances(fleet.addresses()).connect().await?);
        }
        Ok(Self { fleet, redlocks, rates: Vec::new() })
    }

    /// Pairs a second in one turn.
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    async fn turn(&mut self, count: usize) -> Outcome<f64> {
        static NAMES: AtomicU64 = AtomicU64::new(0);
        let (ends, begun) = (Arc::<AtomicBool>::default(), now());
        let mut tasks = JoinSet::new();
        for redlock in self.redlocks.iter().cycle().take(count) {
            let (redlock, ends) = (redlock.clone(), Arc::clone(&ends));
            tasks.spawn(async move {
                let mut pairs = 0_u64;
                while !ends.load(Relaxed) {
                    redlock.lock(format!("new:{}", NAMES.fetch_add(1, Relaxed))).try_acquire().await?.release().await?;
                    pairs += 1;
                }
                Ok::<_, Box<dyn std::error::Error + Send + Sync>>(pairs)
            });
        }
        sleep(TURN).await;
        ends.store(true, Relaxed);
        let mut pairs = 0;
        while let Some(done) = tasks.join_next().await {
            pairs += done??;
        }
        let rate = pairs as f64 / begun.elapsed().as_secs_f64();
        self.rates.push(rate);
        Ok(rate)
    }

    /// How many old tokens are left on the server that has the most.
    fn left(&self) -> Outcome<i64> {
        let script = "local now = redis.call('TIME')
            return redis.call('ZCOUNT', 'redquorum:fence', '(0', (now[1] - 1735689600 - 500) * 1000000)";
        let mut most = 0;
        for server in self.fleet.iter() {
            most = most.max(server.command(&["EVAL", script, "0"])?.int().ok_or("no number")?);
        }
        Ok(most)
    }

    /// How often a removal took long, and the longest in milliseconds.
    fn slow(&self) -> Outcome<(usize, f64)> {
        static HASH: LazyLock<String> = LazyLock::new(|| redis::Script::new(FORGET).get_hash().to_owned());
        let (mut count, mut longest) = (0, 0);
        for server in self.fleet.iter() {
            for entry in server.command(&["SLOWLOG", "GET", "-1"])?.items() {
                let hash = entry.items().get(3).and_then(|words| words.items().get(1)?.text());
                if hash.as_ref() == Some(&*HASH) {
                    count += 1;
                    longest = longest.max(entry.items().get(2).and_then(Reply::int).unwrap_or_default());
                }
            }
            server.command(&["SLOWLOG", "RESET"])?;
        }
        Ok((count, f64::from(i32::try_from(longest)?) / 1e3))
    }
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
async fn old(program: &Program, tokens: u64, clients: usize, tasks: usize) -> Outcome {
    println!("\n{tokens} old tokens on each of five {program}; {clients} clients, {tasks} tasks");
    let mut small = Place::new(program, 0, clients).await?;
    let mut full = Place::new(program, tokens, clients).await?;
    println!(
        "| s | old tokens left | removed a second | beside new names a second | without old tokens | removals above {SLOW_US} us | the longest, ms |"
    );
    println!("|---|---|---|---|---|---|---|");
    let (begun, mut removed_all, mut last_turns) = (now(), None, 0);
    while last_turns < LAST_TURNS {
        let (before, since) = (full.left()?, now());
        let rate = full.turn(tasks).await?;
        let (left, took) = (full.left()?, since.elapsed());
        let small_rate = small.turn(tasks).await?;
        let removed = (before - left) as f64 / took.as_secs_f64();
        let (count, longest) = full.slow()?;
        let at = begun.elapsed().as_secs();
        println!("| {at} | {left} | {removed:.0} | {rate:.0} | {small_rate:.0} | {count} | {longest:.1} |");
        if left == 0 {
            removed_all.get_or_insert((at, full.rates.len()));
            last_turns += 1;
        }
    }
    let (seconds, turns) = removed_all.ok_or("they were not removed")?;
    println!("removed within {seconds} s");
    let part = |from: usize, to: usize| ratio::ratio(full.rates.get(from..to)?, small.rates.get(from..to)?);
    let told = |ratio: Option<f64>| ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
    println!("pairs a second, with and without old tokens: {} while they are removed", told(part(0, turns)));
    println!("pairs a second, with and without old tokens: {} afterwards", told(part(turns, full.rates.len())));
    Ok(())
}

fn number(text: Option<String>) -> Outcome<f64> {
    Ok(text.ok_or("no number")?.parse()?)
}

#[expect(clippy::disallowed_methods, reason = "it measures")]
fn now() -> Instant {
    Instant::now()
}
