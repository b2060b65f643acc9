//! Exhaustive searches of small worlds: three instances, two clients, one resource; the same with lists of instances that
//! differ; and three clients, one of which is named by the other's release.
//!
//! In the first, time is counted in ticks. Client 0 acquires, extends once and releases; client 1 acquires. Any
//! message may be carried out late or never, one instance may be restarted (empty or from disk) and
//! one may be flushed, or another database of it, at any moment. A quarantined instance keeps what it has. Every order of all that is visited.

#![expect(clippy::panic, clippy::cast_possible_truncation, reason = "test code")]

use std::collections::BTreeSet;

mod lock;
mod succession;

use lock::{Accidents, Broken, List, Lock};
use stateright::{Checker, HasDiscoveries, Model};
use succession::{Planted, Succession};

/// All states that can be reached with every rule in force. A change of a rule changes it.
const SUCCESSION_STATES: usize = 991_894;
const KEPT_BEHIND_STATES: usize = 2_718_151;

/// Both clients use the same instances.
const SAME: [List; 2] = [List(0, 3); 2];

const ONE_OF_EACH: Accidents = Accidents { restarts: 1, flushes: 1 };
/// So that one strikes in the quarantine of the other.
const TWO_FLUSHES: Accidents = Accidents { restarts: 0, flushes: 2 };

/// With every rule in force no state breaks a property; there are so many, and a change of a rule changes that.
fn check_lists<const N: usize>(lists: [List; 2], accidents: Accidents, states: usize) {
    let checker = Lock::<N> { broken: Broken::Nothing, lists, accidents }.checker().symmetry().spawn_dfs().join();
    println!("{lists:?}, {accidents:?}: {} states", checker.unique_state_count());
    checker.assert_properties();
    assert_eq!(checker.unique_state_count(), states);
}

fn counter_example(broken: Broken, property: &'static str) -> Vec<String> {
    counter_example_of_lists::<3>(SAME, ONE_OF_EACH, broken, property)
}

fn counter_example_of_lists<const N: usize>(
    lists: [List; 2],
    accidents: Accidents,
    broken: Broken,
    property: &'static str,
) -> Vec<String> {
    // Deeper and deeper, so that the trace that is found is one of the shortest.
    let search = |depth| {
        Lock::<N> { broken, lists, accidents }.checker().target_max_depth(depth).spawn_bfs().join().discovery(property)
    };
    let path = (5..25).find_map(search).unwrap_or_else(|| panic!("{broken:?} must break {property}"));
    path.into_actions().iter().map(|action| format!("{action:?}")).collect()
}

fn counter_example_of_succession(planted: Planted, property: &'static str) -> Vec<String> {
    // Breadth first: the trace that is found is one of the shortest.
    let until = HasDiscoveries::AnyOf(BTreeSet::from([property]));
    let kept_behind = planted == Planted::KeptUncompared;
    let path = Succession { planted, kept_behind }.checker().finish_when(until).spawn_bfs().join().discovery(property);
    let path = path.unwrap_or_else(|| panic!("{planted:?} must break {property}"));
    path.into_actions().iter().map(|action| format!("{action:?}")).collect()
}

#[test]
#[cfg_attr(debug_assertions, ignore = "takes minutes without optimization")]
fn with_every_rule_no_state_breaks_mutual_exclusion_or_the_order_of_tokens() {
    check_lists::<3>(SAME, ONE_OF_EACH, 1_849_454);
    check_lists::<3>(SAME, TWO_FLUSHES, 1_015_465);
}

/// P30: a client has an instance more than the other, or less, and everything else happens as well.
#[test]
#[cfg_attr(debug_assertions, ignore = "takes minutes without optimization")]
fn with_lists_that_differ_by_one_instance_no_state_breaks_mutual_exclusion_or_the_order_of_tokens() {
    check_lists::<3>([List(0, 2), List(0, 3)], ONE_OF_EACH, 713_768);
    check_lists::<3>([List(0, 3), List(0, 2)], ONE_OF_EACH, 2_189_262);
    check_lists::<4>([List(0, 3), List(0, 4)], ONE_OF_EACH, 10_299_227);
    check_lists::<4>([List(0, 4), List(0, 3)], ONE_OF_EACH, 13_119_267);
}

#[test]
fn with_a_list_that_is_longer_by_two_both_clients_hold_the_lock() {
    let trace =
        counter_example_of_lists::<5>([List(0, 3), List(0, 5)], ONE_OF_EACH, Broken::Nothing, "mutual exclusion");
    assert_eq!(
        trace,
        ["Acquire(0)", "Serve(0, 1)", "Serve(0, 2)", "Acquire(1)", "Serve(1, 0)", "Serve(1, 3)", "Serve(1, 4)"]
    );
}

