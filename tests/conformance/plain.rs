//! The usual acquire as plain commands and as a script, on real servers: the same happens.

use std::time::Duration;

use redis::{Connection, ConnectionLike};
use redquorum::testing::conformance::{Ask, Kind, TOKENS, Write, load, writes};
use redquorum::testing::protocol::{
    AdmissionRecord, FencingToken, ProcessIdentity, RawReply, RecordOrigin, Refusal, Reply,
};
use redquorum_testkit::{Program, Server};

use crate::compare::same_reply;
use crate::known::ask;
use crate::model::wall_us;

const RECORD_KEY: &str = "redquorum:admission";
const FLOOR_KEY: &str = "redquorum:floor";
const NEAR: Duration = Duration::from_secs(2);

/// What is there before.
const THERE: [&[&str]; 6] = [
    &[],
    &["SET", "a", "foreign", "PX", "5000"],
    &["SET", "a", "for ever"],
    &["SET", "a", ""],
    &["RPUSH", "a", "no string"],
    &["ZADD", TOKENS, "2", "b"],
];
/// The token that is stored for the lock, if any, or the floor: one that is smaller, the same, or larger.
const STORED: [Option<&str>; 4] = [None, Some("2"), Some("3"), Some("9")];

fn record() -> AdmissionRecord {
    AdmissionRecord {
        identity: ProcessIdentity::new("run", "replication"),
        vote_from_ms: 1_000,
        longest_ttl_ms: 10_000,
        origin: RecordOrigin::Waits,
        order: 1,
    }
}

fn prepare(
    connection: &mut Connection,
    there: &[&str],
    (stored, floor): (Option<&str>, Option<&str>),
    is_recorded: bool,
) {
    let mut all = redis::pipe();
    all.cmd("FLUSHALL").ignore();
    if is_recorded {
        all.cmd("SET").arg(RECORD_KEY).arg(record().to_wire()).ignore();
    }
    if let [name, args @ ..] = there {
        all.cmd(name).arg(args).ignore();
    }
    if let Some(score) = stored {
        all.cmd("ZADD").arg(TOKENS).arg(score).arg("a").ignore();
    }
    if let Some(floor) = floor {
        all.cmd("SET").arg(FLOOR_KEY).arg(floor).ignore();
    }
    all.exec(connection).unwrap();
}

/// What comes of this one, alone in its write.
fn sent(connection: &mut Connection, write: &Write) -> Vec<RawReply> {
    let commands = write.commands(Some(&record()));
    let answers = connection.req_packed_commands(&commands.get_packed_pipeline(), 0, commands.len()).unwrap();
    write.replies(Some(&record()), answers)
}

/// What plain commands name where a token is too small: the floor if that is why, else the token itself.
fn named(floor: Option<&str>, token: FencingToken) -> FencingToken {
    floor.and_then(|floor| FencingToken::from_wire(floor.as_bytes())).map_or(token, |floor| floor.max(token))
}

fn one_write(asks: &[Ask], is_plain: bool) -> Write {
    let mut writes = writes("", asks, is_plain).unwrap();
    assert_eq!(writes.len(), 1);
    writes.remove(0)
}

/// What an instance says and is left with.
fn outcome(connection: &mut Connection, ask: &Ask, is_plain: bool) -> (RawReply, Option<String>) {
    let raw = sent(connection, &one_write(std::slice::from_ref(ask), is_plain)).remove(0);
    let key = redis::cmd("GET").arg("a").query::<Option<String>>(connection).unwrap_or_default();
    (raw, key)
}

