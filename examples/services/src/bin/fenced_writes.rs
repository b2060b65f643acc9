//! A holder is paused after it has looked at its lock and before it writes. When it resumes, its lease is over and
//! another holder has written. No lock can stop that write; what it writes to can.
//!
//! `cargo run -p redquorum-examples --bin fenced_writes`

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::Path;

use redquorum::FencingToken;
use redquorum_examples::database::Connection;
use redquorum_examples::stage::{Stage, role};
use redquorum_examples::{Outcome, check, ms};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Signal, getpid, kill_process};

const LOCK: &str = "account:7";

/// Writes a balance, and says whether it was accepted.
async fn write(mode: &str, file: &Path, database: &Connection, balance: i64, token: FencingToken) -> Outcome<bool> {
    let token = token.as_i64();
    Ok(match mode {
        "without" => database.execute("UPDATE account SET balance = $1", &[balance.into()]).await? == 1,
        "database" => {
            let sql = "UPDATE account SET balance = $1, fence = $2 WHERE fence <= $2";
            database.execute(sql, &[balance.into(), token.into()]).await? == 1
        }
        _ => write_to_file(file, balance, token)?,
    })
}

/// For storage that compares nothing by itself: the first line of the file is the largest token.
fn write_to_file(path: &Path, balance: i64, token: i64) -> Outcome<bool> {
    let mut file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
    flock(&file, FlockOperation::LockExclusive)?; // ends with the file
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let last: i64 = text.lines().next().map_or(Ok(0), str::parse)?;
    if last > token {
        return Ok(false);
    }
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(format!("{token}\n{balance}\n").as_bytes())?;
    Ok(true)
}

/// Alice: takes the lock, looks at it, and is paused until her parent lets her go on and write.
async fn alice(mode: &str, file: &Path) -> Outcome {
    let stage = Stage::of_parent()?;
    let (redlock, database) = (stage.redlock().await?, stage.database().await?);
    let guard = redlock.lock(LOCK).acquire().await?;
    if guard.is_valid() {
        println!("locked");
        kill_process(getpid(), Signal::STOP)?; // here she is paused
        println!("{}", write(mode, file, &database, 100, guard.fencing_token()).await?);
    }
    Ok(())
}

async fn show(stage: &Stage, mode: &str, what: &str, file: &Path) -> Outcome {
    let (redlock, database) = (stage.redlock().await?, stage.database().await?);
    database.execute("UPDATE account SET balance = 0, fence = 0", &[]).await?;
    let mut alice = stage.spawn(&[mode, &file.display().to_string()])?;
    alice.line().await?;
    alice.stopped().await?;
    let guard = redlock.lock(LOCK).acquire().await?; // once her lease is over
    check(write(mode, file, &database, 200, guard.fencing_token()).await?, "Bob, who has the lock, may write")?;
    guard.release().await?;
    alice.signal(Signal::CONT)?;
    let accepted = alice.line().await? == "true";
    alice.end().await?;
    let balance = match mode {
        "file" => std::fs::read_to_string(file)?.lines().nth(1).ok_or("no balance")?.parse()?,
        _ => database.number("SELECT balance FROM account", &[]).await?,
    };
    let answer = if accepted { "accepted" } else { "refused" };
    println!("{what}: Bob writes 200; Alice, who is late, writes 100 and is {answer}; the balance is {balance}");
    let expected = if mode == "without" { (true, 100) } else { (false, 200) };
    check((accepted, balance) == expected, "only without fencing the late write is accepted")?;
    redlock.shutdown(ms(2_000)).await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Outcome {
    if let [mode, file] = &*role() {
        return alice(mode, Path::new(file)).await;
    }
    let stage = Stage::start().await?;
    let database = stage.database().await?;
    database.execute("CREATE TABLE account (balance BIGINT NOT NULL, fence BIGINT NOT NULL)", &[]).await?;
    database.execute("INSERT INTO account VALUES (0, 0)", &[]).await?;
    let file = std::env::temp_dir().join(format!("redquorum-fenced-{}", std::process::id()));
    show(&stage, "without", "without fencing", &file).await?;
    show(&stage, "database", "the database compares the token", &file).await?;
    let shown = show(&stage, "file", "a file that is compared under flock", &file).await;
    std::fs::remove_file(&file)?;
    shown
}
