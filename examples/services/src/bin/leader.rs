//! One of three processes leads. It is killed, and another takes over; that one gets SIGTERM, and the last takes over.
//!
//! `cargo run -p redquorum-examples --bin leader`

use redquorum::Loss;
use redquorum_examples::stage::{Stage, role};
use redquorum_examples::worker::Worker;
use redquorum_examples::{Outcome, TTL, check, ms, now};
use rustix::process::Signal;
use tokio::select;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{sleep, timeout};

/// Leads until SIGTERM or until it has lost the lead, and then begins again at the end of the queue.
async fn candidate() -> Outcome {
    let mut stop = signal(SignalKind::terminate())?;
    let redlock = Stage::of_parent()?.redlock().await?;
    let lead = redlock.lock("leader");
    println!("ready");
    loop {
        let guard = select! {
            guard = lead.acquire() => guard?, // waits until the lead is free
            _ = stop.recv() => break,
        };
        println!("leads");
        let loss: Option<Loss> = select! {
            () = work() => None,
            loss = guard.lost() => Some(loss), // the work of the leader must stop now
            _ = stop.recv() => None,
        };
        match loss {
            Some(loss) => eprintln!("no longer leads: {loss}"),
            None => {
                guard.release().await?;
                break;
            }
        }
    }
    redlock.shutdown(ms(2_000)).await?;
    Ok(())
}

/// Without a lock each process believes that it leads.
async fn everybody_leads() -> Outcome {
    println!("ready");
    println!("leads");
    work().await;
    Ok(())
}

async fn work() {
    loop {
        sleep(ms(20)).await;
    }
}

async fn start(stage: &Stage, mode: &str) -> Outcome<Vec<Worker>> {
    let mut candidates = Vec::new();
    for _ in 0..3 {
        let mut candidate = stage.spawn(&[mode])?;
        candidate.line().await?;
        candidates.push(candidate);
    }
    Ok(candidates)
}

/// How many say within a while that they lead; the first of them is put in front.
async fn leaders(candidates: &mut [Worker]) -> usize {
    let mut found = 0;
    for at in 0..candidates.len() {
        if matches!(timeout(ms(1_000), candidates[at].line()).await, Ok(Ok(_))) {
            candidates.swap(found, at);
            found += 1;
        }
    }
    found
}

/// Waits until one of them leads, and puts it in front.
async fn next_leader(candidates: &mut [Worker]) -> Outcome {
    let at = match candidates {
        [first, second] => select! {
            line = first.line() => line.map(|_| 0)?,
            line = second.line() => line.map(|_| 1)?,
        },
        [last] => last.line().await.map(|_| 0)?,
        _ => return Err("nobody is left".into()),
    };
    candidates.swap(0, at);
    Ok(())
}

#[tokio::main]
async fn main() -> Outcome {
    match role().first().map(String::as_str) {
        Some("with") => return candidate().await,
        Some(_) => return everybody_leads().await,
        None => {}
    }
    let stage = Stage::start().await?;
    let lead = leaders(&mut start(&stage, "without").await?).await;
    println!("without the lock: {lead} of 3 processes lead");
    check(lead == 3, "without a lock everybody leads")?;

    let mut candidates = start(&stage, "with").await?;
    let lead = leaders(&mut candidates).await;
    println!("with the lock: {lead} of 3 processes leads");
    check(lead == 1, "with the lock one leads")?;

    let begun = now();
    candidates.remove(0).crash().await?;
    next_leader(&mut candidates).await?;
    println!(
        "  it is killed: another leads {:.1?} later; its lock had to run out, with a ttl of {TTL:?}",
        begun.elapsed()
    );
    let begun = now();
    let told = candidates.remove(0);
    told.signal(Signal::TERM)?;
    next_leader(&mut candidates).await?;
    println!("  that one is told to stop: the next leads {:.1?} later", begun.elapsed());
    told.end().await
}
