//! Histories written by hand, with what is to be told of those who waited.

use std::time::Duration;

use super::rules::{HELD_UP, OUT_OF_ORDER, STARVED};
use super::{WaitLimits, Waiting};
use crate::check::{CheckLimits, Judgement};
use crate::clock::MILLI;
use crate::event::{Event, EventKind};

const LIMITS: CheckLimits = CheckLimits {
    ttl: Duration::from_millis(100),
    drift: Duration::from_millis(3),
    waiting: Some(WaitLimits {
        without_faults: Some(Duration::from_millis(500)),
        after_crash: Some(Duration::from_millis(150)),
        overtakes: Some(1),
        overtakes_within: Some(0),
    }),
};

fn event(at: u64, who: &str, kind: EventKind) -> Event {
    Event { at: at * MILLI, who: who.to_owned(), kind }
}

/// A wait, its grant, and the end of the lease. `None` is never.
fn section(who: &str, lease: u64, from: u64, granted: Option<u64>, stopped: Option<u64>) -> Vec<Event> {
    let resource = || "r".to_owned();
    let mut events = vec![event(from, who, EventKind::Wait { resource: resource(), lease })];
    events.extend(granted.map(|at| {
        let (asked, valid_until, token) = (from * MILLI, (at + 97) * MILLI, Some(at));
        event(at, who, EventKind::Grant { resource: resource(), lease, asked, valid_until, token })
    }));
    events.extend(stopped.map(|at| event(at, who, EventKind::Stop { lease, lost: false })));
    events
}

fn client(at: u64, by: &str, client: &str, state: &str) -> Event {
    event(at, by, EventKind::Client { client: client.to_owned(), state: state.to_owned() })
}

fn step(at: u64, text: &str) -> Event {
    event(at, "drill", EventKind::Step { text: text.to_owned() })
}

fn judge(events: impl IntoIterator<Item = Vec<Event>>) -> (Vec<&'static str>, Waiting) {
    let mut history: Vec<Event> = events.into_iter().flatten().collect();
    history.sort_by_key(|event| event.at);
    let judgement = Judgement::of(&history, LIMITS);
    (judgement.violations.iter().map(|violation| violation.rule).collect(), judgement.waiting.unwrap())
}

#[test]
fn who_came_first_and_got_in_first_is_in_order() {
    let (found, waiting) = judge([
        section("a", 1, 0, Some(10), Some(20)),
        section("b", 1, 5, Some(21), Some(30)),
        section("a", 2, 20, Some(32), Some(40)),
    ]);
    assert!(found.is_empty());
    let phase = &waiting.phases[0];
    assert_eq!((phase.sections, phase.out_of_order, phase.most_overtakes), (3, 0, 0));
    assert_eq!((phase.wait_p50, phase.wait_max), (12.0, 16.0));
    // The third one had not begun to wait when the second one got in.
    assert_eq!((phase.hand_over_p50, phase.hand_over_max, phase.to_other_processes), (1.0, 2.0, 2));
    assert_eq!((phase.fewest, phase.most), (1, 2));
}

#[test]
fn who_is_overtaken_too_often_is_found() {
    let late = |who, n: u64| section(who, 1, 10 + n, Some(20 + 10 * n), Some(25 + 10 * n));
    let with = |others: u64| {
        let names = ["b", "c", "d"];
        let mut all = vec![section("z", 1, 0, Some(4), Some(20)), section("a", 1, 5, Some(90), Some(95))];
        all.extend((0..others).map(|n| late(names[n as usize], n)));
        judge(all)
    };
    let (found, waiting) = with(1);
    assert!(found.is_empty());
    assert_eq!((waiting.phases[0].out_of_order, waiting.phases[0].furthest), (1, 5.0));
    let (found, waiting) = with(3);
    assert_eq!(found, [OUT_OF_ORDER]);
    assert_eq!((waiting.phases[0].most_overtakes, waiting.phases[0].furthest), (3, 7.0));
}

#[test]
fn who_is_overtaken_within_its_process_is_found() {
    let with = |late: &str| {
        let first = [section("z", 1, 0, Some(4), Some(20)), section("a", 1, 5, Some(40), Some(50))];
        judge(first.into_iter().chain([section(late, 2, 10, Some(25), Some(30))]))
    };
    assert!(with("b").0.is_empty());
    let (found, waiting) = with("a");
    assert_eq!(found, [OUT_OF_ORDER]);
    assert_eq!((waiting.phases[0].out_of_order, waiting.phases[0].out_of_order_within), (1, 1));
}