#[test]
fn plain_commands_grant_exactly_where_the_script_does() {
    let ask = ask(Kind::Acquire, "a", 3 * 4096, false);
    for program in Program::all_required().unwrap() {
        let server = Server::start(&program).unwrap();
        let mut connection = redis::Client::open(server.address()).unwrap().get_connection().unwrap();
        load().exec(&mut connection).unwrap();
        let mut granted = 0;
        let floors = |(there, stored)| STORED.map(|floor| (there, (stored, floor)));
        for (there, stored) in THERE.iter().flat_map(|there| STORED.map(|stored| (there, stored))).flat_map(floors) {
            for is_recorded in [true, false] {
                let mut by = |is_plain| {
                    prepare(&mut connection, there, stored, is_recorded);
                    outcome(&mut connection, &ask, is_plain)
                };
                let ((script, left_by_script), (plain, left_by_plain)) = (by(false), by(true));
                let at = format!("{server:?}: {there:?}, {stored:?}, {is_recorded}: {script:?} {plain:?}");
                // Plain commands tell no token and no end, and nothing of a value that is empty. What they set is released.
                let without_token = match script.reply.clone() {
                    Reply::Refused(refusal) => Reply::Refused(Refusal {
                        value: refusal.value.filter(|value| !value.is_empty()),
                        ..Refusal::default()
                    }),
                    Reply::Stale { .. } => Reply::Stale { stored: named(stored.1, ask.token) },
                    reply => reply,
                };
                assert!(same_reply(&without_token, &plain.reply, NEAR), "{at}");
                let is_granted = plain.reply == Reply::Granted;
                granted += usize::from(is_granted);
                let near = plain.instance_us.is_some_and(|us| us.abs_diff(wall_us()) < 2_000_000);
                assert_eq!(is_granted, near, "{at}");
                let may_differ = matches!(plain.reply, Reply::Stale { .. } | Reply::NotAdmitted { .. });
                assert!(left_by_script == left_by_plain || may_differ, "{at}: {left_by_script:?} {left_by_plain:?}");
            }
        }
        assert_eq!(granted, 8, "where the key is free and no token and no floor, or smaller ones, are stored");
    }
}

/// Others come in between the commands. Read first, the record would vouch for what was set after it was forgotten.
#[test]
fn an_instance_that_forgets_before_the_last_of_the_commands_grants_nothing() {
    let ask = ask(Kind::Acquire, "a", 3 * 4096, false);
    for program in Program::all_required().unwrap() {
        let server = Server::start(&program).unwrap();
        let mut connection = redis::Client::open(server.address()).unwrap().get_connection().unwrap();
        let write = one_write(std::slice::from_ref(&ask), true);
        let commands = write.commands(Some(&record()));
        for forgets_after in 0..=commands.len() {
            prepare(&mut connection, &[], (None, None), true);
            let mut answers = Vec::new();
            for (index, command) in commands.cmd_iter().enumerate() {
                if index == forgets_after {
                    redis::cmd("FLUSHALL").exec(&mut connection).unwrap();
                }
                answers.push(command.query::<redis::Value>(&mut connection).unwrap());
            }
            let raw = write.replies(Some(&record()), answers).remove(0);
            let is_granted = raw.reply == Reply::Granted;
            assert_eq!(is_granted, forgets_after == commands.len(), "{server:?}: after {forgets_after}: {raw:?}");
            assert!(raw.reply.may_hold_key(), "what was set is released");
        }
    }
}

/// Two plain acquires, `a` and `b`, between a release and an extend.
fn together() -> [Ask; 4] {
    let of = |kind, name, nonce| Ask { nonce, ..ask(kind, name, 3 * 4096, false) };
    let acquires = [of(Kind::Acquire, "a", 1), of(Kind::Acquire, "b", 2)];
    let [a, b] = acquires;
    [of(Kind::Release, "c", 3), a, b, of(Kind::Extend, "d", 4)]
}

/// What an instance says to them when it forgets before the command with this index, if any.
fn replies_together(connection: &mut Connection, forgets_before: Option<usize>) -> Vec<RawReply> {
    let write = one_write(&together(), true);
    let commands = write.commands(Some(&record()));
    let mut answers = Vec::new();
    for (index, command) in commands.cmd_iter().enumerate() {
        if forgets_before == Some(index) {
            redis::cmd("FLUSHALL").exec(connection).unwrap();
        }
        answers.push(connection.req_command(command).unwrap());
    }
    write.replies(Some(&record()), answers)
}

