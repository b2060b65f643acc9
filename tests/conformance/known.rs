//! Sequences that once went wrong, in every way of running the scripts.

use std::time::{Duration, Instant};

use redquorum::protocol::Reply;
use redquorum::testing::conformance::{Ask, Content, Kind};
use redquorum_testkit::{Program, Server};

use crate::generate::{Key, Step, token};
use crate::model::{Model, Told};
use crate::server::{Real, ways};
use crate::{TooSlow, part};

const TTL: Duration = Duration::from_secs(30);

fn ask(kind: Kind, names: &[&str], number: u64, resent: bool) -> Ask {
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    Ask { kind, names, nonce: 1, token: token(number), ttl: TTL, retention: 2 * TTL, resent, has_served: false }
}

fn asks(asks: &[Ask]) -> Step {
    Step::Asks(asks.to_vec(), None)
}

/// Carries the steps out on every server; gives the sequence as it was there too.
fn on_every_server(steps: &[Step]) -> Model {
    let mut last = None;
    for program in Program::all_required().unwrap() {
        let mut real = Real::start(Server::start(&program).unwrap());
        let done = (0..5).find_map(|_| {
            real.reset(None);
            let mut models: Vec<Model> = ways().iter().map(|_| Model::new(None)).collect();
            match part(&mut real, &mut models, &mut || steps.to_vec(), Instant::now()) {
                Ok(_) => models.pop(),
                Err(TooSlow) => None,
            }
        });
        last = Some(done.unwrap());
    }
    last.unwrap()
}

fn replies(model: &Model) -> Vec<Reply> {
    let told = model.part().iter().map(|(_, told)| match told {
        Told::Replies(replies) => replies.clone(),
        Told::Answers(_) => Vec::new(),
    });
    told.flatten().collect()
}

/// The extend was on its way over a connection that broke.
#[test]
fn an_extend_that_comes_after_its_release_does_not_repair() {
    let names = ["a", "b"];
    let mut model = on_every_server(&[
        asks(&[ask(Kind::Acquire, &names, 4096, false)]),
        asks(&[ask(Kind::Extend, &names, 4096, true), ask(Kind::Release, &names, 4096, true)]),
        asks(&[ask(Kind::Extend, &names, 4096, true), ask(Kind::Acquire, &names, 4096, false)]),
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
    let a = ["a"];
    let fence = |model: &mut Model| model.contents()[1].clone();
    let stored = |number| Content::Text(token(number).to_wire().into_bytes(), Some(2 * TTL));
    let pair = |resent| asks(&[ask(Kind::Acquire, &a, 4096, false), ask(Kind::Release, &a, 4096, resent)]);
    assert_eq!(fence(&mut on_every_server(&[pair(false)])), stored(4096));
    assert_eq!(fence(&mut on_every_server(&[pair(true)])), stored(8191));
    let mut model = on_every_server(&[
        pair(true),
        asks(&[ask(Kind::Acquire, &a, 8192, false), ask(Kind::Release, &a, 4096, true)]),
    ]);
    assert_eq!(replies(&model)[2], Reply::Granted);
    assert_eq!(fence(&mut model), stored(8192), "not lowered");
    assert_eq!(model.contents()[0], Content::Nothing);
}

/// The stored token is put back, with a new time to live, before the other fence keys are looked at.
#[test]
fn a_stale_acquire_that_ends_with_an_error_has_kept_the_stored_token() {
    let mut model = on_every_server(&[
        asks(&[ask(Kind::Acquire, &["a"], 8192, false), ask(Kind::Release, &["a"], 8192, false)]),
        Step::Expire(Key::Fence("a"), TTL / 2),
        Step::OtherType(Key::Fence("b")),
        asks(&[ask(Kind::Acquire, &["a", "b"], 4096, false)]),
    ]);
    assert!(matches!(replies(&model)[2], Reply::Unknown(_)));
    assert_eq!(model.contents()[1], Content::Text(token(8192).to_wire().into_bytes(), Some(2 * TTL)));
}
