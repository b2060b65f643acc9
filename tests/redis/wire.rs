//! `docs/wire.md` as a client in another language would follow it: the scripts are taken from the page.
#![expect(clippy::disallowed_methods, reason = "this client has no clock but the machine's")]

use std::time::{SystemTime, UNIX_EPOCH};

use redquorum::{AcquireError, Holder, Redlock, Renewal};
use redquorum_testkit::{Fleet, Program, Reply, Server};

use crate::support::{
    MAX_TTL, PATIENCE, all_have, all_vote, eventually, fleet_of, free_within, on_each_kind, ready, secs, with_admission,
};

const PAGE: &str = include_str!("../../docs/wire.md");
const FENCE: &str = "redquorum:fence";
const ADMISSION: &str = "redquorum:admission";
const FLOOR: &str = "redquorum:floor";
/// 2025-01-01 in Unix time.
const EPOCH: u64 = 1_735_689_600;

/// The script of the page that begins with this comment.
fn script(name: &str) -> &'static str {
    let head = format!("```lua\n-- {name}\n");
    let (_, rest) = PAGE.split_once(&head).unwrap();
    rest.split_once("```").unwrap().0
}

fn text(server: &Server, command: &[&str]) -> String {
    server.command(command).unwrap().text().unwrap_or_default()
}

/// A client that knows the page and nothing else.
struct Foreign<'a> {
    fleet: &'a Fleet,
    records: Vec<String>,
}

impl<'a> Foreign<'a> {
    /// Reads the records, and compares each with the process.
    fn connect(fleet: &'a Fleet) -> Self {
        let read = |server: &Server| {
            let info = text(server, &["INFO"]);
            let field = |name: &str| {
                let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
                value[..16].to_owned()
            };
            let record = text(server, &["GET", ADMISSION]);
            let process = format!("{}/{} ", field("run_id"), field("master_replid"));
            assert!(record.starts_with(&process), "{record:?} is not of {process}");
            record
        };
        Self { fleet, records: fleet.iter().map(read).collect() }
    }

    fn acquire(&self, value: &str, score: u64) -> Vec<Reply> {
        let (ttl, score) = (MAX_TTL.as_millis().to_string(), score.to_string());
        let ask = |(server, record): (&Server, &String)| {
            let command = ["EVAL", script("acquire"), "4", "a", FENCE, ADMISSION, FLOOR, value, &ttl, &score, record];
            server.command(&command).unwrap()
        };
        self.fleet.iter().zip(&self.records).map(ask).collect()
    }

    /// On how many instances it still had the lock.
    fn release(&self, value: &str, score: u64) -> i64 {
        let command = ["EVAL", script("release"), "2", "a", FENCE, value, &score.to_string()];
        self.fleet.iter().map(|server| server.command(&command).unwrap().int().unwrap()).sum()
    }
}

fn all(answers: &[Reply], word: &str) -> bool {
    answers.iter().all(|answer| answer.items().first().and_then(Reply::text).as_deref() == Some(word))
}

fn score_now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() - secs(EPOCH);
    u64::try_from(now.as_micros()).unwrap()
}

async fn fleet_and_client(program: &Program) -> (Fleet, Redlock) {
    let fleet = fleet_of(program, 5);
    // An instance that stood still meanwhile gets the key with a renewal.
    let redlock = ready(with_admission(&fleet).renew(Renewal::Auto)).await;
    (fleet, redlock)
}

#[test]
fn a_client_that_follows_the_page_excludes_is_excluded_and_gets_tokens_that_grow() {
    on_each_kind(async |program| {
        let (fleet, redlock) = fleet_and_client(&program).await;
        let foreign = Foreign::connect(&fleet);
        let (value, score) = ("page:0123456789abcdef0123456789abcdef:elsewhere", score_now());
        assert!(all(&foreign.acquire(value, score), "granted"));

        let AcquireError::Contended(held_by) = redlock.lock("a").try_acquire().await.unwrap_err() else { panic!() };
        assert_eq!(held_by.by.holder.as_deref(), Some("page"));
        assert_eq!(held_by.by.label.as_deref(), Some("elsewhere"));
        assert_eq!(held_by.by.client.as_deref(), Some("0123456789ab"));
        assert_eq!(foreign.release(value, score), 5);

        let guard = redlock.lock("a").wait_at_most(PATIENCE).acquire().await.unwrap();
        assert!(guard.fencing_token().get() > score * 4096);
        assert!(eventually(PATIENCE, || all_have(&fleet)).await);
        let later = "page:1123456789abcdef0123456789abcdef:elsewhere";
        assert!(all(&foreign.acquire(later, score_now()), "refused"));
        assert_eq!(foreign.release(later, score), 0);
        let ours = guard.fencing_token().get() / 4096;
        assert!(guard.release().await.unwrap().was_still_held, "it has not touched ours");
        free_within(PATIENCE, &fleet).await;

        assert!(all(&foreign.acquire(later, score), "stale"), "an old token");
        assert!(all(&foreign.acquire(later, ours.max(score_now()) + 1), "granted"));
        assert_eq!(foreign.release(later, ours), 5);
    });
}

