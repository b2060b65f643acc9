//! Whatever a server says: only the exact words of the request's own script are a vote.

use std::sync::Arc;

use proptest::prelude::*;
use redis::{Parser, RedisError};

use super::*;
use crate::instance::{Claim, Successors};

pub(super) fn requests(resources: usize) -> [Request; 4] {
    let names: Vec<String> = (0..resources).map(|index| index.to_string()).collect();
    let claim = Arc::new(Claim::sample(7, &names));
    let pass_on = |claim| {
        Request::PassOn(claim, Arc::new(Successors { clients: Vec::new(), message: Vec::new(), grace: Duration::ZERO }))
    };
    let kinds = [Request::Acquire, Request::Extend, Request::Release, pass_on];
    kinds.map(|kind| kind(Arc::clone(&claim)))
}

fn replies(raws: Vec<RawReply>) -> Vec<Reply> {
    raws.into_iter().map(|raw| raw.reply).collect()
}

/// What a reply on the wire becomes, as the redis crate reads it.
fn from_wire(request: &Request, wire: &str) -> Reply {
    let value = Parser::new().parse_value(wire.as_bytes());
    classify(request, value.and_then(Value::extract_error)).reply
}

pub(super) fn word() -> impl Strategy<Value = Vec<u8>> {
    let ours = vec!["granted", "refused", "stale", "released", "GRANTED", "granted ", "OK", "", "1"];
    prop_oneof![prop::sample::select(ours).prop_map(|word| word.as_bytes().to_vec()), any::<Vec<u8>>()]
}

pub(super) fn value() -> impl Strategy<Value = Value> {
    let error = |(code, details): (String, String)| {
        Parser::new().parse_value(format!("-{code} {details}\r\n").as_bytes()).unwrap_or(Value::Nil)
    };
    let leaf = prop_oneof![
        Just(Value::Nil),
        Just(Value::Okay),
        (-3i64..5).prop_map(Value::Int),
        any::<i64>().prop_map(Value::Int),
        any::<bool>().prop_map(Value::Boolean),
        any::<f64>().prop_map(Value::Double),
        word().prop_map(Value::BulkString),
        word().prop_map(|word| Value::SimpleString(String::from_utf8_lossy(&word).into_owned())),
        ("[A-Z]{1,12}", "[ -~]{0,60}").prop_map(error),
    ];
    leaf.prop_recursive(3, 24, 6, |inner| {
        let list = || prop::collection::vec(inner.clone(), 0..6);
        let pairs = prop::collection::vec((inner.clone(), inner.clone()), 0..4);
        prop_oneof![4 => list().prop_map(Value::Array), 1 => list().prop_map(Value::Set), 1 => pairs.prop_map(Value::Map)]
    })
}

/// Renewal replies, whole and damaged, and anything else.
fn renewal() -> impl Strategy<Value = Value> {
    let head = prop::sample::select(vec!["renewed", "renewed", "not admitted", "granted", "Renewed", ""]);
    let near = prop_oneof![4 => (-1i64..6).prop_map(Value::Int), 1 => value()];
    let parts = (head, prop::collection::vec(near, 0..5));
    let built = parts.prop_map(|(head, rest)| {
        Value::Array(std::iter::once(Value::BulkString(head.as_bytes().to_vec())).chain(rest).collect())
    });
    prop_oneof![3 => built, 1 => value()]
}

/// Answers to a look, whole and damaged, and anything else.
pub(super) fn is_text(value: &Value, expected: &[u8]) -> bool {
    match value {
        Value::BulkString(bytes) => bytes == expected,
        Value::SimpleString(text) => text.as_bytes() == expected,
        _ => false,
    }
}

fn is_grant(value: &Value) -> bool {
    matches!(value, Value::Array(items) if matches!(items.as_slice(), [word, Value::Int(_)] if is_text(word, b"granted")))
}

/// Of an acquire of one resource alone.
fn is_short_grant(value: &Value) -> bool {
    is_text(value, b"granted") || matches!(value, Value::Int(100_000_000_000..))
}

