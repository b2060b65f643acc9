//! An exhaustive search of a small world: three instances, two clients, one resource.
//!
//! Time is counted in ticks. Client 0 acquires, extends once and releases; client 1 acquires. Any
//! message may be carried out late or never, one instance may be restarted (empty or from disk) and
//! one may be flushed, at any moment. Every order of all that is visited.

#![expect(clippy::panic, clippy::cast_possible_truncation, reason = "test code")]

mod lock;

use lock::{Broken, Lock};
use stateright::{Checker, Model};

/// All states that can be reached with every rule in force. A change of a rule changes it.
const STATES: usize = 832_723;

fn counter_example(broken: Broken, property: &'static str) -> Vec<String> {
    // Deeper and deeper, so that the trace that is found is one of the shortest.
    let search = |depth| Lock { broken }.checker().target_max_depth(depth).spawn_bfs().join().discovery(property);
    let path = (5..25).find_map(search).unwrap_or_else(|| panic!("{broken:?} must break {property}"));
    path.into_actions().iter().map(|action| format!("{action:?}")).collect()
}

#[test]
#[cfg_attr(debug_assertions, ignore = "takes minutes without optimization")]
fn with_every_rule_no_state_breaks_mutual_exclusion_or_the_order_of_tokens() {
    let checker = Lock { broken: Broken::Nothing }.checker().symmetry().spawn_dfs().join();
    println!("{} states", checker.unique_state_count());
    checker.assert_properties();
    assert_eq!(checker.unique_state_count(), STATES);
}

#[test]
fn with_a_quorum_of_half_two_clients_hold_the_lock() {
    let trace = counter_example(Broken::HalfQuorum, "mutual exclusion");
    assert_eq!(trace, ["Acquire(0)", "Serve(0, 2)", "Acquire(1)", "Serve(1, 1)"]);
}

#[test]
fn without_admission_a_flushed_instance_helps_a_second_holder() {
    let trace = counter_example(Broken::NoAdmission, "mutual exclusion");
    assert_eq!(
        trace,
        ["Acquire(0)", "Serve(0, 2)", "Acquire(1)", "Serve(1, 0)", "Serve(1, 1)", "Flush(1)", "Serve(0, 1)"]
    );
}

#[test]
fn without_the_stale_check_a_later_holder_has_no_larger_token() {
    let trace = counter_example(Broken::NoStaleCheck, "fencing order");
    assert_eq!(
        trace,
        [
            "Acquire(0)",
            "Serve(0, 1)",
            "Serve(0, 2)",
            "Release(0)",
            "ServeRelease(0, 2)",
            "Acquire(1)",
            "Serve(1, 0)",
            "Serve(1, 2)"
        ]
    );
}

#[test]
#[cfg_attr(debug_assertions, ignore = "takes minutes without optimization")]
fn a_key_that_counts_in_quarantine_is_forgotten_when_the_process_is_still_young() {
    let trace = counter_example(Broken::ExtendInQuarantine, "mutual exclusion");
    assert_eq!(
        trace,
        [
            "Acquire(0)",
            "Serve(0, 1)",
            "Serve(0, 2)",
            "RestartFromDisk(2)",
            "Tick",
            "Extend(0)",
            "Serve(0, 1)",
            "Serve(0, 2)",
            "Acquire(1)",
            "Serve(1, 0)",
            "Flush(2)",
            "Tick",
            "Serve(1, 2)"
        ]
    );
}
