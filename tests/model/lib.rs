//! Exhaustive searches of small worlds: three instances, two clients, one resource; the same with lists of instances that
//! differ; a writer beside two readers; two permits among three clients; and an operator who raises and lowers the longest ttl.
//!
//! In the first, time is counted in ticks. Client 0 acquires, extends once and releases; client 1 acquires. Any
//! message may be carried out late or never, one instance may be restarted (empty or from disk) and
//! one may be flushed, or another database of it, at any moment. A quarantined instance keeps what it has. Every order of all that is visited.

#![cfg(test)]
#![expect(clippy::cast_possible_truncation, reason = "test code")]

use std::collections::BTreeSet;

mod lock;
mod permits;
mod shared;
mod times;

use lock::{Accidents, Broken, List, Lock};
use permits::{Rule, Semaphore};
use shared::Shared;
use stateright::{Checker, HasDiscoveries, Model};
use times::{Begins, Deviation, Times};

/// All states that can be reached with every rule in force. A change of a rule changes it.
const RAISED_STATES: usize = 262_538;
const LOWERED_STATES: usize = 160_554;
/// Of two readers, without an accident.
const SHARED_STATES: usize = 1_839_000;
/// Of one reader, with an accident.
const FORGOTTEN_STATES: usize = 512_216;
/// Of both at once.
const ALL_SHARED_STATES: usize = 31_541_861;
const PERMITS_STATES: usize = 3_208_749;

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

fn counter_example_of_readers(broken: shared::Broken) -> Vec<String> {
    let property = "no reader beside a writer";
    // Deeper and deeper, so that the trace that is found is one of the shortest.
    let search = |depth| {
        let world = Shared { broken, readers: 1, accidents: 1 };
        world.checker().target_max_depth(depth).spawn_bfs().join().discovery(property)
    };
    let path = (5..25).find_map(search).unwrap_or_else(|| panic!("{broken:?} must break {property}"));
    path.into_actions().iter().map(|action| format!("{action:?}")).collect()
}

fn counter_example_of_times(deviation: Deviation, begins: Begins) -> Vec<String> {
    let property = "no vote before what was forgotten is over";
    let until = HasDiscoveries::AnyOf(BTreeSet::from([property]));
    let path = Times(deviation, begins).checker().finish_when(until).spawn_bfs().join().discovery(property);
    let path = path.unwrap_or_else(|| panic!("{deviation:?} must break {property}"));
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
}