proptest! {
    #[test]
    fn only_the_exact_words_of_the_script_are_a_grant(value in value(), resources in 1usize..4) {
        for request in requests(resources) {
            let exact = match request {
                Request::Release(_) | Request::PassOn(..) => value == Value::Int(i64::try_from(resources).unwrap()),
                Request::Acquire(_) if resources == 1 => is_grant(&value) || is_short_grant(&value),
                _ => is_grant(&value),
            };
            prop_assert_eq!(classify(&request, Ok(value.clone())).reply == Reply::Granted, exact);
        }
    }

    #[test]
    fn an_answer_that_no_script_gives_is_unknown(value in value(), resources in 1usize..4) {
        for request in requests(resources) {
            let fits = match (&request, &value) {
                (request, value) if request.is_release() => matches!(value, Value::Int(_)),
                (Request::Acquire(_), value) if resources == 1 && is_short_grant(value) => true,
                (_, Value::Array(items)) => {
                    let says = |word: &[u8]| items.first().is_some_and(|first| is_text(first, word));
                    let says_with_number = says(b"granted") || says(b"not admitted");
                    (says(b"refused") && items.len() == 5) || ((says(b"stale") || says_with_number) && items.len() == 2)
                }
                _ => false,
            };
            let missing_scripts = matches!(&value, Value::ServerError(error) if error.code() == "NOSCRIPT");
            let reply = classify(&request, Ok(value.clone())).reply;
            prop_assert!(fits || missing_scripts || matches!(reply, Reply::Unknown(_)), "{reply:?}");
        }
    }

    #[test]
    fn a_batch_has_one_reply_for_each_request_and_votes_only_for_its_own(
        values in prop::collection::vec(value(), 0..5), surplus in 0usize..2,
    ) {
        let all = requests(1);
        let asked: Vec<&Request> = all.iter().cycle().take(values.len() + surplus).collect();
        let replies = classify_batch(&asked, Ok(Value::Array(values.clone())));
        prop_assert_eq!(replies.len(), asked.len());
        for (index, reply) in replies.iter().enumerate() {
            let own = values.get(index).filter(|_| surplus == 0).map(|value| classify(asked[index], Ok(value.clone())));
            prop_assert!(own.is_none_or(|own| own == *reply));
            prop_assert!(surplus == 0 || reply.reply != Reply::Granted);
        }
    }

    #[test]
    fn only_the_exact_words_of_the_script_renew_and_no_lease_that_it_leaves_out(value in renewal(), count in 0usize..5) {
        let places = match &value {
            Value::Array(items) => match items.as_slice() {
                [word, Value::Int(_), places @ ..] if is_text(word, b"renewed") => Some(places),
                _ => None,
            },
            _ => None,
        };
        let limit = i64::try_from(count).unwrap();
        let all_fit = |places: &[Value]| places.iter().all(|place| matches!(place, Value::Int(place) if (1..=limit).contains(place)));
        let (raw, others) = classify_extend_many(count, Ok(value.clone()));
        prop_assert_eq!(raw.reply == Reply::Granted, places.is_some_and(all_fit), "{:?}", value);
        prop_assert!(raw.reply == Reply::Granted || (others.is_empty() && raw.instance_us.is_none()));
        prop_assert!(others.iter().all(|place| *place < count));
        if raw.reply == Reply::Granted {
            prop_assert_eq!(others.len(), places.map_or(0, <[Value]>::len));
        }
    }

    #[test]
    fn no_error_is_a_vote(code in "[A-Z]{1,12}", details in "\\PC{0,300}") {
        let wire = format!("-{code} {details}\r\n");
        let is_no_vote = |reply: &Reply| {
            let missing = code == "NOSCRIPT" && *reply == Reply::NotSent(Cause::ScriptMissing);
            missing || matches!(reply, Reply::Unknown(_))
        };
        for request in requests(1) {
            prop_assert!(is_no_vote(&from_wire(&request, &wire)));
        }
        let value = Parser::new().parse_value(wire.as_bytes());
        for result in [value.clone(), value.and_then(Value::extract_error)] {
            let (raw, others) = classify_extend_many(3, result.clone());
            prop_assert!(is_no_vote(&raw.reply) && others.is_empty());
            let answers: Vec<Value> = result.into_iter().collect();
            prop_assert_eq!(classify_key_check(&[Arc::clone(requests(1)[0].claim())], &answers), None);
        }
    }
}

