//! A scheduler in three processes, of which one leads and hands out the work; a worker looks up which. The leader is killed, and
//! the worker goes on with the next one, which continues the count.
//!
//! `cargo run -p redquorum-examples --bin scheduler`

use redquorum::{LeaseView, Redlock};
use redquorum_examples::database::Connection;
use redquorum_examples::stage::{Stage, role};
use redquorum_examples::worker::Worker;
use redquorum_examples::{Outcome, TTL, check, ms, now};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

const PROCESSES: usize = 3;

/// The next number of work, which the database counts. A leader that was paused cannot: its token is too small.
async fn next(database: &Connection, token: i64) -> Outcome<Option<i64>> {
    let count = "UPDATE work SET next = next + 1, fence = $1 WHERE fence <= $1";
    if database.execute(count, &[token.into()]).await? == 0 {
        return Ok(None);
    }
    Ok(Some(database.number("SELECT next FROM work", &[]).await?))
}

/// Hands out work while it leads.
async fn hand_out(listener: &TcpListener, database: &Connection, lease: LeaseView) -> Outcome {
    loop {
        let (mut worker, _) = listener.accept().await?;
        if let Some(number) = next(database, lease.fencing_token().as_i64()).await? {
            worker.write_all(number.to_string().as_bytes()).await?;
        }
    }
}

async fn scheduler() -> Outcome {
    let stage = Stage::of_parent()?;
    let (redlock, database) = (stage.redlock().await?, stage.database().await?);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    println!("{address}");
    redlock.election("scheduler").lead(&address, async |lease| hand_out(&listener, &database, lease).await).await?
}

/// Requests work from the leader, until that answers; returns the number of the work, and which leader gave it.
async fn work(redlock: &Redlock) -> Outcome<(i64, String)> {
    loop {
        if let Some(leader) = redlock.election("scheduler").leader().await?
            && let Ok(mut connection) = TcpStream::connect(&leader.info).await
        {
            let mut number = String::new();
            let answered = timeout(ms(1_000), connection.read_to_string(&mut number)).await;
            if matches!(answered, Ok(Ok(1..))) {
                return Ok((number.parse()?, leader.info));
            }
        }
        sleep(ms(20)).await; // no leader yet, or it is gone
    }
}

#[tokio::main]
async fn main() -> Outcome {
    if !role().is_empty() {
        return scheduler().await;
    }
    let stage = Stage::start().await?;
    let database = stage.database().await?;
    database.execute("CREATE TABLE work (next BIGINT NOT NULL, fence BIGINT NOT NULL)", &[]).await?;
    database.execute("INSERT INTO work (next, fence) VALUES (0, 0)", &[]).await?;
    let mut schedulers: Vec<(String, Worker)> = Vec::new();
    for _ in 0..PROCESSES {
        let mut process = stage.spawn(&["scheduler"])?;
        schedulers.push((process.line().await?, process));
    }
    let redlock = stage.redlock().await?;
    let (mut done, mut led) = (0, Vec::new());
    for round in 1..=PROCESSES {
        let begun = now();
        let (mut number, leader) = work(&redlock).await?;
        println!("scheduler {round} of {PROCESSES} answers after {:.1?}, with number {number}", begun.elapsed());
        for _ in 0..10 {
            check(number == done + 1, "no number is given twice, none is left out")?;
            done = number;
            (number, _) = work(&redlock).await?;
        }
        done = number;
        check(!led.contains(&leader), "another one leads")?;
        let at = schedulers.iter().position(|(address, _)| *address == leader).ok_or("an unknown leader")?;
        schedulers.remove(at).1.crash().await?;
        led.push(leader);
    }
    println!("each was killed after it had led; the next one led within a ttl of {TTL:?} and a moment");
    Ok(())
}
