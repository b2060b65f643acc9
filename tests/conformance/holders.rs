//! What the same holder has under a key, one try behind the other (P23), in every way of running the
//! scripts.

use std::time::Duration;

use redquorum::protocol::{Refusal, Reply};
use redquorum::testing::conformance::{Ask, Content, Kind};

use crate::generate::{Key, Step, token, value};
use crate::known::{TTL, ask, asks, on_every_server, replies, text};
use crate::model::Model;

const A: [&str; 1] = ["a"];

/// What the try with this number of the holder `me` asks.
fn my(kind: Kind, number: u64) -> Ask {
    let resent = kind == Kind::Extend;
    Ask { holder: "me".to_owned(), nonce: number.into(), ..ask(kind, &A, number * 4096, resent) }
}

fn acquire(number: u64) -> Ask {
    my(Kind::Acquire, number)
}

fn give_back(number: u64) -> Ask {
    my(Kind::GiveBack, number)
}

fn release(number: u64) -> Ask {
    my(Kind::Release, number)
}

/// The try that has `a` afterwards, and that nothing stands behind it if so told.
#[track_caller]
fn has(steps: &[Ask], number: Option<u64>, alone: bool) -> Model {
    let mut model = on_every_server(&[asks(steps)]);
    let contents = model.contents();
    let expected = number.map_or(Content::Nothing, |number| text(&value("me", number.into()), Some(TTL)));
    assert_eq!(contents[0], expected);
    let behind = Key::all().zip(&contents).filter(|(key, _)| matches!(key, Key::Former(..)));
    assert_eq!(behind.filter(|(_, content)| **content != Content::Nothing).count() == 0, alone, "{contents:?}");
    model
}

#[test]
fn a_try_that_is_not_won_gives_back_what_it_took_over() {
    has(&[acquire(1), acquire(2)], Some(2), false);
    has(&[acquire(1), acquire(2), give_back(2)], Some(1), true);
    has(&[acquire(1), acquire(2), give_back(2), give_back(2)], Some(1), true);
    has(&[acquire(2), give_back(2)], None, true);
}

/// However they take each other over, and in whatever order they end.
#[test]
fn tries_that_took_each_other_over_leave_what_the_first_had() {
    let three = [acquire(1), acquire(2), acquire(3), acquire(4)];
    for order in [[2, 3, 4], [2, 4, 3], [3, 2, 4], [3, 4, 2], [4, 2, 3], [4, 3, 2]] {
        let ends = order.map(give_back);
        has(&[&three[..], &ends].concat(), Some(1), true);
        has(&[&three[..], &ends[..2]].concat(), Some(order[2]), false);
        // Each once more while the last goes on, and late: its token is used up.
        let goes_on = [&three[..], &[acquire(2), acquire(3)], &ends].concat();
        has(&goes_on, Some(1), true);
        let late = order.map(acquire);
        has(&[&three[..], &ends, &late].concat(), Some(1), true);
    }
}

/// Counter-example: a copy of the acquire of a lease came late, while a try had its place, and took the lease
/// out of the line on its way to being refused. So the try gave back nothing (seed 10032 of the simulator).
#[test]
fn a_late_copy_that_is_refused_leaves_the_line_as_it_is() {
    has(&[acquire(1), acquire(2), acquire(1), give_back(2)], Some(1), true);
    has(&[acquire(1), acquire(2), acquire(3), acquire(1), give_back(2), give_back(3)], Some(1), true);
}

/// It repeats its round with a larger token, after another try of the holder has taken it over.
#[test]
fn a_try_that_comes_again_leaves_its_former_place_in_the_line() {
    let again = Ask { token: token(9 * 4096), ..acquire(2) };
    let steps = [acquire(1), acquire(2), acquire(3), again];
    has(&[&steps[..], &[give_back(2), give_back(3)]].concat(), Some(1), true);
    has(&[&steps[..], &[give_back(3), give_back(2)]].concat(), Some(1), true);
}

