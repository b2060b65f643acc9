//! A queue delivers each order several times, to several processes at once. Each order is to be stored once.
//!
//! `cargo run -p redquorum-examples --bin order_once`

use std::sync::Arc;

use redquorum::{Holder, Redlock};
use redquorum_examples::database::Connection;
use redquorum_examples::stage::{Stage, role};
use redquorum_examples::{Outcome, check, ms};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::sleep;

const ORDERS: i64 = 300;
const PROCESSES: i64 = 3;
/// 3 000 in all, so six or twelve of each order.
const DELIVERIES: i64 = 1000;

async fn store(database: &Connection, order: i64) -> Outcome {
    if database.number("SELECT COUNT(*) FROM orders WHERE id = $1", &[order.into()]).await? == 0 {
        sleep(ms(1)).await; // it checks the stock
        database.execute("INSERT INTO orders (id) VALUES ($1)", &[order.into()]).await?;
    }
    Ok(())
}

/// Handles a delivery under a lock whose holder is the delivery's own id.
///
/// Now and then the first worker dies with the lock in its hands. Its successor has the same id, so it
/// goes on at once instead of waiting until the lock runs out.
async fn handle(redlock: &Redlock, database: &Connection, order: i64, delivery: &str, dies: bool) -> Outcome {
    let lock = redlock.lock(format!("order:{order}")).holder(Holder::from(delivery));
    if dies {
        lock.acquire().await?.keep_for(ms(0)).await?;
    }
    lock.run(async |_lease| store(database, order).await).await?
}

async fn deliver(process: i64, with_lock: bool) -> Outcome {
    let stage = Stage::of_parent()?;
    let (redlock, database) = (stage.redlock().await?, Arc::new(stage.database().await?));
    println!("ready");
    let (mut deliveries, at_once) = (JoinSet::new(), Arc::new(Semaphore::new(50)));
    for number in 0..DELIVERIES {
        let (redlock, database) = (redlock.clone(), Arc::clone(&database));
        let place = Arc::clone(&at_once).acquire_owned().await?;
        deliveries.spawn(async move {
            let _place = place;
            let order = number / 2 % ORDERS; // each comes twice at once, and again later
            if with_lock {
                let delivery = format!("delivery-{process}-{number}");
                handle(&redlock, &database, order, &delivery, number % 100 == 99).await
            } else {
                store(&database, order).await
            }
        });
    }
    while let Some(delivery) = deliveries.join_next().await {
        delivery??;
    }
    redlock.shutdown(ms(5_000)).await?;
    Ok(())
}

async fn show(stage: &Stage, database: &Connection, mode: &str) -> Outcome {
    database.execute("DELETE FROM orders", &[]).await?;
    let mut workers = Vec::new();
    for process in 0..PROCESSES {
        workers.push(stage.spawn(&[&process.to_string(), mode])?);
    }
    for mut worker in workers {
        worker.line().await?;
        worker.end().await?;
    }
    let rows = database.number("SELECT COUNT(*) FROM orders", &[]).await?;
    let orders = database.number("SELECT COUNT(DISTINCT id) FROM orders", &[]).await?;
    println!("{mode} the lock: {orders} orders have {rows} rows");
    check(orders == ORDERS, "every order is stored")?;
    check((rows == orders) == (mode == "with"), "each is stored once with the lock, and some twice without")
}

#[tokio::main]
async fn main() -> Outcome {
    if let [process, mode] = &*role() {
        return deliver(process.parse()?, mode == "with").await;
    }
    let stage = Stage::start().await?;
    let database = stage.database().await?;
    database.execute("CREATE TABLE orders (id BIGINT NOT NULL)", &[]).await?;
    drop(stage.redlock().await?); // the new servers vote from now on
    println!("{} deliveries of {ORDERS} orders to {PROCESSES} processes:", PROCESSES * DELIVERIES);
    show(&stage, &database, "without").await?;
    show(&stage, &database, "with").await
}