#[test]
fn with_an_instance_replaced_in_one_step_both_clients_hold_the_lock() {
    let trace =
        counter_example_of_lists::<4>([List(0, 3), List(1, 4)], ONE_OF_EACH, Broken::Nothing, "mutual exclusion");
    assert_eq!(trace, ["Acquire(0)", "Serve(0, 0)", "Serve(0, 2)", "Acquire(1)", "Serve(1, 1)", "Serve(1, 3)"]);
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
fn a_flush_that_begins_no_new_quarantine_takes_what_an_extend_in_quarantine_relied_on() {
    let trace = counter_example_of_lists::<3>(SAME, TWO_FLUSHES, Broken::FlushForgotten, "mutual exclusion");
    assert_eq!(
        trace,
        [
            "Acquire(0)",
            "Serve(0, 1)",
            "Serve(0, 2)",
            "FlushAnotherDatabase(2)",
            "Tick",
            "Extend(0)",
            "Serve(0, 1)",
            "Serve(0, 2)",
            "Flush(2)",
            "Tick",
            "Acquire(1)",
            "Serve(1, 0)",
            "Serve(1, 2)",
        ]
    );
}

/// The instance has voted for somebody else, and lost that key.
#[test]
#[cfg_attr(debug_assertions, ignore = "takes minutes without optimization")]
fn a_key_that_an_extend_sets_in_quarantine_is_a_second_vote() {
    let trace = counter_example(Broken::RepairInQuarantine, "mutual exclusion");
    assert_eq!(
        trace,
        [
            "Acquire(0)",
            "Serve(0, 1)",
            "Serve(0, 2)",
            "Tick",
            "Extend(0)",
            "Serve(0, 1)",
            "Acquire(1)",
            "Serve(1, 0)",
            "Flush(0)",
            "Serve(0, 0)",
            "Tick",
            "Serve(1, 2)",
        ]
    );
}

#[test]
#[cfg_attr(debug_assertions, ignore = "takes minutes without optimization")]
fn with_every_rule_of_order_no_state_breaks_exclusion_tokens_or_what_is_kept() {
    for (kept_behind, states) in [(false, SUCCESSION_STATES), (true, KEPT_BEHIND_STATES)] {
        let checker = Succession { planted: Planted::Nothing, kept_behind }.checker().symmetry().spawn_dfs().join();
        println!("{} states", checker.unique_state_count());
        checker.assert_properties();
        assert_eq!(checker.unique_state_count(), states);
    }
}

#[test]
fn a_reservation_that_is_free_to_all_goes_to_the_poller() {
    let trace = counter_example_of_succession(Planted::ReservationForAll, "a key is kept for its client");
    assert_eq!(trace, ["Release(0)", "Ask(2)", "ServeRelease(0, 2)", "Serve(2, 2)"]);
}

#[test]
#[cfg_attr(debug_assertions, ignore = "takes minutes without optimization")]
fn a_successor_that_is_set_without_a_comparison_gets_in_beside_a_later_holder() {
    let trace = counter_example_of_succession(Planted::NamedUncompared, "mutual exclusion");
    assert_eq!(
        trace,
        [
            "Tick",
            "Tick",
            "Release(0)",
            "Ask(2)",
            "Ask(1)",
            "Serve(2, 0)",
            "Serve(2, 1)",
            "ServeRelease(0, 1)",
            "Serve(1, 1)",
            "Serve(1, 2)"
        ]
    );
}

#[test]
#[cfg_attr(debug_assertions, ignore = "takes minutes without optimization")]
fn a_reservation_that_is_declined_without_a_comparison_takes_the_lock_from_its_holder() {
    let trace = counter_example_of_succession(Planted::DeclinedUncompared, "mutual exclusion");
    assert_eq!(
        trace,
        [
            "Tick",
            "Tick",
            "Release(0)",
            "Ask(1)",
            "Ask(2)",
            "Serve(1, 0)",
            "Serve(2, 1)",
            "Serve(1, 2)",
            "Decline(2)",
            "Serve(2, 2)"
        ]
    );
}

#[test]
fn a_wake_up_that_counts_as_a_vote_makes_two_holders() {
    let trace = counter_example_of_succession(Planted::WakeIsGrant, "mutual exclusion");
    assert_eq!(
        trace,
        [
            "Release(0)",
            "Ask(1)",
            "Ask(2)",
            "ServeRelease(0, 0)",
            "Serve(2, 2)",
            "Tick",
            "ServeRelease(0, 1)",
            "Serve(2, 0)"
        ]
    );
}

#[test]
#[cfg_attr(debug_assertions, ignore = "takes minutes without optimization")]
fn what_is_kept_behind_a_release_without_a_look_at_the_key_takes_the_lock_from_its_holder() {
    let trace = counter_example_of_succession(Planted::KeptUncompared, "mutual exclusion");
    assert_eq!(
        trace,
        [
            "Tick",
            "Tick",
            "Release(0)",
            "Ask(2)",
            "Ask(1)",
            "Serve(2, 0)",
            "Serve(2, 1)",
            "KeepFree(1)",
            "Serve(1, 1)",
            "Serve(1, 2)"
        ]
    );
}