#[test]
fn what_a_won_round_took_over_does_not_come_back() {
    has(&[acquire(1), acquire(2), release(2)], None, true);
    has(&[acquire(1), acquire(2), acquire(3), release(3), give_back(2)], None, true);
    // It is released while another try has its place: the try gives back nothing.
    has(&[acquire(1), acquire(2), release(1), give_back(2)], None, true);
    has(&[acquire(1), acquire(2), acquire(3), release(2), give_back(3)], None, true);
}

/// It would have ended with the try, and let others in while the former was still valid.
#[test]
fn a_try_with_a_shorter_ttl_does_not_shorten_the_life_of_a_key() {
    let longer = Ask { ttl: 2 * TTL, ..acquire(1) };
    let lives = |steps: &[Ask]| on_every_server(&[asks(steps)]).contents()[0].clone();
    let lasts = |number, ttl: Duration| text(&value("me", number), Some(ttl));
    assert_eq!(lives(&[longer.clone(), acquire(2)]), lasts(2, 2 * TTL));
    assert_eq!(lives(&[longer.clone(), acquire(2), give_back(2)]), lasts(1, 2 * TTL));
    let longer_try = Ask { ttl: 2 * TTL, ..acquire(2) };
    assert_eq!(lives(&[acquire(1), longer_try.clone()]), lasts(2, 2 * TTL));
    assert_eq!(lives(&[acquire(1), longer_try, give_back(2)]), lasts(1, TTL));
}

/// What is read back cannot live for ever: nobody might come for it.
#[test]
fn a_key_without_an_end_gets_one_when_it_is_given_back() {
    let endless = Step::Set(Key::Lock("a"), value("me", 1));
    let mut model = on_every_server(&[endless, asks(&[acquire(2), give_back(2)])]);
    assert_eq!(model.contents()[0], text(&value("me", 1), Some(TTL)));
}

#[test]
fn of_several_resources_each_gets_back_what_was_there() {
    let wide = |kind| Ask { names: ["a", "b", "c"].map(str::to_owned).to_vec(), ..my(kind, 2) };
    let b = Ask { names: vec!["b".to_owned()], ..my(Kind::Acquire, 1) };
    let mut model = on_every_server(&[asks(&[b, wide(Kind::Acquire), wide(Kind::GiveBack)])]);
    let (lease, contents) = (text(&value("me", 1), Some(TTL)), model.contents());
    assert_eq!([&contents[0], &contents[2], &contents[4]], [&Content::Nothing, &lease, &Content::Nothing]);
}

/// What a holder asks that has a lease: under the value of the first, with the token of the second.
fn enter(number: u64, token_of: u64) -> Ask {
    Ask { kind: Kind::Reenter, token: token(token_of * 4096), resent: true, ..acquire(number) }
}

#[test]
fn a_holder_enters_its_lease_under_a_larger_token_only() {
    let fence = |model: &mut Model| model.contents()[1].clone();
    let stored = |number: u64| text(&token(number * 4096).to_wire(), None);

    let mut entered = has(&[acquire(1), enter(1, 5)], Some(1), true);
    assert_eq!((replies(&entered).pop(), fence(&mut entered)), (Some(Reply::Granted), stored(5)));

    let mut missing = has(&[enter(1, 5)], Some(1), true);
    assert_eq!((replies(&missing).pop(), fence(&mut missing)), (Some(Reply::Repaired), stored(5)));

    // Another client of the holder was granted in between, and has gone.
    let mut late = has(&[acquire(1), acquire(6), release(6), enter(1, 5)], None, true);
    assert_eq!(replies(&late).pop(), Some(Reply::Stale { stored: token(6 * 4096) }));
    assert_eq!(fence(&mut late), stored(6));

    let mut taken_over = has(&[acquire(1), acquire(2), enter(1, 5)], Some(2), false);
    let refused = matches!(replies(&taken_over).pop(), Some(Reply::Refused(Refusal { value: Some(_), .. })));
    assert!(refused && fence(&mut taken_over) == stored(2), "nothing is changed");

    let released = Ask { resent: true, token: token(5 * 4096), ..release(1) };
    let after = has(&[acquire(1), released, enter(1, 5)], None, true);
    assert!(matches!(replies(&after).pop(), Some(Reply::Stale { .. })), "its token is used up");
}
