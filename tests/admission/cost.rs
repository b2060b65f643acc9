//! What admission costs on the server.
//!
//! `cargo test --release --test admission cost -- --ignored --nocapture`

use std::time::Duration;

use redquorum::{Admission, Redlock, Renewal};
use redquorum_testkit::{Program, Server};

use crate::support::{Outcome, SLACK, ms, on_every_kind};

const SHORT: Duration = Duration::from_secs(2);
const RUNS: usize = 9;
const LOCKS: usize = 4_000;

fn client(server: &Server, admission: Admission) -> Outcome<Redlock> {
    let builder = Redlock::builder()
        .instances([server.address()])
        .ttl(SHORT)
        .max_ttl(SHORT)
        .renew(Renewal::Off)
        .admission(admission);
    Ok(builder.instance_timeout(ms(1_000)).build()?)
}

/// The commands that a number of uncontended locks take, and the time of each, in microseconds.
async fn run(server: &Server, redlock: &Redlock, prefix: &str, locks: usize) -> Outcome<(u64, f64)> {
    server.reset_stats()?;
    let mut held = Vec::with_capacity(locks);
    for lock in 0..locks {
        held.push(redlock.lock(format!("{prefix}:{lock}")).try_acquire().await?);
    }
    let scripts = server.calls("evalsha")?;
    // Plain commands where no script was needed (P28).
    let names: &[&str] = if scripts > 0 { &["evalsha"] } else { &["set", "zadd", "get"] };
    let mut us = 0.0;
    for name in names {
        us += server.usec_per_call(name)?.unwrap_or(0.0);
    }
    let figures = (scripts, us);
    assert_eq!(server.calls("set")?, locks as u64, "once for each lock");
    for guard in held {
        guard.release().await?;
    }
    Ok(figures)
}

#[test]
fn the_check_takes_no_script_and_no_round_trip_more() -> Outcome {
    on_every_kind(|program| async move {
        let server = Server::start(&program)?;
        for mode in [Admission::On, Admission::Off] {
            let redlock = client(&server, mode)?;
            redlock.lock("first").wait_at_most(SHORT + SLACK).acquire().await?.release().await?;
            let (commands, _) = run(&server, &redlock, "few", 20).await?;
            assert_eq!(commands, if mode == Admission::On { 0 } else { 20 }, "the first request is plain");
            assert_eq!(server.calls("eval")? + server.calls("script|load")?, 0);
        }
        Ok(())
    })
}

#[test]
#[ignore = "a measurement; run it alone, in a release build"]
fn the_cost_of_the_check() -> Outcome {
    for program in Program::all_required()? {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(measure(&program))?;
    }
    Ok(())
}

async fn measure(program: &Program) -> Outcome {
    let server = Server::start(program)?;
    let (on, off) = (client(&server, Admission::On)?, client(&server, Admission::Off)?);
    on.lock("first").wait_at_most(SHORT + SLACK).acquire().await?.release().await?;
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for round in 0..RUNS {
        with.push(run(&server, &on, &format!("on:{round}"), LOCKS).await?.1);
        without.push(run(&server, &off, &format!("off:{round}"), LOCKS).await?.1);
    }
    let (with, without) = (median(with), median(without));
    println!("{program}: with {with:.2} us, without {without:.2} us: {:+.1} %", (with / without - 1.0) * 100.0);
    Ok(())
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
