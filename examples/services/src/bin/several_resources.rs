//! Transfers between accounts: each reads two balances, works, and writes both. The locks of both accounts, held together,
//! named in any order.
//!
//! `cargo run -p redquorum-examples --bin several_resources`

use std::sync::Arc;

use redquorum::Redlock;
use redquorum_examples::database::Connection;
use redquorum_examples::stage::Stage;
use redquorum_examples::{Outcome, check, ms};
use tokio::task::JoinSet;
use tokio::time::sleep;

const ACCOUNTS: i64 = 4;
const START: i64 = 1_000;

async fn transfer(database: &Connection, from: i64, to: i64, amount: i64) -> Outcome {
    let balance = "SELECT balance FROM account WHERE id = $1";
    let left = database.number(balance, &[from.into()]).await? - amount;
    let right = database.number(balance, &[to.into()]).await? + amount;
    sleep(ms(2)).await; // it checks whether this is allowed
    for (id, balance) in [(from, left), (to, right)] {
        let sql = "UPDATE account SET balance = $1 WHERE id = $2";
        database.execute(sql, &[balance.into(), id.into()]).await?;
    }
    Ok(())
}

async fn show(servers: &[Arc<(Redlock, Connection)>], with_lock: bool) -> Outcome {
    let database = &servers[0].1;
    database.execute("UPDATE account SET balance = $1", &[START.into()]).await?;
    let mut expected = vec![START; usize::try_from(ACCOUNTS)?];
    let mut transfers = JoinSet::new();
    for number in 0..120 {
        let server = Arc::clone(&servers[usize::try_from(number)? % servers.len()]);
        let from = number % ACCOUNTS;
        let to = (from + 1 + number / ACCOUNTS % (ACCOUNTS - 1)) % ACCOUNTS;
        let amount = 1 + number % 7;
        expected[usize::try_from(from)?] -= amount;
        expected[usize::try_from(to)?] += amount;
        transfers.spawn(async move {
            let (redlock, database) = &*server;
            if with_lock {
                let accounts = redlock.namespace("account:").lock_all([from, to]);
                accounts.run(async |_tokens| transfer(database, from, to, amount).await).await?
            } else {
                transfer(database, from, to, amount).await
            }
        });
    }
    while let Some(transfer) = transfers.join_next().await {
        transfer??;
    }
    let mut balances = Vec::new();
    for id in 0..ACCOUNTS {
        balances.push(database.number("SELECT balance FROM account WHERE id = $1", &[id.into()]).await?);
    }
    let how = if with_lock { "with" } else { "without" };
    println!("{how} the lock: the balances are {balances:?}, and {expected:?} were right");
    // The sum would not do: what one transfer loses another one may gain.
    check((balances == expected) == with_lock, "with the lock alone nothing is gained or lost")
}

#[tokio::main]
async fn main() -> Outcome {
    let stage = Stage::start().await?;
    let servers = stage.two_servers().await?;
    let database = &servers[0].1;
    database.execute("CREATE TABLE account (id BIGINT NOT NULL, balance BIGINT NOT NULL)", &[]).await?;
    for id in 0..ACCOUNTS {
        database.execute("INSERT INTO account VALUES ($1, 0)", &[id.into()]).await?;
    }
    println!("120 transfers between {ACCOUNTS} accounts, at two servers:");
    show(&servers, false).await?;
    show(&servers, true).await?;
    for server in &servers {
        server.0.shutdown(ms(2_000)).await?;
    }
    Ok(())
}