#[test]
fn who_waits_too_long_without_a_fault_is_found_also_if_it_never_gets_in() {
    let other = |at| section("b", at, at, Some(at + 1), Some(at + 2));
    assert_eq!(judge([other(0), section("a", 1, 10, Some(520), Some(530))]).0, [STARVED]);
    assert_eq!(judge([other(0), section("a", 1, 10, None, None), other(520)]).0, [STARVED]);
    assert!(judge([other(0), section("a", 1, 10, Some(500), Some(510))]).0.is_empty());
    let broken =
        |at, state: &str| vec![event(at, "drill", EventKind::Instance { instance: 0, state: state.to_owned() })];
    let faults = [broken(200, "down"), broken(400, "up")];
    let all = faults.into_iter().chain([other(0), section("a", 1, 10, Some(800), Some(810))]);
    assert!(judge(all).0.is_empty(), "no stretch without faults was longer than 400 ms");
}

#[test]
fn links_that_are_mended_do_not_end_the_fault_of_an_instance_that_is_down() {
    let instance =
        |at, state: &str| vec![event(at, "drill", EventKind::Instance { instance: 0, state: state.to_owned() })];
    let with = |state| {
        let first = section("b", 1, 0, Some(1), Some(2));
        judge([first, instance(5, state), instance(8, "mended"), section("a", 1, 10, Some(600), Some(610))]).0
    };
    assert_eq!(with("cut"), [STARVED]);
    assert!(with("down").is_empty());
}

#[test]
fn a_wait_of_one_who_was_killed_or_hung_is_over_or_begins_anew() {
    let other = |at| section("b", at, at, Some(at + 1), Some(at + 2));
    let killed =
        [other(0), section("a", 1, 10, None, None), vec![client(100, "a", "a", "down")], other(101), other(900)];
    assert!(judge(killed).0.is_empty());
    let (found, waiting) = judge([
        other(0),
        section("a", 1, 10, Some(740), Some(750)),
        vec![client(100, "a", "a", "hung"), client(700, "drill", "a", "up")],
        other(101),
    ]);
    assert!(found.is_empty());
    assert_eq!(waiting.phases[0].wait_max, 40.0);
}

#[test]
fn the_next_one_gets_in_soon_after_a_crash() {
    let crash = |next, more: Vec<Event>| {
        let first = section("a", 1, 0, Some(10), None);
        judge([first, vec![client(20, "a", "a", "down")], section("b", 1, 5, Some(next), Some(next + 5)), more])
    };
    let (found, waiting) = crash(150, Vec::new());
    assert!(found.is_empty());
    assert_eq!(waiting.crashes.len(), 1);
    assert_eq!((waiting.crashes[0].held, waiting.crashes[0].without_ms), (true, Some(140.0)));
    assert_eq!(crash(165, Vec::new()).0, [HELD_UP]);
    let (found, waiting) = crash(165, vec![step(30, "FLUSHALL on i1")]);
    assert!(found.is_empty() && waiting.crashes[0].disturbed);
}

#[test]
fn one_who_waited_when_it_was_lost_may_hold_up_the_others_later() {
    let other = |at, next| section("b", at, at, Some(next), Some(next + 2));
    let with = |next| {
        let lost = [section("a", 1, 1, None, None), vec![client(20, "a", "a", "hung")]];
        judge(lost.into_iter().chain([other(0, 1), other(15, 30), other(31, next), vec![step(400, "a goes on")]]))
    };
    let (found, waiting) = with(182);
    assert!(found.is_empty());
    assert_eq!((waiting.crashes[0].held, waiting.crashes[0].without_ms), (false, Some(150.0)));
    assert_eq!(with(183).0, [HELD_UP]);
}

#[test]
fn phases_go_from_step_to_step() {
    let other = |at| section("b", at, at, Some(at + 1), Some(at + 2));
    let steps = vec![step(1000, "hang i1"), step(1300, "hang i2"), step(2500, "resume")];
    let (_, waiting) = judge([other(0), other(1100), other(1400), other(2600), steps]);
    let told: Vec<(&str, usize)> = waiting.phases.iter().map(|phase| (phase.name.as_str(), phase.sections)).collect();
    assert_eq!(told, [("before", 1), ("hang i1, hang i2", 2), ("resume", 1)]);
}