#[test]
fn of_plain_acquires_that_share_a_write_each_is_granted_where_it_is_alone_unless_a_token_is_in_doubt() {
    let asks = together();
    for program in Program::all_required().unwrap() {
        let server = Server::start(&program).unwrap();
        let mut connection = redis::Client::open(server.address()).unwrap().get_connection().unwrap();
        load().exec(&mut connection).unwrap();
        let [mut granted, mut doubted] = [0, 0];
        let floors = |(there, stored)| STORED.map(|floor| (there, (stored, floor)));
        for (there, stored) in THERE.iter().flat_map(|there| STORED.map(|stored| (there, stored))).flat_map(floors) {
            for is_recorded in [true, false] {
                prepare(&mut connection, there, stored, is_recorded);
                let (alone, _) = outcome(&mut connection, &asks[1], false);
                prepare(&mut connection, there, stored, is_recorded);
                let [released, a, b, extended] = replies_together(&mut connection, None).try_into().unwrap();
                let at = format!("{server:?}: {there:?}, {stored:?}, {is_recorded}: {alone:?} {a:?} {b:?}");
                assert!(matches!(released.reply, Reply::Refused(_)), "{at}: {released:?}");
                let votes = matches!(extended.reply, Reply::Repaired);
                assert!(votes == is_recorded, "{at}: {extended:?}");
                // Whether the token of `a` is one that is not larger, wherever its key stands.
                let is_larger = |token: Option<&str>| token.is_some_and(|token| token.parse::<f64>().unwrap() >= 3.0);
                let is_doubted = is_larger(stored.0) || is_larger(stored.1);
                let stale = |ask: &Ask| Reply::Stale { stored: named(stored.1, ask.token) };
                let is_free = matches!(there.first(), None | Some(&"ZADD"));
                let value = match there {
                    ["SET", _, value, ..] if !value.is_empty() => Some(value.as_bytes().to_vec()),
                    _ => None,
                };
                let refused = Reply::Refused(Refusal { value, ..Refusal::default() });
                let expected = match (is_recorded, is_free, is_doubted) {
                    (false, ..) => [Reply::NotAdmitted { remaining: None }, Reply::NotAdmitted { remaining: None }],
                    (_, true, true) => [stale(&asks[1]), stale(&asks[2])],
                    (_, false, true) => [refused.clone(), stale(&asks[2])],
                    (_, true, false) => [Reply::Granted, Reply::Granted],
                    (_, false, false) => [refused.clone(), Reply::Granted],
                };
                assert_eq!([a.reply.clone(), b.reply], expected, "{at}");
                // Nothing is granted that is not granted alone.
                assert!(a.reply != Reply::Granted || alone.reply == Reply::Granted, "{at}");
                let near = a.instance_us.is_some_and(|us| us.abs_diff(wall_us()) < 2_000_000);
                assert_eq!(a.reply == Reply::Granted, near, "{at}");
                granted += usize::from(near);
                doubted += usize::from(matches!(a.reply, Reply::Stale { .. }));
            }
        }
        assert!(granted == 8 && doubted > 0, "{granted} {doubted}");
    }
}

/// As when they are alone: what is forgotten in between is forgotten for each of them.
#[test]
fn an_instance_that_forgets_before_the_record_is_read_grants_nothing_to_those_that_share_a_write() {
    for program in Program::all_required().unwrap() {
        let server = Server::start(&program).unwrap();
        let mut connection = redis::Client::open(server.address()).unwrap().get_connection().unwrap();
        load().exec(&mut connection).unwrap();
        let commands = one_write(&together(), true).commands(Some(&record())).len();
        let behind_the_record = commands - 1;
        for forgets_before in 0..=commands {
            prepare(&mut connection, &[], (None, None), true);
            let replies = replies_together(&mut connection, Some(forgets_before));
            for raw in &replies[1..3] {
                let is_granted = raw.reply == Reply::Granted;
                assert_eq!(is_granted, forgets_before >= behind_the_record, "{server:?}: {forgets_before}: {raw:?}");
                assert!(raw.reply.may_hold_key(), "what was set is released");
            }
        }
    }
}
