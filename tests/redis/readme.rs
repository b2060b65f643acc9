//! The first program of the README, which must leave nothing behind.

use std::time::Duration;

use redquorum::Redlock;
use redquorum_testkit::{Fleet, Program};

use crate::support::{TIMEOUT, beside_others};

const README: &str = include_str!("../../README.md");
const HERE: &str = include_str!("readme.rs");

/// As the README has it, but for the addresses, and with the timeout for a machine that stands still now and then.
#[rustfmt::skip]
async fn first_program(addresses: [String; 3]) -> Result<(), Box<dyn std::error::Error>> {
    let redlock = Redlock::builder()
        .instances(addresses).instance_timeout(TIMEOUT)
        .max_hold(Duration::from_secs(600)) // renewal ends then, so a task that is stuck loses its lock
        .connect()
        .await?;

    println!("waiting for the lock; new instances grant their first one after 10 s (max_ttl)");
    let guard = redlock.lock("orders:42").acquire().await?; // waits until the lock is free, then renews it
    println!("valid for {:?}, token {}", guard.remaining(), guard.fencing_token());
    guard.release().await?; // or drop the guard: it is released in the background

    match redlock.lock("orders:42").try_acquire().await {
        Ok(guard) => drop(guard),
        Err(error) => match error.held_by() {
            Some(held_by) => println!("contended: {held_by}"),
            None => println!("not acquired: {error}"), // names each instance and its cause
        },
    }

    // Locks that are held get half a minute to be released, and are renewed meanwhile; the rest is lost.
    redlock.shutdown_gracefully(Duration::from_secs(30), Duration::from_secs(1)).await?;
    Ok(())
}

/// What stands between the first line of a function and its end.
fn body<'a>(text: &'a str, head: &str) -> Vec<&'a str> {
    let body = text.lines().skip_while(|line| !line.starts_with(head)).skip(1).take_while(|line| *line != "}");
    body.filter(|line| !line.trim_start().starts_with(".instances(")).collect()
}

#[test]
fn the_first_program_here_is_that_of_the_readme() {
    let readme = body(README, "async fn main()");
    assert!(readme.len() > 15, "{readme:?}");
    assert_eq!(readme, body(HERE, "async fn first_program("));
}

/// Without the shutdown at its end it left locks behind in 5 of 12 runs, and the next one waited for
/// them to expire.
#[test]
fn the_first_program_of_the_readme_leaves_no_lock_behind() {
    let _shared = beside_others();
    for program in Program::all_required().unwrap() {
        let fleet = Fleet::start(&program, 3).unwrap();
        for run in 0..12 {
            let addresses = [0, 1, 2].map(|number| fleet[number].address());
            // As `#[tokio::main]` does it: the runtime ends as soon as `main` returns.
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
            runtime.block_on(first_program(addresses)).unwrap();
            drop(runtime);
            let left: Vec<String> = fleet.iter().flat_map(|server| server.keys().unwrap()).collect();
            assert!(left.is_empty(), "run {run} on {program} left {left:?}");
        }
    }
}