#[test]
#[ignore = "takes two minutes: make sim MODEL=all"]
fn with_lists_of_three_and_four_instances_no_state_breaks_mutual_exclusion_or_the_order_of_tokens() {
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

/// The instance has voted for another client, and lost that key.
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

fn check_readers(readers: usize, accidents: u8, states: usize) {
    let world = Shared { broken: shared::Broken::Nothing, readers, accidents };
    let checker = world.checker().symmetry().spawn_dfs().join();
    println!("{readers} readers, {accidents} accidents: {} states", checker.unique_state_count());
    checker.assert_properties();
    assert_eq!(checker.unique_state_count(), states);
}

#[test]
#[cfg_attr(debug_assertions, ignore = "takes minutes without optimization")]
fn with_every_rule_no_reader_is_valid_beside_a_writer() {
    check_readers(2, 0, SHARED_STATES);
    check_readers(1, 1, FORGOTTEN_STATES);
}

#[test]
#[ignore = "takes three minutes: make sim MODEL=all"]
fn with_every_rule_and_an_accident_no_reader_is_valid_beside_a_writer() {
    check_readers(2, 1, ALL_SHARED_STATES);
}

#[test]
fn a_reader_that_a_forgetful_instance_admits_is_valid_beside_a_writer() {
    let trace = counter_example_of_readers(shared::Broken::ReaderWithoutAdmission);
    assert_eq!(
        trace,
        ["Acquire(0)", "Serve(0, 1)", "Serve(0, 2)", "Acquire(1)", "Serve(1, 0)", "Flush(2)", "Serve(1, 2)",]
    );
}

#[test]
fn a_reader_that_is_added_beside_a_key_is_valid_beside_its_writer() {
    let trace = counter_example_of_readers(shared::Broken::ReaderBesideAWriter);
    assert_eq!(trace, ["Acquire(0)", "Serve(0, 1)", "Serve(0, 2)", "Acquire(1)", "Serve(1, 1)", "Serve(1, 2)"]);
}

#[test]
fn a_writer_that_ignores_readers_is_valid_beside_one() {
    let trace = counter_example_of_readers(shared::Broken::WriterIgnoresReaders);
    assert_eq!(trace, ["Acquire(0)", "Acquire(1)", "Serve(1, 1)", "Serve(0, 1)", "Serve(1, 2)", "Serve(0, 2)"]);
}

#[test]
#[cfg_attr(debug_assertions, ignore = "takes minutes without optimization")]
fn a_reader_that_an_extend_puts_back_in_quarantine_is_valid_beside_a_writer() {
    let trace = counter_example_of_readers(shared::Broken::PutBackInQuarantine);
    assert_eq!(
        trace,
        [
            "Acquire(1)",
            "Serve(1, 0)",
            "Tick",
            "Acquire(0)",
            "Serve(0, 1)",
            "Serve(1, 2)",
            "Extend(1)",
            "Serve(1, 2)",
            "Flush(1)",
            "Serve(1, 1)",
            "Tick",
            "Serve(0, 0)",
        ]
    );
}

#[test]
#[cfg_attr(debug_assertions, ignore = "takes minutes without optimization")]
fn of_numbered_permits_no_more_are_valid_than_there_are() {
    let checker = Semaphore::<3> { rule: Rule::Numbered, accidents: 1 }.checker().symmetry().spawn_dfs().join();
    println!("numbered permits: {} states", checker.unique_state_count());
    checker.assert_properties();
    assert_eq!(checker.unique_state_count(), PERMITS_STATES);
}

/// Five instances take ten entries, and three clients need nine.
#[test]
fn of_permits_that_each_instance_counts_three_are_valid_instead_of_two() {
    let (property, world) = ("no more permits than there are", Semaphore::<5> { rule: Rule::Counted, accidents: 0 });
    let until = HasDiscoveries::AnyOf(BTreeSet::from([property]));
    let path = world.checker().finish_when(until).spawn_bfs().join().discovery(property);
    let path = path.unwrap_or_else(|| panic!("entries that are counted must break it"));
    let trace: Vec<String> = path.into_actions().iter().map(|action| format!("{action:?}")).collect();
    assert_eq!(
        trace,
        [
            "Ask(0, 0)",
            "Serve(0, 0, 0)",
            "Serve(0, 0, 1)",
            "Serve(0, 0, 2)",
            "Ask(1, 0)",
            "Serve(1, 0, 0)",
            "Serve(1, 0, 2)",
            "Serve(1, 0, 3)",
            "Ask(2, 0)",
            "Serve(2, 0, 1)",
            "Serve(2, 0, 3)",
            "Serve(2, 0, 4)",
        ]
    );
}

/// P29: every client waits for what any other may have asked for, whichever stage it is that an instance forgets in.
#[test]
fn while_the_longest_ttl_is_raised_and_lowered_no_instance_votes_before_what_it_forgot_is_over() {
    for (begins, states) in [(Begins::Short, RAISED_STATES), (Begins::Long, LOWERED_STATES)] {
        let checker = Times(Deviation::None, begins).checker().spawn_dfs().join();
        println!("{begins:?}: {} states", checker.unique_state_count());
        checker.assert_properties();
        assert_eq!(checker.unique_state_count(), states);
    }
}

/// It has read no record, and so has the other.
#[test]
fn with_a_longer_ttl_that_comes_first_an_instance_votes_too_soon_once_everything_is_forgotten() {
    let trace = counter_example_of_times(Deviation::TtlFirst, Begins::Short);
    assert_eq!(
        trace,
        [
            "ForgetAll(0)",
            "RollOut(0)",
            "Write(0, 0)",
            "Tick",
            "Tick",
            "Vote(0)",
            "ForgetAll(0)",
            "Write(1, 0)",
            "Tick",
            "Vote(1)"
        ]
    );
}

#[test]
fn with_a_longer_ttl_that_comes_first_and_records_that_nobody_looks_at_an_instance_votes_too_soon() {
    let trace = counter_example_of_times(Deviation::TtlFirstUnchecked, Begins::Short);
    assert_eq!(trace, ["RollOut(1)", "Vote(1)", "RestartFromDisk(0)", "Write(0, 0)", "Tick", "Vote(1)"]);
}

#[test]
fn with_a_shorter_quarantine_that_comes_too_soon_an_instance_votes_too_soon() {
    let trace = counter_example_of_times(Deviation::QuarantineTooSoon, Begins::Long);
    assert_eq!(
        trace,
        [
            "Vote(0)",
            "ForgetAll(0)",
            "RollOut(0)",
            "RollOut(1)",
            "NextStage",
            "RollOut(1)",
            "Write(1, 0)",
            "Tick",
            "Vote(0)"
        ]
    );
}

#[test]
fn with_a_client_that_was_left_behind_and_waits_for_its_own_quarantine_only_an_instance_votes_too_soon() {
    let trace = counter_example_of_times(Deviation::OwnQuarantineOnly, Begins::Short);
    assert_eq!(
        trace,
        [
            "RollOut(0)",
            "NextStage",
            "Set(0)",
            "Set(1)",
            "NextStage",
            "RollOut(0)",
            "Vote(0)",
            "RestartFromDisk(0)",
            "Write(1, 0)",
            "Tick",
            "Vote(0)"
        ]
    );
}
