//! Tasks of several processes add to one balance: they read it, work, and write it. Now and then the work takes
//! longer than the lock's ttl, and before they begin a process has died with the lock in its hands.
//!
//! `cargo run -p redquorum-examples --bin hot_account`

use std::sync::Arc;
use std::time::Duration;

use redquorum_examples::database::Connection;
use redquorum_examples::stage::{Stage, role};
use redquorum_examples::{Outcome, check, ms, now};
use redquorum_testkit::{Client, Reply};
use tokio::task::JoinSet;
use tokio::time::sleep;

const PROCESSES: i64 = 3;
const TASKS: i64 = 4;
const ADDITIONS: i64 = 5;
const LOCK_TTL: Duration = ms(1_000);
/// Two additions work for so long.
const LONG_WORK: Duration = ms(1_800);
/// How long a wait for a lock without an end takes at most.
const STUCK_AFTER: Duration = ms(1_500);

async fn add(database: &Connection, work: Duration) -> Outcome {
    let balance = database.number("SELECT balance FROM account", &[]).await?;
    sleep(work).await;
    database.execute("UPDATE account SET balance = $1", &[(balance + 1).into()]).await?;
    Ok(())
}

/// The lock as it is often written: `SET NX` on one server, perhaps with an end, and a deletion of the own value.
struct PlainLock {
    server: Client,
    key: &'static str,
    value: String,
    expires: bool,
}

impl PlainLock {
    fn new(stage: &Stage, value: String, expires: bool) -> Outcome<Self> {
        let port = stage.instances()[0].rsplit(':').next().ok_or("no port")?.parse()?;
        let key = if expires { "account:expires" } else { "account:endless" };
        Ok(Self { server: Client::connect(port, ms(5_000))?, key, value, expires })
    }

    /// False if it was not to be had in time.
    async fn acquire(&mut self) -> Outcome<bool> {
        let ttl = LOCK_TTL.as_millis().to_string();
        let with_end = ["SET", self.key, &self.value, "NX", "PX", &ttl];
        let command = if self.expires { &with_end[..] } else { &with_end[..4] };
        let begun = now();
        while self.server.command(command)? == Reply::Nil {
            if !self.expires && begun.elapsed() > STUCK_AFTER {
                return Ok(false);
            }
            sleep(ms(3)).await;
        }
        Ok(true)
    }

    fn release(&mut self) -> Outcome {
        let script = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end";
        self.server.command(&["EVAL", script, "1", self.key, &self.value])?;
        Ok(())
    }
}

/// Adds to the account, and gives how often it did.
async fn task(stage: &Stage, mode: &str, name: String, has_long_work: bool) -> Outcome<i64> {
    let database = stage.database().await?;
    let redlock = if mode == "renewed" { Some(stage.redlock().await?) } else { None };
    let mut plain = PlainLock::new(stage, name, mode == "expires")?;
    let mut added = 0;
    for number in 0..ADDITIONS {
        let work = if has_long_work && number == 2 { LONG_WORK } else { ms(3) };
        if let Some(redlock) = &redlock {
            let lock = redlock.lock("account").ttl(LOCK_TTL);
            lock.run(async |_lease| add(&database, work).await).await??;
        } else if mode == "none" {
            add(&database, work).await?;
        } else {
            if !plain.acquire().await? {
                continue;
            }
            add(&database, work).await?;
            plain.release()?;
        }
        added += 1;
    }
    if let Some(redlock) = redlock {
        redlock.shutdown(ms(2_000)).await?;
    }
    Ok(added)
}

async fn process(mode: String, number: i64) -> Outcome {
    let stage = Arc::new(Stage::of_parent()?);
    let mut tasks = JoinSet::new();
    for at in 0..TASKS {
        let (stage, mode) = (Arc::clone(&stage), mode.clone());
        tasks.spawn(async move { task(&stage, &mode, format!("{number}-{at}"), number < 2 && at == 0).await });
    }
    let mut added = 0;
    while let Some(task) = tasks.join_next().await {
        added += task??;
    }
    println!("{added}");
    Ok(())
}

/// Takes the lock and waits to be killed.
async fn victim(mode: &str) -> Outcome {
    let stage = Stage::of_parent()?;
    let guard = match mode {
        "renewed" => Some(stage.redlock().await?.lock("account").ttl(LOCK_TTL).acquire().await?),
        "none" => None,
        _ => {
            PlainLock::new(&stage, "victim".to_owned(), mode == "expires")?.acquire().await?;
            None
        }
    };
    println!("it has the lock");
    sleep(ms(60_000)).await;
    drop(guard);
    Ok(())
}

async fn show(stage: &Stage, database: &Connection, mode: &str, what: &str) -> Outcome<(i64, i64)> {
    database.execute("UPDATE account SET balance = 0", &[]).await?;
    let mut victim = stage.spawn(&["victim", mode])?;
    victim.line().await?;
    victim.crash().await?;
    let mut processes = Vec::new();
    for number in 0..PROCESSES {
        processes.push(stage.spawn(&["process", mode, &number.to_string()])?);
    }
    let mut added = 0;
    for mut process in processes {
        added += process.number().await?;
        process.end().await?;
    }
    let balance = database.number("SELECT balance FROM account", &[]).await?;
    println!("{what}: {added} of {} additions were made, the balance is {balance}", PROCESSES * TASKS * ADDITIONS);
    Ok((added, balance))
}

#[tokio::main]
async fn main() -> Outcome {
    match role().iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["victim", mode] => return victim(mode).await,
        ["process", mode, number] => return process(mode.to_owned(), number.parse()?).await,
        _ => {}
    }
    let stage = Stage::start().await?;
    let database = stage.database().await?;
    database.execute("CREATE TABLE account (balance BIGINT NOT NULL)", &[]).await?;
    database.execute("INSERT INTO account VALUES (0)", &[]).await?;
    drop(stage.redlock().await?); // the new servers vote from now on
    let all = PROCESSES * TASKS * ADDITIONS;
    println!(
        "{PROCESSES} processes add to one account, {TASKS} tasks each, {ADDITIONS} times; one has died with the lock:"
    );
    let (added, balance) = show(&stage, &database, "none", "without a lock").await?;
    check(added == all && balance < all, "additions are lost without a lock")?;
    let (added, _) = show(&stage, &database, "endless", "SET NX").await?;
    check(added == 0, "the lock of a dead process is there for ever")?;
    let (added, balance) = show(&stage, &database, "expires", "SET NX, with an end").await?;
    check(added == all && balance < all, "additions are lost where the work outlasts the lock")?;
    let (added, balance) = show(&stage, &database, "renewed", "redquorum, renewed").await?;
    check((added, balance) == (all, all), "with renewal none is lost")
}
