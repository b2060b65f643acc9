//! Sequences that once went wrong, in every way of running the scripts.

use std::time::{Duration, Instant};

use redquorum::FencingToken;
use redquorum::testing::conformance::{Ask, Content, Kind, Store, TOKENS, forget_tokens, forget_tokens_in, load};
use redquorum::testing::protocol::{self, AdmissionRecord, Cause, Reply};
use redquorum_testkit::{Program, Server};

use crate::generate::{HOUR_MS, Key, Step, token, value};
use crate::model::{Model, Told, wall_us};
use crate::server::{Real, executions};
use crate::{TooSlow, part};

pub(crate) const TTL: Duration = Duration::from_secs(30);

pub(crate) fn ask(kind: Kind, name: &str, number: u64, resent: bool) -> Ask {
    let (name, holder) = (name.to_owned(), String::new());
    Ask { kind, name, holder, nonce: 1, token: token(number), ttl: TTL, waits_since: None, resent }
}

fn asks_as(holder: &str, nonce: u128, ask: Ask) -> Ask {
    Ask { holder: holder.to_owned(), nonce, ..ask }
}

pub(crate) fn text(value: &str, ttl: Option<Duration>) -> Content {
    Content::Text(value.as_bytes().to_vec(), ttl)
}

pub(crate) fn asks(asks: &[Ask]) -> Step {
    Step::Asks(asks.to_vec(), None)
}

/// Carries the steps out on every server; gives the sequence as it was there too.
pub(crate) fn on_every_server(steps: &[Step]) -> Model {
    on_every_server_with(None, steps)
}

/// As [`on_every_server`], on servers that have this record.
pub(crate) fn on_every_server_with(record: Option<&AdmissionRecord>, steps: &[Step]) -> Model {
    let mut last = None;
    for program in Program::all_required().unwrap() {
        let mut real = Real::start(Server::start(&program).unwrap());
        let done = (0..5).find_map(|_| {
            real.reset(record);
            let mut models: Vec<Model> = executions().iter().map(|_| Model::new(record)).collect();
            match part(&mut real, &mut models, &mut || steps.to_vec(), Instant::now()) {
                Ok(_) => models.pop(),
                Err(TooSlow) => None,
            }
        });
        last = Some(done.unwrap());
    }
    last.unwrap()
}

pub(crate) fn replies(model: &Model) -> Vec<Reply> {
    let told = model.part().iter().map(|(_, told)| match told {
        Told::Replies(replies) => replies.clone(),
        Told::Answers(_) => Vec::new(),
    });
    told.flatten().collect()
}

/// The extend was on its way over a connection that broke.
#[test]
fn an_extend_that_comes_after_its_release_does_not_repair() {
    let model = on_every_server(&[
        asks(&[ask(Kind::Acquire, "a", 4096, false)]),
        asks(&[ask(Kind::Extend, "a", 4096, true), ask(Kind::Release, "a", 4096, true)]),
        asks(&[ask(Kind::Extend, "a", 4096, true), ask(Kind::Acquire, "a", 4096, false)]),
    ]);
    let replies = replies(&model);
    assert_eq!(replies[..3], [Reply::Granted, Reply::Granted, Reply::Granted]);
    assert!(matches!(&replies[3], Reply::Refused(refusal) if refusal.value.is_none()), "{replies:?}");
    assert_eq!(replies[4], Reply::Stale { stored: token(4096) });
    let left = Key::all().zip(model.contents());
    assert!(left.into_iter().all(|(key, content)| matches!(key, Key::Fence(_)) || content == Content::Nothing));
}

/// A lease that was not resent costs its release nothing more.
#[test]
fn a_tombstone_is_left_only_where_it_is_needed_and_stops_no_other_lease() {
    let fence = |model: &Model| model.contents()[1].clone();
    let stored = |number| text(&token(number).to_wire(), None);
    let pair = |resent| asks(&[ask(Kind::Acquire, "a", 4096, false), ask(Kind::Release, "a", 4096, resent)]);
    for (resent, tombstones) in [(false, 0), (true, 1)] {
        let model = on_every_server(&[pair(resent)]);
        assert_eq!((fence(&model), model.tombstones()), (stored(4096), tombstones));
    }
    let model = on_every_server(&[
        pair(true),
        asks(&[ask(Kind::Acquire, "a", 8192, false), ask(Kind::Release, "a", 4096, true)]),
    ]);
    assert_eq!(replies(&model)[2], Reply::Granted);
    assert_eq!(fence(&model), stored(8192), "not lowered");
    assert_eq!(model.contents()[0], Content::Nothing);
}

