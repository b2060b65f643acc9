//! A fleet of eight downloads from a partner who allows three at a time, and cuts off the fourth.
//!
//! `cargo run -p redquorum-examples --bin downloads`

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use redquorum_examples::stage::{Stage, role};
use redquorum_examples::worker::Worker;
use redquorum_examples::{Outcome, check, ms};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

const WORKERS: usize = 8;
const FILES: usize = 5;
const ALLOWED: u32 = 3;

/// The partner: how many connections there are now, at most, and refused.
#[derive(Default)]
struct Partner {
    now: AtomicUsize,
    most: AtomicUsize,
    refused: AtomicUsize,
}

impl Partner {
    async fn serve(self: Arc<Self>, listener: TcpListener) -> Outcome {
        loop {
            let (mut connection, _) = listener.accept().await?;
            let partner = Arc::clone(&self);
            let now = partner.now.fetch_add(1, Ordering::SeqCst) + 1;
            partner.most.fetch_max(now, Ordering::SeqCst);
            tokio::spawn(async move {
                if now > ALLOWED as usize {
                    partner.refused.fetch_add(1, Ordering::SeqCst);
                } else {
                    sleep(ms(30)).await;
                    let _ = connection.write_all(b"file").await;
                }
                partner.now.fetch_sub(1, Ordering::SeqCst); // before the next download begins
            });
        }
    }
}

async fn download(address: &str) -> Outcome {
    let mut file = Vec::new();
    TcpStream::connect(address).await?.read_to_end(&mut file).await?;
    Ok(())
}

async fn worker(mode: &str, address: &str) -> Outcome {
    let redlock = Stage::of_parent()?.redlock().await?;
    let downloads = redlock.semaphore("downloads", ALLOWED);
    println!("ready");
    for _ in 0..FILES {
        if mode == "with" {
            let permit = downloads.acquire().await?; // three in all processes together
            download(address).await?;
            permit.release().await?;
        } else {
            download(address).await?;
        }
    }
    redlock.shutdown(ms(2_000)).await?;
    Ok(())
}

async fn show(stage: &Stage, mode: &str) -> Outcome {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    let partner = Arc::<Partner>::default();
    let serving = tokio::spawn(Arc::clone(&partner).serve(listener));
    let mut workers: Vec<Worker> = Vec::new();
    for _ in 0..WORKERS {
        workers.push(stage.spawn(&[mode, &address])?);
    }
    for worker in workers {
        worker.end().await?;
    }
    serving.abort();
    let [most, refused] = [&partner.most, &partner.refused].map(|count| count.load(Ordering::SeqCst));
    println!("{mode} permits: {most} at a time at most, {refused} of {} downloads were refused", WORKERS * FILES);
    check((refused == 0) == (mode == "with"), "with permits none is refused, without some are")
}

#[tokio::main]
async fn main() -> Outcome {
    if let [mode, address] = &*role() {
        return worker(mode, address).await;
    }
    let stage = Stage::start().await?;
    show(&stage, "without").await?;
    show(&stage, "with").await
}
