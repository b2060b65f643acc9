//! Many requests on their way while an instance forgets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redquorum::{Admission, Guard, Redlock};
use redquorum_testkit::Program;
use tokio::time::sleep;

use crate::support::{LOCK, Outcome, Stage, ms, with_and_without};

/// What the tasks share: whether to go on, and whether anyone of them got the lock.
#[derive(Default)]
struct Tasks {
    over: AtomicBool,
    acquired: AtomicBool,
}

/// Tries again and again, few at once: many would take votes from each other.
async fn hammer(redlock: Redlock, tasks: Arc<Tasks>) {
    while !tasks.over.load(Ordering::SeqCst) {
        let got = redlock.lock(LOCK).wait_at_most(ms(50)).acquire().await;
        if got.is_ok() && !tasks.over.load(Ordering::SeqCst) {
            tasks.acquired.store(true, Ordering::SeqCst);
        }
    }
}

/// Locks other resources without pause, so that requests are on their way at every moment.
async fn crowd(redlock: Redlock, tasks: Arc<Tasks>, index: usize) {
    while !tasks.over.load(Ordering::SeqCst) {
        drop(redlock.lock(format!("others:{index}")).try_acquire().await);
        sleep(ms(1)).await;
    }
}

/// Lets `tasks` hammer on while the event happens, until shortly before the lease ends.
async fn during(stage: &Stage, guard: &Guard, tasks: &Tasks, event: impl Fn() -> Outcome) -> Outcome {
    sleep(ms(200)).await;
    event()?;
    sleep(ms(100)).await;
    for server in stage.fleet.iter() {
        server.command(&["SCRIPT", "FLUSH"])?;
    }
    while guard.remaining() > ms(300) && !tasks.acquired.load(Ordering::SeqCst) {
        sleep(ms(20)).await;
    }
    // A client that is told of a lock from here on may have been granted it after the lease.
    let acquired = tasks.acquired.load(Ordering::SeqCst) && guard.is_valid();
    tasks.over.store(true, Ordering::SeqCst);
    tasks.acquired.store(acquired, Ordering::SeqCst);
    Ok(())
}

/// With admission nobody else ever gets the lock. Without it a client does, though not every time:
/// those who try also take votes from each other.
async fn scenario(program: Program, mode: Admission, event: fn(&Stage) -> Outcome) -> Outcome {
    if mode != Admission::Off {
        assert!(!second_holder(&program, mode, event).await?, "a second holder");
        return Ok(());
    }
    for _ in 0..6 {
        if second_holder(&program, mode, event).await? {
            return Ok(());
        }
    }
    Err("no second holder without admission: this test shows nothing".into())
}

/// Whether anybody else got the lock while it was held.
async fn second_holder(program: &Program, mode: Admission, event: fn(&Stage) -> Outcome) -> Outcome<bool> {
    let stage = Stage::start(program, mode).await?;
    let holder = stage.client().await?;
    let clients = [stage.client().await?, stage.client().await?, holder.clone()];
    let guard = stage.hold_bare_majority(&holder).await?;
    let tasks = Arc::<Tasks>::default();
    let spawn = |redlock: &Redlock| tokio::spawn(hammer(redlock.clone(), Arc::clone(&tasks)));
    let mut hammers: Vec<_> = clients.iter().map(spawn).collect();
    hammers.push(spawn(&stage.builder().build()?)); // connects right before the event
    for index in 0..24 {
        let client = clients[index % clients.len()].clone();
        hammers.push(tokio::spawn(crowd(client, Arc::clone(&tasks), index)));
    }
    during(&stage, &guard, &tasks, || event(&stage)).await?;
    for hammer in hammers {
        hammer.await?;
    }
    Ok(tasks.acquired.load(Ordering::SeqCst))
}

#[test]
fn no_request_on_its_way_gets_past_a_flush() -> Outcome {
    with_and_without(Program::all_required()?, |program, mode| {
        scenario(program, mode, |stage| Ok(stage.third().command(&["FLUSHALL"]).map(drop)?))
    })
}

#[test]
fn no_request_on_its_way_gets_past_a_restart() -> Outcome {
    with_and_without(Program::all_required()?, |program, mode| {
        scenario(program, mode, |stage| Ok(stage.third().restart()?))
    })
}