#[test]
fn the_answers_of_the_scripts_are_read() {
    let [acquire, extend, release, ..] = &requests(2);
    for request in [acquire, extend] {
        assert_eq!(from_wire(request, "*2\r\n$7\r\ngranted\r\n:1700000000000000\r\n"), Reply::Granted);
        let wire = "*2\r\n$12\r\nnot admitted\r\n:1500\r\n";
        let left = Some(Duration::from_millis(1_500));
        assert_eq!(from_wire(request, wire), Reply::NotAdmitted { remaining: left });
        let wire = "*2\r\n$12\r\nnot admitted\r\n:-1\r\n";
        assert_eq!(from_wire(request, wire), Reply::NotAdmitted { remaining: None });
        let wire = "*5\r\n$7\r\nrefused\r\n:1\r\n:900\r\n$1\r\nx\r\n$1\r\n1\r\n";
        let refusal = Refusal {
            resource: 1,
            value: Some(b"x".to_vec()),
            expires_in: Some(Duration::from_millis(900)),
            token: FencingToken::from_number(4096),
        };
        assert_eq!(from_wire(request, wire), Reply::Refused(refusal));
        let wire = "*5\r\n$7\r\nrefused\r\n:0\r\n:-1\r\n$-1\r\n$-1\r\n";
        assert_eq!(from_wire(request, wire), Reply::Refused(Refusal::default()));
        let beyond = "*5\r\n$7\r\nrefused\r\n:2\r\n:-1\r\n$-1\r\n$-1\r\n";
        assert!(matches!(from_wire(request, beyond), Reply::Unknown(Cause::OddReply(_))));
    }
    let stale = "*2\r\n$5\r\nstale\r\n$1\r\n2\r\n";
    assert_eq!(from_wire(acquire, stale), Reply::Stale { stored: FencingToken::from_number(8192).unwrap() });
    assert!(matches!(from_wire(extend, stale), Reply::Unknown(Cause::OddReply(_))));
    assert_eq!(from_wire(release, ":2\r\n"), Reply::Granted);
    assert_eq!(from_wire(release, ":1\r\n"), Reply::Refused(Refusal::default()));
    assert_eq!(from_wire(release, ":0\r\n"), Reply::Refused(Refusal::default()));
    assert!(matches!(from_wire(release, ":3\r\n"), Reply::Unknown(_)));
    assert!(matches!(from_wire(release, "$7\r\ngranted\r\n"), Reply::Unknown(_)));
    assert!(matches!(from_wire(release, "*2\r\n$7\r\ngranted\r\n:1700000000000000\r\n"), Reply::Unknown(_)));
    let behind = Cause::ClockBehind { clock_s: 1_700_000_000, token_s: acquire.claim().token.clock_us() / 1_000_000 };
    assert_eq!(from_wire(acquire, "*2\r\n$5\r\nahead\r\n:1700000000999999\r\n"), Reply::Unknown(behind));
}

#[test]
fn the_answers_to_a_renewal_of_many_leases_are_read() {
    let read = |wire: &str| classify_extend_many(3, Parser::new().parse_value(wire.as_bytes()));
    let renewed = |instance_us| RawReply { reply: Reply::Granted, instance_us, unit_us: 1 };
    assert_eq!(read("*3\r\n$7\r\nrenewed\r\n:1700000\r\n:3\r\n"), (renewed(Some(1_700_000)), vec![2]));
    assert_eq!(read("*2\r\n$7\r\nrenewed\r\n:0\r\n"), (renewed(None), vec![]));
    let left = Reply::NotAdmitted { remaining: Some(Duration::from_millis(1_500)) };
    assert_eq!(read("*2\r\n$12\r\nnot admitted\r\n:1500\r\n").0.reply, left);
}

