//! Exhaustive searches of small worlds: three instances, two clients, one resource; the same with lists of instances that
//! differ; a holder whose keys are deleted; a writer beside two readers; two permits among three clients; tokens that are forgotten, and an operator who raises and lowers the
//! longest ttl.
//!
//! In the first, time is counted in ticks. Client 0 acquires, extends once and releases; client 1 acquires. Any
//! message may be carried out late or never, one instance may be restarted (empty or from disk) and
//! one may be flushed, or another database of it, at any moment. A quarantined instance keeps what it has. Every order of all that is visited.

#![cfg(test)]
#![expect(clippy::cast_possible_truncation, reason = "test code")]

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::hash::Hash;

mod lock;
mod loss;
mod permits;
mod shared;
mod shipped;
mod times;
mod tokens;

use lock::{Accidents, Broken, List, Lock};
use loss::Loss;
use permits::{Rule, Semaphore};
use shared::Shared;
use stateright::{Checker, CheckerBuilder, HasDiscoveries, Model};
use times::{Begins, Deviation, Times};
use tokens::{FAR_BEHIND, HOURS_AHEAD, Path, QUARANTINE, Tokens};

/// All states that can be reached with every rule in force. A change of a rule changes it.
const RAISED_STATES: usize = 262_538;
const LOWERED_STATES: usize = 160_554;
/// Of two readers, without an accident.
const SHARED_STATES: usize = 1_698_062;
/// Of one reader, with an accident.
const FORGOTTEN_STATES: usize = 526_220;
/// Of both at once.
const ALL_SHARED_STATES: usize = 31_013_141;
const PERMITS_STATES: usize = 3_208_749;

/// Both clients use the same instances.
const SAME: [List; 2] = [List(0, 3); 2];

const ONE_OF_EACH: Accidents = Accidents { restarts: 1, flushes: 1 };
/// So that one strikes in the quarantine of the other.
const TWO_FLUSHES: Accidents = Accidents { restarts: 0, flushes: 2 };

/// What is searched.
trait World:
    Model<State: Clone + Debug + Hash + PartialEq + Send + Sync, Action: Clone + Debug + PartialEq + Send + Sync>
    + Send
    + Sync
    + 'static
{
}

impl<M> World for M where
    M: Model<State: Clone + Debug + Hash + PartialEq + Send + Sync, Action: Clone + Debug + PartialEq + Send + Sync>
        + Send
        + Sync
        + 'static
{
}

/// With every rule in force no state breaks a property; there are so many, and a change of a rule changes that.
fn check<M: World>(world: CheckerBuilder<M>, what: &str, states: usize) {
    let checker = world.finish_when(HasDiscoveries::AnyFailures).spawn_dfs().join();
    println!("{what}: {} states", checker.unique_state_count());
    checker.assert_properties();
    assert_eq!(checker.unique_state_count(), states);
    note_searched(what, states).expect("a directory to write to");
}

/// For the table that `make sim` prints in the end: beside the program, which is below `target/`.
fn note_searched(what: &str, states: usize) -> std::io::Result<()> {
    let searched = std::env::current_exe()?.with_file_name("searched");
    let name = what.replace(|char: char| !char.is_ascii_alphanumeric(), "");
    std::fs::create_dir_all(&searched)?;
    std::fs::write(searched.join(name), states.to_string())
}

/// What breaks a property. Deeper and deeper, so that the trace that is found is one of the shortest.
fn shortest<M: World>(world: impl Fn() -> CheckerBuilder<M>, what: &str, property: &'static str) -> Vec<String> {
    let search = |depth| world().target_max_depth(depth).spawn_bfs().join().discovery(property);
    let path = (2..25).find_map(search).unwrap_or_else(|| panic!("{what} must break {property}"));
    path.into_actions().iter().map(|action| format!("{action:?}")).collect()
}

fn check_lists<const N: usize>(lists: [List; 2], accidents: Accidents, states: usize) {
    let world = Lock::<N> { broken: Broken::Nothing, lists, accidents };
    check(world.checker().symmetry(), &format!("{lists:?}, {accidents:?}"), states);
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
    shortest(|| Lock::<N> { broken, lists, accidents }.checker(), &format!("{broken:?}"), property)
}

fn counter_example_of_readers(broken: shared::Broken) -> Vec<String> {
    let world = || Shared { broken, readers: 1, accidents: 1 }.checker();
    shortest(world, &format!("{broken:?}"), "no reader beside a writer")
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
    check_lists::<3>(SAME, ONE_OF_EACH, 1_706_512);
    check_lists::<3>(SAME, TWO_FLUSHES, 921_263);
}

/// P30: a client has an instance more than the other, or less, and everything else happens as well.
#[test]
#[cfg_attr(debug_assertions, ignore = "takes minutes without optimization")]
fn with_lists_that_differ_by_one_instance_no_state_breaks_mutual_exclusion_or_the_order_of_tokens() {
    check_lists::<3>([List(0, 2), List(0, 3)], ONE_OF_EACH, 770_440);
    check_lists::<3>([List(0, 3), List(0, 2)], ONE_OF_EACH, 2_030_735);
}

