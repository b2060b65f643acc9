//! Sequences that once went wrong, in every way of running the scripts.

use std::time::{Duration, Instant};

use redquorum::FencingToken;
use redquorum::testing::conformance::{Ask, Content, Kind, Store, TOKENS, forget_tokens, forget_tokens_in, load};
use redquorum::testing::protocol::{AdmissionRecord, Cause, Reply};
use redquorum_testkit::{Program, Server};

use crate::generate::{Key, Step, token, value};
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
    assert!(matches!(&replies[3], Reply::Refused(refusal) if refusal.token == Some(token(8191))), "{replies:?}");
    assert_eq!(replies[4], Reply::Stale { stored: token(8191) });
    let left = Key::all().zip(model.contents());
    assert!(left.into_iter().all(|(key, content)| matches!(key, Key::Fence(_)) || content == Content::Nothing));
}

/// A lease that was not resent costs its release nothing more, and the next grant is above a mark.
#[test]
fn a_mark_is_left_only_where_it_is_needed_and_below_the_next_grant() {
    let fence = |model: &Model| model.contents()[1].clone();
    let stored = |number| text(&token(number).to_wire(), None);
    let pair = |resent| asks(&[ask(Kind::Acquire, "a", 4096, false), ask(Kind::Release, "a", 4096, resent)]);
    assert_eq!(fence(&on_every_server(&[pair(false)])), stored(4096));
    assert_eq!(fence(&on_every_server(&[pair(true)])), stored(8191));
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
        let kept = if asked[0].kind == Kind::Release { token(sane).tombstone() } else { token(sane) };
        assert_eq!(model.contents()[1], text(&kept.to_wire(), None), "{poison} {asked:?}");
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

/// More than are looked at in one go; every third has a lock that lives.
#[test]
fn tokens_are_forgotten_by_their_age_in_slices_but_for_those_of_locks_that_live() {
    const COUNT: usize = 300;
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
        for key in (0..COUNT).step_by(3).map(|number| format!("old {number}")) {
            redis::cmd("SET").arg(&key).arg("value").exec(&mut connection).unwrap();
            mirror.set(key.as_bytes(), b"value", None);
        }
        let mut after = None;
        for slice in 0..3 {
            let next: Option<String> = forget_tokens(DAY, after).query(&mut connection).unwrap();
            after = forget_tokens_in(&mut mirror, DAY, |score| after.is_none_or(|after| score > after), wall_us());
            assert_eq!(next, after.map(|score| format!("({score}")), "{server:?}");
            assert_eq!(after.is_some(), slice < 2);
        }
        let kept: Vec<String> = redis::cmd("ZRANGE").arg(TOKENS).arg(0).arg(-1).query(&mut connection).unwrap();
        assert_eq!(kept.len(), COUNT / 3 + 1, "{server:?}");
        let in_mirror = kept.iter().filter(|key| Content::of_token(&mirror, key) != Content::Nothing).count();
        assert_eq!(in_mirror, kept.len());
        assert!(kept.contains(&"recent".to_owned()));
        for gone in ["ahead", "old 1"] {
            assert_eq!(Content::of_token(&mirror, gone), Content::Nothing);
        }
    }
}