#[test]
fn a_short_grant_of_one_resource_tells_the_clock_by_the_expiry() {
    let [acquire, extend, ..] = &requests(1);
    let wire = |wire: &str| classify(acquire, Ok(redis::parse_redis_value(wire.as_bytes()).unwrap()));
    let ttl_ms = i64::try_from(acquire.claim().ttl.as_millis()).unwrap();
    let grant = wire(&format!(":{}\r\n", 1_700_000_000_123 + ttl_ms));
    assert_eq!(grant, RawReply { reply: Reply::Granted, instance_us: Some(1_700_000_000_123_000), unit_us: 1_000 });
    let off = wire("$7\r\ngranted\r\n");
    assert_eq!(off, RawReply { reply: Reply::Granted, instance_us: None, unit_us: 1 });
    for none in [":0\r\n", ":1\r\n", ":-2\r\n", ":99999999999\r\n"] {
        assert!(matches!(wire(none).reply, Reply::Unknown(Cause::OddReply(_))), "{none}");
    }
    for other in [extend, &requests(2)[0]] {
        assert!(matches!(from_wire(other, "$7\r\ngranted\r\n"), Reply::Unknown(_)));
        assert!(matches!(from_wire(other, ":1700000000123\r\n"), Reply::Unknown(_)));
    }
}

#[test]
fn words_that_are_nearly_a_grant_are_none() {
    let near = ["granted ", " granted", "grantedx", "Granted", "GRANTED", "grante", "", "OK", "1", "true", "released"];
    for request in requests(1) {
        for word in near {
            for wire in [format!("${}\r\n{word}\r\n", word.len()), format!("+{word}\r\n")] {
                assert!(matches!(from_wire(&request, &wire), Reply::Unknown(Cause::OddReply(_))), "{word:?}");
            }
        }
        for wire in [
            "*1\r\n$7\r\ngranted\r\n",
            "*0\r\n",
            "_\r\n",
            "#t\r\n",
            ",1\r\n",
            "%1\r\n+granted\r\n:1\r\n",
            "=11\r\ntxt:granted\r\n",
        ] {
            assert!(matches!(from_wire(&request, wire), Reply::Unknown(_)), "{wire:?}");
        }
    }
}

const fn name(reply: &Reply) -> &'static str {
    match reply {
        Reply::NotSent(Cause::ScriptMissing) => "script missing",
        Reply::Unknown(Cause::Loading) => "loading",
        Reply::Unknown(Cause::Busy) => "busy",
        Reply::Unknown(Cause::OutOfMemory) => "out of memory",
        Reply::Unknown(Cause::ReadOnly) => "read only",
        Reply::Unknown(Cause::CannotWrite(_)) => "cannot write",
        Reply::Unknown(Cause::NoPermission(_)) => "no permission",
        Reply::Unknown(Cause::KeyForbidden(_)) => "key",
        Reply::Unknown(Cause::PasswordNeeded) => "password needed",
        Reply::Unknown(Cause::PasswordRefused) => "password refused",
        Reply::Unknown(Cause::NoDatabase(_)) => "database",
        Reply::Unknown(Cause::ClusterMode(_)) => "cluster",
        Reply::Unknown(Cause::Server(_)) => "server",
        _ => "?",
    }
}