#[test]
fn a_client_that_follows_the_page_leaves_readers_alone() {
    on_each_kind(async |program| {
        let (fleet, redlock) = fleet_and_client(&program).await;
        let foreign = Foreign::connect(&fleet);
        let (value, score) = ("page:0123456789abcdef0123456789abcdef:elsewhere", score_now());
        let reader = redlock.rw_lock("a").read().await.unwrap();
        assert!(eventually(PATIENCE, || all_have(&fleet)).await);
        assert!(all(&foreign.acquire(value, score), "refused"));
        assert_eq!(foreign.release(value, score), 0);
        assert!(reader.release().await.unwrap().was_still_held);
    });
}

#[test]
fn an_instance_that_forgot_has_no_vote_for_a_client_that_follows_the_page() {
    on_each_kind(async |program| {
        let (fleet, redlock) = fleet_and_client(&program).await;
        let foreign = Foreign::connect(&fleet);
        fleet[0].restart().unwrap();
        fleet[1].command(&["FLUSHALL"]).unwrap();
        let answers = foreign.acquire("x", score_now());
        assert!(all(&answers[..2], "not admitted") && all(&answers[2..], "granted"), "{answers:?}");
        foreign.release("x", score_now());

        // The restarted one is connected again only after a while; both are to sit out from now on.
        let is_known = || !text(&fleet[0], &["GET", ADMISSION]).is_empty();
        assert!(eventually(PATIENCE, is_known).await);
        fleet[1].command(&["FLUSHALL"]).unwrap();
        // This library writes the records anew; with those the page's client waits as well.
        let is_written = || fleet.iter().take(2).all(|server| !text(server, &["GET", ADMISSION]).is_empty());
        assert!(eventually(PATIENCE, is_written).await);
        let again = Foreign::connect(&fleet);
        assert!(all(&again.acquire("y", score_now())[..2], "not admitted"));
        again.release("y", score_now());
        all_vote(&redlock).await;
        let again = Foreign::connect(&fleet);
        assert!(all(&again.acquire("z", score_now()), "granted"));
        assert_eq!(again.release("z", score_now()), 5);
    });
}

#[test]
fn a_token_from_a_wrong_clock_is_neither_granted_nor_left_behind_by_the_page() {
    on_each_kind(async |program| {
        let (fleet, _redlock) = fleet_and_client(&program).await;
        let foreign = Foreign::connect(&fleet);
        let ahead = score_now() + 2 * 86_400 * 1_000_000;
        assert!(all(&foreign.acquire("x", ahead), "ahead"));
        assert_eq!(foreign.release("x", ahead), 0);
        assert!(fleet.iter().all(|server| text(server, &["ZSCORE", FENCE, "a"]).is_empty()));
    });
}

#[test]
fn what_this_library_stores_is_as_the_page_says() {
    on_each_kind(async |program| {
        let (fleet, redlock) = fleet_and_client(&program).await;
        let guard = redlock.lock("a").holder(Holder::from("request:8f3c")).acquire().await.unwrap();
        let on_all = || fleet.iter().all(|server| !text(server, &["GET", "a"]).is_empty());
        assert!(eventually(PATIENCE, on_all).await);
        let first = text(&fleet[0], &["GET", "a"]);
        let parts: Vec<&str> = first.split(':').collect();
        assert_eq!((parts.len(), parts[0], parts[1].len(), parts[2]), (3, "request%3A8f3c", 32, "ours"));
        assert!(parts[1].starts_with(&redlock.client_id()), "{first}");
        for server in fleet.iter() {
            assert_eq!(text(server, &["GET", "a"]), first);
            assert_eq!(text(server, &["ZSCORE", FENCE, "a"]), (guard.fencing_token().get() / 4096).to_string());
        }

        fleet[0].command(&["DEL", "a"]).unwrap();
        guard.release().await.unwrap();
        let tombstone = || !text(&fleet[0], &["ZSCORE", FENCE, &format!("{first} a")]).is_empty();
        assert!(eventually(PATIENCE, tombstone).await);
    });
}

#[test]
fn an_instance_votes_once_its_floor_is_past() {
    on_each_kind(async |program| {
        let (fleet, _redlock) = fleet_and_client(&program).await;
        for server in fleet.iter() {
            let record = text(server, &["GET", ADMISSION]);
            let (vote_from_ms, floor) = (record.split(' ').nth(1).unwrap(), text(server, &["GET", FLOOR]));
            let (vote_from_ms, floor): (u64, u64) = (vote_from_ms.parse().unwrap(), floor.parse().unwrap());
            assert!(floor <= (vote_from_ms - EPOCH * 1_000) * 1_000, "{record}: {floor}");
        }
    });
}