/// A copy of an earlier extend overtaken by a longer one, over another connection.
#[test]
fn a_late_extend_does_not_shorten_the_life_of_a_key() {
    let late = ask(Kind::Extend, "a", 4096, true);
    let longer = Ask { ttl: 2 * TTL, ..late.clone() };
    for step in [asks(std::slice::from_ref(&late)), asks(&[Ask { kind: Kind::Keep, ..late.clone() }])] {
        let first = [ask(Kind::Acquire, "a", 4096, false), longer.clone()];
        let model = on_every_server(&[asks(&first), step]);
        assert_eq!(replies(&model), [Reply::Granted, Reply::Granted, Reply::Granted]);
        assert_eq!(model.contents()[0], text(&value("", 1), Some(2 * TTL)));
    }
}

/// An operator set it, or took its end away.
#[test]
fn a_key_without_an_end_gets_one() {
    let extend = ask(Kind::Extend, "a", 4096, true);
    let again = ask(Kind::Acquire, "a", 4096, true);
    for step in [asks(std::slice::from_ref(&extend)), asks(&[again]), asks(&[Ask { kind: Kind::Keep, ..extend }])] {
        let model = on_every_server(&[Step::Set(Key::Lock("a"), value("", 1)), step]);
        assert_eq!(replies(&model), [Reply::Granted]);
        assert_eq!(model.contents()[0], text(&value("", 1), Some(TTL)));
    }
}

/// Who has it is a matter of the whole value: its own holder is refused like anybody (P23).
#[test]
fn a_holder_with_another_value_is_refused_like_anybody() {
    let model = on_every_server(&[
        asks(&[asks_as("me", 1, ask(Kind::Acquire, "a", 4096, false))]),
        asks(&[
            asks_as("me", 2, ask(Kind::Acquire, "a", 8192, false)),
            asks_as("me", 2, ask(Kind::Extend, "a", 8192, true)),
            asks_as("me", 2, ask(Kind::Release, "a", 4096, false)),
            asks_as("", 1, ask(Kind::Acquire, "a", 12288, false)),
        ]),
    ]);
    let replies = replies(&model);
    assert_eq!(replies[0], Reply::Granted);
    assert!(replies[1..].iter().all(|reply| matches!(reply, Reply::Refused(_))), "{replies:?}");
    assert_eq!(model.contents()[0], text(&value("me", 1), Some(TTL)));
}

/// A client whose clock is in 2096 would make everybody propose the largest token, for every lock.
#[test]
fn a_token_that_no_clock_can_have_made_is_neither_granted_nor_stored_nor_left_as_a_mark() {
    let ahead = FencingToken::propose(wall_us() + 25 * 3_600_000_000, None).get();
    let model = on_every_server(&[
        asks(&[ask(Kind::Acquire, "a", ahead, false)]),
        asks(&[ask(Kind::Acquire, "b", ahead, true), ask(Kind::Acquire, "c", ahead, true)]),
        asks(&[ask(Kind::Extend, "b", ahead, true)]),
        asks(&[ask(Kind::Release, "a", ahead, false), ask(Kind::Release, "b", ahead, true)]),
    ]);
    let behind = |reply: &Reply| matches!(reply, Reply::Unknown(Cause::ClockBehind { .. }));
    assert!(replies(&model)[..4].iter().all(behind), "{:?}", replies(&model));
    assert!(model.contents().iter().all(|content| *content == Content::Nothing));
}

