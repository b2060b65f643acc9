//! Sign-ins that look for an account, and insert one if there is none. Two that come at once both insert.
//!
//! `cargo run -p redquorum-examples --bin duplicate_insert`

use std::sync::Arc;

use redquorum::Redlock;
use redquorum_examples::database::Connection;
use redquorum_examples::stage::Stage;
use redquorum_examples::{Outcome, check, ms};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::sleep;

const PEOPLE: i64 = 200;
/// Each sign-in comes three times: the app is impatient.
const REQUESTS: i64 = 3;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    WithoutLock,
    /// The second request waits for the first one, and then finds the account.
    Waits,
    /// The second request is dropped.
    Drops,
}

/// The service. Nothing in it is wrong while requests come one after the other.
async fn sign_in(database: &Connection, person: i64) -> Outcome {
    if database.number("SELECT COUNT(*) FROM account WHERE open_id = $1", &[person.into()]).await? == 0 {
        sleep(ms(2)).await; // it fetches the name and the picture
        database.execute("INSERT INTO account (open_id) VALUES ($1)", &[person.into()]).await?;
    }
    Ok(())
}

/// Handles one request, and says whether it was dropped.
async fn handle(mode: Mode, redlock: &Redlock, database: &Connection, person: i64) -> Outcome<bool> {
    let lock = redlock.lock(format!("sign-in:{person}"));
    match mode {
        Mode::WithoutLock => sign_in(database, person).await?,
        Mode::Waits => lock.run(async |_lease| sign_in(database, person).await).await??,
        Mode::Drops => match lock.try_run(async |_lease| sign_in(database, person).await).await? {
            Some(signed_in) => signed_in?,
            None => return Ok(true),
        },
    }
    Ok(false)
}

async fn show(mode: Mode, what: &str, servers: &[Arc<(Redlock, Connection)>]) -> Outcome {
    let database = &servers[0].1;
    database.execute("DELETE FROM account", &[]).await?;
    let (mut requests, at_once) = (JoinSet::new(), Arc::new(Semaphore::new(60)));
    for number in 0..PEOPLE * REQUESTS {
        let server = Arc::clone(&servers[usize::try_from(number)? % servers.len()]);
        let place = Arc::clone(&at_once).acquire_owned().await?;
        requests.spawn(async move {
            let _place = place;
            handle(mode, &server.0, &server.1, number / REQUESTS).await
        });
    }
    let mut dropped = 0;
    while let Some(request) = requests.join_next().await {
        dropped += u32::from(request??);
    }
    let rows = database.number("SELECT COUNT(*) FROM account", &[]).await?;
    let people = database.number("SELECT COUNT(DISTINCT open_id) FROM account", &[]).await?;
    println!("{what}: {people} people have {rows} accounts; {dropped} requests were dropped");
    check(people == PEOPLE, "everybody has an account")?;
    check((rows > people) == (mode == Mode::WithoutLock), "there are duplicates without the lock alone")
}

#[tokio::main]
async fn main() -> Outcome {
    let stage = Stage::start().await?;
    let servers = stage.two_servers().await?;
    servers[0].1.execute("CREATE TABLE account (open_id BIGINT NOT NULL)", &[]).await?; // no unique index
    println!("{PEOPLE} people sign in, {REQUESTS} requests each, at two servers:");
    show(Mode::WithoutLock, "without the lock", &servers).await?;
    show(Mode::Waits, "the second waits", &servers).await?;
    show(Mode::Drops, "the second is dropped", &servers).await?;
    for server in &servers {
        server.0.shutdown(ms(2_000)).await?;
    }
    Ok(())
}
