//! A job that takes far longer than its lock's ttl, and what happens when the lock is deleted meanwhile.
//!
//! `cargo run --example run`. The instances are inside the process and push nothing: the next renewal
//! finds the lock gone. With servers that push changes that takes a few round trips.

use std::time::Duration;

use redquorum::testing::Cluster;
use redquorum::{Holder, LeaseView, RunError};
use tokio::time::sleep;

const TTL: Duration = Duration::from_millis(600);

/// Steps of a job; each would write with the token.
async fn job(steps: u32, lease: LeaseView) -> u32 {
    let mut last = Said("the job was dropped where it waited");
    for step in 1..=steps {
        println!("  step {step}, token {}, valid for {:.0?}", lease.fencing_token(), lease.remaining());
        sleep(TTL / 2).await;
    }
    last.0 = "the job came to its end";
    steps
}

/// Says how it ended, also if it is dropped.
struct Said(&'static str);

impl Drop for Said {
    fn drop(&mut self) {
        println!("  {}", self.0);
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cluster = Cluster::new(5);
    let redlock = cluster.builder().ttl(TTL).max_ttl(TTL).connect().await?;

    println!("A job of six steps under a lock with a ttl of {TTL:?}:");
    let steps = redlock.lock("job:nightly").run(|lease| job(6, lease)).await?;
    println!("It did {steps} steps.\n");

    println!("Again; after a while an operator deletes the lock on three of five instances:");
    let operator = async {
        sleep(TTL * 5 / 4).await;
        println!("  -- deleted --");
        for instance in cluster.instances().take(3) {
            instance.remove("job:nightly");
        }
    };
    let (run, ()) = tokio::join!(redlock.lock("job:nightly").run(|lease| job(6, lease)), operator);
    match run {
        Err(RunError::Lost(loss)) => println!("Lost: {loss}\n"),
        other => return Err(format!("not lost: {other:?}").into()),
    }

    println!("A request is locked. What it calls locks it too, in its name, and then somebody else tries:");
    let request = || Holder::from("request-8f3c");
    let first = redlock.lock("order:42").holder(request()).acquire().await?;
    let second = redlock.lock("order:42").holder(request()).try_acquire().await?;
    println!("  it goes on at once; is its token the same? {}", second.fencing_token() == first.fencing_token());
    let refused = redlock.lock("order:42").try_acquire().await;
    println!("  somebody else: {}", refused.err().map(|error| error.to_string()).unwrap_or_default());
    Ok(())
}