/// It was set by hand, or by an older client.
#[test]
fn a_stored_token_that_no_clock_can_have_made_is_overwritten() {
    let ahead = FencingToken::propose(wall_us() + 25 * 3_600_000_000, None).to_wire();
    let sane = 5 * 4096;
    let asked = [
        vec![ask(Kind::Acquire, "a", sane, false)],
        vec![ask(Kind::Extend, "a", sane, true)],
        vec![ask(Kind::Release, "a", sane, true)],
    ];
    for (poison, asked) in ["2251799813685247", "inf", "-1", &ahead]
        .iter()
        .flat_map(|poison| asked.iter().map(move |asked| (poison, asked)))
    {
        let model = on_every_server(&[Step::SetToken("a", (*poison).to_owned()), asks(asked)]);
        assert_eq!(model.contents()[1], text(&token(sane).to_wire(), None), "{poison} {asked:?}");
    }
}

/// Otherwise a smaller one could be granted after the lease.
#[test]
fn an_extend_stores_the_token_where_none_or_a_smaller_one_is() {
    let each = |kind, resent| asks(&["a", "b"].map(|name| ask(kind, name, 4096, resent)));
    let model = on_every_server(&[
        each(Kind::Acquire, false),
        Step::SetToken("a", "0.5".to_owned()),
        Step::RemoveToken("b"),
        each(Kind::Extend, true),
    ]);
    let kept = text(&token(4096).to_wire(), None);
    assert_eq!([&model.contents()[1], &model.contents()[3]], [&kept, &kept]);
}

/// The others are left as they are: a lease that is attached has its keys, or is lost.
#[test]
fn to_keep_what_is_there_sets_nothing() {
    let keep = |name| Ask { ttl: 2 * TTL, ..ask(Kind::Keep, name, 4096, true) };
    let model = on_every_server(&[
        asks(&[ask(Kind::Acquire, "a", 4096, false)]),
        Step::SetIfAbsent(Key::Lock("b"), "foreign".to_owned(), TTL),
        asks(&[keep("b"), keep("a"), keep("c")]),
    ]);
    let replies = replies(&model);
    assert!(matches!(&replies[1..], [Reply::Refused(_), Reply::Granted, Reply::Refused(_)]), "{replies:?}");
    let contents = model.contents();
    assert_eq!(contents[0], text(&value("", 1), Some(2 * TTL)));
    assert_eq!(contents[2], text("foreign", Some(TTL)));
    assert_eq!(contents[4], Content::Nothing);
}

/// A token of so many hours ago.
fn hours_ago(hours: u64) -> String {
    FencingToken::propose(wall_us() - hours * 3_600_000_000, None).to_wire()
}

/// More than are looked at in one go. Those of locks that live are forgotten, too: the floor is above them.
#[test]
fn tokens_are_forgotten_by_their_age_in_slices_and_the_floor_is_above_them() {
    const COUNT: usize = 600;
    const DAY: Duration = Duration::from_secs(24 * 3600);
    let ahead = FencingToken::propose(wall_us() + 25 * 3_600_000_000, None).to_wire();
    for program in Program::all_required().unwrap() {
        let server = Server::start(&program).unwrap();
        let mut connection = redis::Client::open(server.address()).unwrap().get_connection().unwrap();
        load().exec(&mut connection).unwrap();
        let mut mirror = Store::default();
        let mut store = |key: &str, score: &str| {
            redis::cmd("ZADD").arg(TOKENS).arg(score).arg(key).exec(&mut connection).unwrap();
            let _ = mirror.set_score(TOKENS.as_bytes(), key.as_bytes(), score.parse().unwrap());
        };
        store("recent", &hours_ago(23));
        store("ahead", &ahead);
        (0..COUNT).for_each(|number| store(&format!("old {number}"), &hours_ago(25 + number as u64)));
        for (slice, left) in [344, 88, 0, 0].into_iter().enumerate() {
            let (tokens, old, lag_ms): (usize, usize, u64) =
                forget_tokens(wall_us(), DAY).query(&mut connection).unwrap();
            assert!(lag_ms.abs_diff(24 * HOUR_MS) < 2_000, "{lag_ms}");
            let day_us = u64::try_from(DAY.as_micros()).unwrap();
            let up_to = FencingToken::since_epoch_us(wall_us() - day_us);
            assert_eq!((tokens, old), forget_tokens_in(&mut mirror, up_to, day_us, wall_us()), "{server:?}");
            assert_eq!((tokens, old), (left + 1, left), "{server:?}: slice {slice}");
        }
        let kept: Vec<String> = redis::cmd("ZRANGE").arg(TOKENS).arg(1).arg(-1).query(&mut connection).unwrap();
        assert_eq!(kept, ["recent"], "{server:?}");
        let floor = |text: Option<String>| FencingToken::from_wire(text.unwrap().as_bytes()).unwrap().clock_us();
        let floors = [
            floor(redis::cmd("GET").arg("redquorum:floor").query(&mut connection).unwrap()),
            floor(match Content::of(&mirror, "redquorum:floor", protocol::Instant::ZERO) {
                Content::Text(text, None) => String::from_utf8(text).ok(),
                _ => None,
            }),
        ];
        assert!(floors.iter().all(|floor| (wall_us() - 24 * 3_600_000_000).abs_diff(*floor) < 2_000_000), "{floors:?}");
    }
}