/// Errors as Redis 7 to 8 and Valkey send them.
#[test]
fn the_errors_of_real_servers_are_told_apart() {
    let table = [
        ("script missing", "NOSCRIPT No matching script. Please use EVAL."),
        ("loading", "LOADING Redis is loading the dataset in memory"),
        ("loading", "LOADING Valkey is loading the dataset in memory"),
        ("busy", "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."),
        ("out of memory", "OOM command not allowed when used memory > 'maxmemory'."),
        ("out of memory", "OOM command not allowed when used memory > 'maxmemory'. script: 9d3f, on @user_script:14."),
        (
            "out of memory",
            "ERR Error running script (call to f_9d3f): @user_script:14: @user_script: 14: -OOM command not allowed when used memory > 'maxmemory'.",
        ),
        ("read only", "READONLY You can't write against a read only replica."),
        ("read only", "READONLY You can't write against a read only replica. script: 9d3f, on @user_script:14."),
        (
            "read only",
            "ERR Error running script (call to f_9d3f): @user_script:14: @user_script: 14: -READONLY You can't write against a read only replica.",
        ),
        ("no permission", "NOPERM this user has no permissions to run the 'evalsha' command"),
        ("key", "NOPERM User app has no permissions to access one of the keys used as arguments"),
        ("key", "NOPERM this user has no permissions to access one of the keys used as arguments"),
        ("key", "NOPERM No permissions to access a key"),
        ("key", "ERR ACL failure in script: No permissions to access a key"),
        (
            "key",
            "ERR The user executing the script can't access at least one of the keys mentioned in the command arguments script: 9d3f, on @user_script:14.",
        ),
        (
            "no permission",
            "ERR The user executing the script can't run this command or subcommand script: 9d3f, on @user_script:14.",
        ),
        ("no permission", "ERR ACL failure in script: User locker has no permissions to run the 'set' command"),
        ("password needed", "NOAUTH Authentication required."),
        ("password refused", "WRONGPASS invalid username-password pair or user is disabled."),
        ("cluster", "MOVED 3999 127.0.0.1:6381"),
        ("cluster", "ASK 3999 127.0.0.1:6381"),
        ("cluster", "CLUSTERDOWN Hash slot not served"),
        ("cluster", "CROSSSLOT Keys in request don't hash to the same slot"),
        ("cluster", "TRYAGAIN Multiple keys request during rehashing of slot"),
        (
            "cannot write",
            "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. Commands that may modify the data set are disabled.",
        ),
        ("cannot write", "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."),
        ("cannot write", "NOREPLICAS Not enough good replicas to write."),
        ("server", "WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("server", "ERR unknown command 'EVALSHA', with args beginning with: "),
        ("server", "ERR max number of clients reached"),
        ("database", "ERR DB index is out of range"),
        ("database", "ERR invalid DB index"),
        ("cluster", "ERR SELECT is not allowed in cluster mode"),
    ];
    for (expected, text) in table {
        for request in requests(1) {
            let reply = from_wire(&request, &format!("-{text}\r\n"));
            assert_eq!(name(&reply), expected, "{text}: {reply:?}");
        }
    }
}

#[test]
fn an_error_inside_a_batch_concerns_its_own_request_and_one_in_its_place_all() {
    let [acquire, extend, release, ..] = &requests(1);
    let wire = "*3\r\n*2\r\n$7\r\ngranted\r\n:0\r\n-OOM command not allowed when used memory > 'maxmemory'.\r\n:1\r\n";
    let value = Parser::new().parse_value(wire.as_bytes()).unwrap();
    let each = replies(classify_batch(&[acquire, extend, release], Ok(value)));
    assert_eq!(each, [Reply::Granted, Reply::Unknown(Cause::OutOfMemory), Reply::Granted]);
    let value = Parser::new().parse_value(b"-NOSCRIPT No matching script.\r\n".as_slice()).unwrap();
    let all = replies(classify_batch(&[acquire, release], Ok(value)));
    assert_eq!(all, [Reply::NotSent(Cause::ScriptMissing), Reply::NotSent(Cause::ScriptMissing)]);
}

#[test]
fn what_a_server_repeats_of_a_command_is_left_out() {
    let echo = "ERR unknown command 'SCRIPT', with args beginning with: 'LOAD' '-- a whole script' ";
    let Reply::Unknown(cause) = from_wire(&requests(1)[0], &format!("-{echo}\r\n")) else { panic!("it is unknown") };
    assert_eq!(cause, Cause::Server("ERR unknown command 'SCRIPT'".to_owned()));
}

#[test]
fn a_broken_connection_is_unknown() {
    let broken = || RedisError::from(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
    for request in requests(1) {
        assert!(matches!(classify(&request, Err(broken())).reply, Reply::Unknown(Cause::Disconnected(_))));
    }
    let [acquire, extend, ..] = &requests(1);
    assert!(classify_batch(&[acquire, extend], Err(broken())).iter().all(|raw| raw.reply.may_hold_key()));
}
