//! Readers of a configuration that has two rows, and one writer that changes both, one after the other.
//!
//! `cargo run -p redquorum-examples --bin configuration`

use std::sync::Arc;

use redquorum::Redlock;
use redquorum_examples::database::Connection;
use redquorum_examples::stage::{Stage, role};
use redquorum_examples::{Outcome, check, ms, now};
use tokio::task::JoinSet;
use tokio::time::sleep;

const READERS: usize = 8;
const CHANGES: i64 = 20;
const LASTS: std::time::Duration = ms(3_000);

/// Whether both rows say the same.
async fn is_whole(database: &Connection) -> Outcome<bool> {
    let one = database.number("SELECT version FROM config WHERE part = 1", &[]).await?;
    sleep(ms(2)).await; // it reads the rest
    Ok(one == database.number("SELECT version FROM config WHERE part = 2", &[]).await?)
}

async fn change(database: &Connection, version: i64) -> Outcome {
    for part in [1, 2] {
        database.execute("UPDATE config SET version = $1 WHERE part = $2", &[version.into(), part.into()]).await?;
        sleep(ms(10)).await;
    }
    Ok(())
}

/// A process whose tasks read all the time; it prints how often, and how often they saw half of a change.
async fn read(with_lock: bool) -> Outcome {
    let stage = Stage::of_parent()?;
    let (redlock, database) = (stage.redlock().await?, Arc::new(stage.database().await?));
    println!("ready");
    let (mut readers, begun) = (JoinSet::new(), now());
    for _ in 0..READERS {
        let (redlock, database): (Redlock, _) = (redlock.clone(), Arc::clone(&database));
        readers.spawn(async move {
            let (mut reads, mut torn) = (0, 0);
            while begun.elapsed() < LASTS {
                let guard = if with_lock { Some(redlock.rw_lock("config").read().await?) } else { None };
                torn += i64::from(!is_whole(&database).await?);
                reads += 1;
                drop(guard);
            }
            Outcome::Ok((reads, torn))
        });
    }
    let (mut reads, mut torn) = (0, 0);
    while let Some(reader) = readers.join_next().await {
        let of_reader = reader??;
        (reads, torn) = (reads + of_reader.0, torn + of_reader.1);
    }
    println!("{reads}\n{torn}");
    redlock.shutdown(ms(5_000)).await?;
    Ok(())
}

async fn show(stage: &Stage, redlock: &Redlock, database: &Connection, mode: &str) -> Outcome {
    let mut readers = [stage.spawn(&[mode])?, stage.spawn(&[mode])?];
    for reader in &mut readers {
        reader.line().await?;
    }
    let mut longest = ms(0);
    for version in 1..=CHANGES {
        let begun = now();
        let guard = if mode == "with" { Some(redlock.rw_lock("config").write().await?) } else { None };
        longest = longest.max(begun.elapsed());
        change(database, version).await?;
        drop(guard);
        sleep(ms(50)).await;
    }
    let (mut reads, mut torn) = (0, 0);
    for mut reader in readers {
        (reads, torn) = (reads + reader.number().await?, torn + reader.number().await?);
        reader.end().await?;
    }
    println!("{mode} the lock: {torn} of {reads} readers saw half of a change; a writer waited {longest:.0?} at most");
    check(longest < LASTS / 2, "the writer gets in beside readers that come all the time")?;
    check((torn == 0) == (mode == "with"), "no reader sees half of a change with the lock, and some do without")
}

#[tokio::main]
async fn main() -> Outcome {
    if let [mode] = &*role() {
        return read(mode == "with").await;
    }
    let stage = Stage::start().await?;
    let (database, redlock) = (stage.database().await?, stage.redlock().await?);
    database.execute("CREATE TABLE config (part BIGINT NOT NULL, version BIGINT NOT NULL)", &[]).await?;
    for part in [1, 2] {
        database.execute("INSERT INTO config (part, version) VALUES ($1, 0)", &[part.into()]).await?;
    }
    println!("{CHANGES} changes of a configuration that {} tasks of two processes read:", 2 * READERS);
    show(&stage, &redlock, &database, "without").await?;
    show(&stage, &redlock, &database, "with").await
}