/// P13: by the clock that is behind, the instance's or the client's; never lower than it was, unless no clock can have made it.
#[test]
fn the_floor_is_raised_by_the_clock_that_is_behind_and_never_falls() {
    const HOUR: Duration = Duration::from_secs(3600);
    let hours = |hours: i64| wall_us().saturating_add_signed(hours * 3_600_000_000);
    let floor_at = |hours: i64| FencingToken::since_epoch_us(wall_us()) + hours * 3_600_000_000;
    // The floor before, the client's clock, and the floor after, in hours from now.
    let cases = [
        (None, 0, -1),
        (None, 5, -1),
        (None, -5, -6),
        (Some(-3), 0, -1),
        (Some(-3), -5, -3),
        (Some(2), 0, 2),
        (Some(25), 0, -1),
    ];
    for program in Program::all_required().unwrap() {
        let server = Server::start(&program).unwrap();
        let mut connection = redis::Client::open(server.address()).unwrap().get_connection().unwrap();
        load().exec(&mut connection).unwrap();
        for (before, client, after) in cases {
            redis::cmd("FLUSHALL").exec(&mut connection).unwrap();
            if let Some(before) = before {
                redis::cmd("SET").arg("redquorum:floor").arg(floor_at(before)).exec(&mut connection).unwrap();
            }
            forget_tokens(hours(client), HOUR).exec(&mut connection).unwrap();
            let floor: i64 = redis::cmd("GET").arg("redquorum:floor").query(&mut connection).unwrap();
            let at = format!("{server:?}: {before:?}, {client}, {after}: {floor}");
            assert!(floor.abs_diff(floor_at(after)) < 5_000_000, "{at}");
        }
    }
}

/// Behind a release that was sent twice, or that found nothing; no later holder's token takes its place.
#[test]
fn a_late_extend_sets_nothing_behind_its_release_also_of_a_lease_below_the_floor() {
    let each = |steps: [Ask; 2]| asks(&steps);
    let of_another = |kind| each(["a", "b"].map(|name| asks_as("", 2, ask(kind, name, 40 * 4096, false))));
    for floor in [None, Some("9")] {
        let floor = floor.map(|floor| Step::Set(Key::Floor, floor.to_owned()));
        let late = each(["a", "b"].map(|name| ask(Kind::Extend, name, 4096, true)));
        let steps = [
            Step::SetIfAbsent(Key::Lock("a"), value("", 1), TTL),
            late.clone(),
            Step::Delete(Key::Lock("b")),
            each([ask(Kind::Release, "a", 4096, true), ask(Kind::Release, "b", 4096, false)]),
            late.clone(),
            of_another(Kind::Acquire),
            of_another(Kind::Release),
            late,
        ];
        let model = on_every_server(&floor.into_iter().chain(steps).collect::<Vec<_>>());
        assert_eq!(replies(&model).iter().filter(|reply| **reply == Reply::Granted).count(), 6, "{model}");
        assert_eq!([&model.contents()[0], &model.contents()[2]], [&Content::Nothing; 2], "{model}");
    }
}
