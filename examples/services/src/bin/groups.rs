//! Names over two groups of three servers, and a third group that is added while clients work.
//!
//! `cargo run -p redquorum-examples --bin groups`;
//! `cargo run --release -p redquorum-examples --bin groups -- --measure` compares two groups with one.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use redquorum::Redlock;
use redquorum_examples::groups::{Groups, Spread, home};
use redquorum_examples::stage::open;
use redquorum_examples::{Outcome, TTL, check, ms, now};
use redquorum_testkit::{Fleet, Program};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Three servers of each of these groups, and what another process of a service has: clients of them all.
struct Servers(BTreeMap<String, Fleet>);

impl Servers {
    async fn start(groups: &[&str]) -> Outcome<Self> {
        let program = Program::required()?;
        let mut fleets = BTreeMap::new();
        for &group in groups {
            let fleet = Fleet::start(&program, 3)?;
            open(&fleet.addresses()).await?;
            fleets.insert(group.to_owned(), fleet);
        }
        println!("{} groups of three servers: {program}.", groups.len());
        Ok(Self(fleets))
    }

    async fn clients(&self, groups: &[&str]) -> Outcome<Groups> {
        let mut clients = Groups::new();
        for (name, fleet) in self.0.iter().filter(|(name, _)| groups.contains(&name.as_str())) {
            let builder = Redlock::builder().instances(fleet.addresses());
            let client = builder.max_ttl(TTL).ttl(TTL).instance_timeout(TTL / 3).connect().await?;
            clients.insert(name.clone(), client);
        }
        Ok(clients)
    }
}

/// A balance for each name; a process reads it, works, and writes it.
type Balances = RefCell<BTreeMap<String, u32>>;

/// Two processes with these lists add to the same balances, and the number of additions that were counted is given.
async fn add(processes: [&Spread; 2], names: &[String]) -> Outcome<u32> {
    let balances = Balances::default();
    let additions = async |spread: &Spread| {
        for name in names.iter().cycle().take(ADDITIONS / 2) {
            let held = spread.acquire(name).await?;
            let balance = balances.borrow().get(name).copied().unwrap_or(0);
            sleep(ms(5)).await;
            balances.borrow_mut().insert(name.clone(), balance + 1);
            held.release().await?;
        }
        Outcome::Ok(())
    };
    tokio::try_join!(additions(processes[0]), additions(processes[1]))?;
    Ok(balances.take().values().sum())
}

const ADDITIONS: usize = 120;

const TWO: [&str; 2] = ["a", "b"];
const THREE: [&str; 3] = ["a", "b", "c"];

async fn show() -> Outcome {
    let servers = Servers::start(&THREE).await?;
    let all: Vec<String> = (0..3000).map(|number| format!("account:{number}")).collect();
    let moving: Vec<String> = all.iter().filter(|name| home(TWO, name) != home(THREE, name)).cloned().collect();
    println!("Of {} names {} move to a third group, and none between the other two.", all.len(), moving.len());
    check(moving.len().abs_diff(1000) < 100, "about a third moves")?;

    let names = &moving[..3];
    let old = Spread::over(servers.clients(&TWO).await?);
    let both = Spread::while_moving(servers.clients(&TWO).await?, servers.clients(&THREE).await?);
    let new = Spread::over(servers.clients(&THREE).await?);
    let counted = add([&old, &new], names).await?;
    println!("The old list beside the new one: of {ADDITIONS} additions {counted} are counted.");
    check((counted as usize) < ADDITIONS, "both hold the same name")?;
    for (step, processes) in [("the old list beside both lists", [&old, &both]), ("both beside the new", [&both, &new])]
    {
        let counted = add(processes, names).await?;
        println!("In two steps, {step}: of {ADDITIONS} additions {counted} are counted.");
        check(counted as usize == ADDITIONS, "no two hold the same name")?;
    }
    Ok(())
}

const TASKS: usize = 64;
const ROUNDS: usize = 9;

/// Acquires and releases a second, by many tasks, each with names of its own.
async fn pairs_a_second(spread: &Spread) -> Outcome<f64> {
    let began = now();
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let spread = spread.clone();
        tasks.spawn(async move {
            let mut pairs = 0_u32;
            while began.elapsed() < Duration::from_secs(2) {
                spread.acquire(&format!("account:{task}:{}", pairs % 100)).await?.release().await?;
                pairs += 1;
            }
            Outcome::Ok(pairs)
        });
    }
    let mut pairs = 0;
    while let Some(task) = tasks.join_next().await {
        pairs += task??;
    }
    Ok(f64::from(pairs) / began.elapsed().as_secs_f64())
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// In turn, so that what else the machine does meets both.
async fn measure() -> Outcome {
    let servers = Servers::start(&TWO).await?;
    let one = Spread::over(servers.clients(&["a"]).await?);
    let two = Spread::over(servers.clients(&TWO).await?);
    let (mut of_one, mut of_two, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (pairs_of_one, pairs_of_two) = (pairs_a_second(&one).await?, pairs_a_second(&two).await?);
        println!("one group {pairs_of_one:.0} pairs a second, two groups {pairs_of_two:.0}");
        of_one.push(pairs_of_one);
        of_two.push(pairs_of_two);
        ratios.push(pairs_of_two / pairs_of_one);
    }
    let [of_one, of_two, ratio] = [of_one, of_two, ratios].map(median);
    println!("medians of {ROUNDS} rounds, {TASKS} tasks: {of_one:.0} and {of_two:.0}, ratio {ratio:.2}");
    Ok(())
}

#[tokio::main]
async fn main() -> Outcome {
    if std::env::args().nth(1).as_deref() == Some("--measure") { measure().await } else { show().await }
}
