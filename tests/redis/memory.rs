//! What a hung instance may cost.

use std::fs;

use redquorum::Redlock;

use crate::support::{
    PATIENCE, SHORT_TIMEOUT, all_vote, alone_on_each_kind, builder_of, fleet_of, free_within, pair_on_a_bad_day, ready,
};

const PAIRS: usize = if cfg!(debug_assertions) { 4_000 } else { 20_000 };
const TASKS: usize = 16;

/// How much the process may grow once queues and buffers are full. Each pair would need a kilobyte if what is meant
/// for the hung instance were kept.
const MOST_GROWTH: usize = PAIRS * 512;

/// How much it may grow until then, with what an allocator keeps for later.
const MOST_AT_FIRST: usize = 32 * 1024 * 1024;

/// What Linux counts in, on the machines that these tests run on.
const PAGE: usize = 4096;

/// The resident memory of this process, in bytes; `None` where the system does not tell.
pub(crate) fn resident() -> Option<usize> {
    let pages: usize = fs::read_to_string("/proc/self/statm").ok()?.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * PAGE)
}

async fn work(redlock: &Redlock, pairs: usize) {
    let task = |task: usize| {
        let redlock = redlock.clone();
        tokio::spawn(async move {
            for _ in 0..pairs / TASKS {
                pair_on_a_bad_day(&redlock, &format!("task-{task}")).await;
            }
        })
    };
    for task in (0..TASKS).map(task).collect::<Vec<_>>() {
        task.await.unwrap();
    }
}

#[test]
fn a_hung_instance_costs_a_bounded_amount_of_memory() {
    alone_on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        // Short, so that silence is known long before the first half is over.
        let redlock = ready(builder_of(&fleet).instance_timeout(SHORT_TIMEOUT)).await;
        work(&redlock, PAIRS / 4).await;
        let Some(healthy) = resident() else { return };
        fleet[4].hang().unwrap();
        work(&redlock, PAIRS).await;
        let full = resident().unwrap_or(healthy);
        work(&redlock, PAIRS).await;
        let growth = resident().unwrap_or(full).saturating_sub(full);
        let at_first = full.saturating_sub(healthy);
        println!("{PAIRS} pairs: {at_first} bytes more; as many again: {growth} more");
        assert!(at_first <= MOST_AT_FIRST && growth <= MOST_GROWTH, "{at_first}, then {growth} bytes more");
        fleet[4].resume().unwrap();
        all_vote(&redlock).await;
        free_within(PATIENCE, &fleet).await;
        assert_eq!(redlock.shutdown(PATIENCE).await, Ok(Vec::new()));
    });
}
