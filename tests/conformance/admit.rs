//! `write_record.lua` on real servers against its mirror: every state of the record, with every intention.

use redis::Value as Wire;
use redquorum::testing::conformance::{Admission, Content, Store, admit, load, write_record};
use redquorum::testing::protocol::{AdmissionRecord, Instant, ProcessIdentity, RecordOrigin};
use redquorum_testkit::{Program, Server};

use crate::model::wall_us;

const KEY: &str = "redquorum:admission";
/// By as much may instants differ that are compared, and no less are those apart that must not be mixed up.
const MOST_MS: u64 = 1_000;

/// What is there, or is thought to be.
const THERE: [&str; 4] = ["", "no string", "something else", "RECORD"];
const ORIGINS: [RecordOrigin; 3] = [RecordOrigin::Waits, RecordOrigin::Flushed, RecordOrigin::Opened];

fn record(vote_from_ms: u64) -> AdmissionRecord {
    AdmissionRecord {
        identity: ProcessIdentity::new("a", "b"),
        vote_from_ms,
        longest_ttl_ms: 5_000,
        origin: RecordOrigin::Waits,
        order: 1,
    }
}

fn same(one: &[u8], other: &[u8]) -> bool {
    match (AdmissionRecord::from_wire(one), AdmissionRecord::from_wire(other)) {
        (Some(one), Some(other)) => {
            let near = one.vote_from_ms.abs_diff(other.vote_from_ms) < MOST_MS;
            let near = near && one.order.abs_diff(other.order) < MOST_MS;
            near && AdmissionRecord { vote_from_ms: 0, order: 0, ..one }
                == AdmissionRecord { vote_from_ms: 0, order: 0, ..other }
        }
        _ => one == other,
    }
}

#[test]
fn a_record_is_written_only_over_what_was_found_and_follows_it_or_begins_a_quarantine() {
    for program in Program::all_required().unwrap() {
        let server = Server::start(&program).unwrap();
        let mut connection = redis::Client::open(server.address()).unwrap().get_connection().unwrap();
        load().exec(&mut connection).unwrap();
        let now_ms = wall_us() / 1_000;
        let there_is = |name: &str| if name == "RECORD" { record(now_ms).to_wire() } else { name.to_owned() };
        let instants = [0, now_ms - 20 * MOST_MS, now_ms + 20 * MOST_MS];
        let orders = [0, now_ms + 20 * MOST_MS];
        for (there, found) in THERE.iter().flat_map(|there| THERE.map(|found| (there_is(there), there_is(found)))) {
            let intentions = ORIGINS.iter().flat_map(|origin| instants.map(|instant| (*origin, instant)));
            let waits = [None, Some(0), Some(5_000), Some(40 * MOST_MS)];
            let rest = |one| orders.iter().flat_map(move |order| waits.map(|wait_ms| (one, *order, wait_ms)));
            for ((origin, vote_from_ms), order, wait_ms) in intentions.flat_map(rest) {
                let (identity, found) = (ProcessIdentity::new("run", "replication"), found.clone().into_bytes());
                let longest_ttl_ms = 5_000;
                let floor_us = (0, 0);
                let admission =
                    Admission { found, identity, longest_ttl_ms, origin, vote_from_ms, wait_ms, order, floor_us };
                let mut store = Store::default();
                redis::cmd("DEL").arg(KEY).exec(&mut connection).unwrap();
                match there.as_str() {
                    "" => {}
                    "no string" => {
                        redis::cmd("RPUSH").arg(KEY).arg("x").exec(&mut connection).unwrap();
                        store.set_other_type(KEY.as_bytes());
                    }
                    text => {
                        redis::cmd("SET").arg(KEY).arg(text).exec(&mut connection).unwrap();
                        store.set(KEY.as_bytes(), text.as_bytes(), None);
                    }
                }
                let answer = admit(&admission).query::<(Option<Vec<u8>>, u64)>(&mut connection).unwrap();
                let expected = write_record(&mut store, &admission, wall_us());
                let at = format!("{server:?}: {there:?} is there, {admission:?}");
                let agrees = answer.0.as_deref().zip(expected.as_deref()).map(|(one, other)| same(one, other));
                assert!(agrees.unwrap_or(answer.0 == expected), "{at}: {answer:?} instead of {expected:?}");
                assert!(answer.1.abs_diff(wall_us()) < MOST_MS * 1_000, "{at}: {answer:?}");

                let text = match redis::cmd("GET").arg(KEY).query::<Wire>(&mut connection) {
                    Ok(Wire::BulkString(text)) => Content::Text(text, None),
                    Ok(_) => Content::Nothing,
                    Err(_) => Content::OtherType,
                };
                let kept = match (Content::of(&store, KEY, Instant::ZERO), text) {
                    (Content::Text(one, None), Content::Text(other, None)) => same(&one, &other),
                    (one, other) => one == other,
                };
                assert!(kept, "{at}");
            }
        }
    }
}