#[test]
#[ignore = "takes two minutes: make sim MODEL=all"]
fn with_lists_of_three_and_four_instances_no_state_breaks_mutual_exclusion_or_the_order_of_tokens() {
    check_lists::<4>([List(0, 3), List(0, 4)], ONE_OF_EACH, 9_400_318);
    check_lists::<4>([List(0, 4), List(0, 3)], ONE_OF_EACH, 12_535_077);
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
    check(world.checker().symmetry(), &format!("{readers} readers, {accidents} accidents"), states);
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
    let world = Semaphore::<3> { rule: Rule::Numbered, accidents: 1 };
    check(world.checker().symmetry(), "numbered permits", PERMITS_STATES);
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
        check(Times(Deviation::None, begins).checker(), &format!("{begins:?}"), states);
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

/// Clocks of instances are apart by hours; that of one client is a second ahead of one of them, that of the other far behind.
const APART: Tokens = Tokens {
    broken: tokens::Broken::Nothing,
    path: Path::Script,
    instances: [0, -7_200, 3_600],
    clients: [1, FAR_BEHIND],
    known: 2,
    losses: 0,
    set_back: (0, 0),
    forgets: 2,
    end: 1,
};

/// An instance loses its data. The instances' clocks agree.
const LOSS: Tokens = Tokens { instances: [0; 3], losses: 1, forgets: 0, end: QUARANTINE as u8, ..APART };

/// With admission off: clients know their own clocks alone.
const ALONE: Tokens = Tokens { instances: [0; 3], known: 0, forgets: 1, ..APART };

const ORDER: &str = "order of tokens";

fn check_tokens(world: Tokens, states: usize) {
    check(world.checker(), &format!("{world:?}"), states);
}

fn counter_example_of_tokens(world: Tokens, property: &'static str) -> Vec<String> {
    let until = HasDiscoveries::AnyOf(BTreeSet::from([property]));
    shortest(|| world.checker().finish_when(until.clone()), &format!("{world:?}"), property)
}

#[test]
#[cfg_attr(debug_assertions, ignore = "takes minutes without optimization")]
fn with_the_floor_no_later_token_is_smaller_whatever_is_forgotten_and_whatever_clocks_show() {
    check_tokens(APART, 1_007_908);
    check_tokens(Tokens { path: Path::Plain, forgets: 1, ..APART }, 1_300_896);
}

/// A13, and a second more: it asks for clocks that differ by less than a quarantine, less two seconds.
#[test]
#[cfg_attr(debug_assertions, ignore = "takes minutes without optimization")]
fn with_a_floor_at_the_end_of_a_quarantine_no_later_token_is_smaller_than_one_that_was_lost() {
    check_tokens(Tokens { forgets: 1, ..LOSS }, 3_533_253);
    check_tokens(Tokens { path: Path::Plain, ..LOSS }, 1_597_614);
    check_tokens(Tokens { instances: [0, 1, 2], ..LOSS }, 281_002);
    check_tokens(Tokens { instances: [2, 0, 2], ..LOSS }, 350_404);
    check_tokens(Tokens { known: 1, ..LOSS }, 706_814);
}

#[test]
fn what_is_forgotten_without_a_floor_is_granted_again() {
    let trace = counter_example_of_tokens(Tokens { broken: tokens::Broken::NoFloor, ..APART }, ORDER);
    assert_eq!(
        trace,
        [
            "Acquire(0, -7200)",
            "Serve(0, 0)",
            "Acquire(1, 0)",
            "Serve(1, 1)",
            "Serve(1, 2)",
            "Release(1)",
            "Forget(2, 0)",
            "Serve(0, 2)"
        ]
    );
}

/// The instance has removed the token, and has not raised the floor yet.
#[test]
fn a_floor_that_is_raised_after_the_removal_comes_too_late() {
    let trace = counter_example_of_tokens(Tokens { broken: tokens::Broken::FloorAfterRemoval, ..APART }, ORDER);
    assert_eq!(
        trace,
        [
            "Acquire(0, -7200)",
            "Serve(0, 0)",
            "Serve(0, 2)",
            "Release(0)",
            "Acquire(1, -7200)",
            "Serve(1, 1)",
            "Forget(2, -7200)",
            "Serve(1, 2)"
        ]
    );
}

/// A client's clock is behind, or that of another instance which the client knows.
#[test]
fn a_floor_that_falls_lets_go_of_what_was_forgotten() {
    let world = Tokens { broken: tokens::Broken::FloorFalls, forgets: 3, ..APART };
    assert_eq!(
        counter_example_of_tokens(world, ORDER),
        [
            "Acquire(0, 1)",
            "Serve(0, 0)",
            "Serve(0, 2)",
            "Release(0)",
            "Acquire(1, 0)",
            "Serve(1, 1)",
            "Forget(2, 1)",
            "Forget(2, -7200)",
            "Serve(1, 2)"
        ]
    );
}

/// Between the floor and `ZADD` another client has the lock and releases it, and its token is forgotten.
#[test]
fn a_plain_acquire_that_reads_the_floor_before_it_stores_its_token_is_granted_below_it() {
    let world = Tokens {
        broken: tokens::Broken::FloorReadFirst,
        path: Path::Plain,
        clients: [0, FAR_BEHIND],
        instances: [0; 3],
        forgets: 1,
        end: 0,
        ..APART
    };
    assert_eq!(
        counter_example_of_tokens(world, ORDER),
        [
            "Acquire(0, 0)",
            "Serve(0, 0)",
            "Serve(0, 2)",
            "Serve(0, 2)",
            "Acquire(1, 0)",
            "Serve(1, 0)",
            "Serve(1, 0)",
            "Serve(1, 1)",
            "Serve(1, 1)",
            "Release(1)",
            "Forget(0, 0)",
            "Serve(0, 0)"
        ]
    );
}

/// All others' tokens are below the floor, for hours, and must go above it. By both clocks that does not happen.
#[test]
fn a_floor_by_the_clients_clock_alone_is_ahead_of_all_clocks() {
    let world = Tokens { broken: tokens::Broken::CutByClientAlone, clients: [0, HOURS_AHEAD], ..ALONE };
    let property = "no instance that votes has a floor ahead of all clocks";
    assert_eq!(counter_example_of_tokens(world, property), ["Forget(2, 82800)"]);
    let world = Tokens { broken: tokens::Broken::Nothing, ..world };
    assert!(world.checker().spawn_dfs().join().discovery(property).is_none());
}

#[test]
fn a_quarantine_without_a_floor_lets_go_of_what_was_lost() {
    let world = Tokens { broken: tokens::Broken::NewRecordWithoutFloor, ..LOSS };
    assert_eq!(
        counter_example_of_tokens(world, ORDER),
        [
            "Acquire(0, 1)",
            "Serve(0, 1)",
            "Serve(0, 2)",
            "Lose(2)",
            "WriteRecord(2, 0)",
            "Tick",
            "Acquire(1, 1)",
            "Tick",
            "Tick",
            "Serve(1, 0)",
            "Serve(1, 2)",
        ]
    );
}

/// A13: two clocks are ahead by more than a quarantine.
#[test]
#[cfg_attr(debug_assertions, ignore = "takes minutes without optimization")]
fn with_instances_clocks_further_apart_than_a_quarantine_a_token_that_was_lost_is_larger() {
    let world = Tokens { instances: [6, 0, 6], ..LOSS };
    assert_eq!(
        counter_example_of_tokens(world, ORDER),
        [
            "Acquire(1, 6)",
            "Serve(1, 0)",
            "Serve(1, 1)",
            "Lose(1)",
            "WriteRecord(1, 0)",
            "Tick",
            "Tick",
            "Tick",
            "Acquire(0, 4)",
            "Serve(0, 1)",
            "Serve(0, 2)"
        ]
    );
}

/// A13: a clock is set back by more than a quarantine, and the instance loses its data.
#[test]
#[cfg_attr(debug_assertions, ignore = "takes minutes without optimization")]
fn with_a_clock_that_was_set_back_a_token_that_was_lost_is_larger() {
    let world = Tokens { set_back: (1, 10), ..LOSS };
    assert_eq!(
        counter_example_of_tokens(world, ORDER),
        [
            "Acquire(0, 1)",
            "Serve(0, 0)",
            "Serve(0, 1)",
            "Lose(1)",
            "SetBack(1)",
            "WriteRecord(1, -10)",
            "Tick",
            "Acquire(1, 1)",
            "Tick",
            "Tick",
            "Serve(1, 1)",
            "Serve(1, 2)"
        ]
    );
}

/// A13: the client that writes the record knows no clock but its own and the instance's, and is behind by more than a quarantine and a minute.
#[test]
#[cfg_attr(debug_assertions, ignore = "takes minutes without optimization")]
fn with_a_record_by_a_client_that_is_far_behind_and_reaches_no_quorum_a_token_that_was_lost_is_larger() {
    let world = Tokens { broken: tokens::Broken::RecordAtOnce, known: 1, ..LOSS };
    assert_eq!(
        counter_example_of_tokens(world, ORDER),
        [
            "Acquire(0, 1)",
            "Serve(0, 0)",
            "Serve(0, 1)",
            "Lose(1)",
            "WriteRecord(1, -600)",
            "Tick",
            "Acquire(1, 1)",
            "Tick",
            "Tick",
            "Serve(1, 1)",
            "Serve(1, 2)"
        ]
    );
}

fn check_losses<const N: usize>(world: Loss<N>, states: usize) {
    check(world.checker(), &format!("{N} instances, {world:?}"), states);
}

/// Neither is more lost than that, nor less.
#[test]
#[cfg_attr(debug_assertions, ignore = "takes minutes without optimization")]
fn a_lease_is_lost_where_all_say_that_another_had_the_lock_and_never_while_a_quorum_keeps_it() {
    check_losses(Loss::<3> { rounds: 3, deletions: 3, checks: 2 }, 3_451_183);
    check_losses(Loss::<5> { rounds: 2, deletions: 3, checks: 0 }, 2_260_096);
}
