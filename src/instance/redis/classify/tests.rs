//! Only the exact words of the request's own script are a vote, and no other words of a server.

use proptest::prelude::*;
use redis::Parser;

use super::*;
use crate::protocol::{AdmissionRecord, ProcessIdentity, RecordOrigin};
use crate::testing::conformance::written;

fn claim() -> Arc<Claim> {
    Arc::new(Claim::sample(7, "a"))
}

/// The scripts that are called for locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Called {
    Acquire,
    Extend,
    Release,
}

const CALLED: [Called; 3] = [Called::Acquire, Called::Extend, Called::Release];

/// What the answer of a script means for so many locks.
fn read(called: Called, count: usize, answer: &[u8]) -> Vec<RawReply> {
    let claims: Vec<Claim> = (0..count).map(|_| Claim::clone(&claim())).collect();
    match called {
        Called::Acquire => classify_acquires(&claims, answer),
        Called::Extend => classify_extends(&claims, answer),
        Called::Release => classify_releases(&claims, answer),
    }
}

/// Of one lock.
fn from_wire(called: Called, wire: &str) -> Reply {
    read(called, 1, wire.as_bytes()).remove(0).reply
}

fn word() -> impl Strategy<Value = Vec<u8>> {
    let ours = vec!["granted", "refused", "stale", "released", "GRANTED", "granted ", "OK", "", "1"];
    prop_oneof![prop::sample::select(ours).prop_map(|word| word.as_bytes().to_vec()), any::<Vec<u8>>()]
}

fn value() -> impl Strategy<Value = Value> {
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

/// Answers of scripts, whole and damaged, and anything else.
fn script() -> impl Strategy<Value = Value> {
    let head = prop::sample::select(vec!["done", "done", "done", "not admitted", "Done", "granted", ""]);
    let near = prop_oneof![4 => (-1i64..4).prop_map(Value::Int), 1 => value()];
    let parts = (head, prop::collection::vec(near, 0..6));
    let built = parts.prop_map(|(head, rest)| {
        Value::Array(std::iter::once(Value::BulkString(head.as_bytes().to_vec())).chain(rest).collect())
    });
    let bare = prop::collection::vec((-1i64..4).prop_map(Value::Int), 0..4).prop_map(Value::Array);
    prop_oneof![3 => built, 1 => bare, 1 => value()]
}

fn is_text(value: &Value, expected: &[u8]) -> bool {
    match value {
        Value::BulkString(bytes) => bytes == expected,
        Value::SimpleString(text) => text.as_bytes() == expected,
        _ => false,
    }
}

/// Which of so many locks are granted by this answer, said in other words than the classifier's.
fn granted(called: Called, count: usize, answer: &Value) -> Vec<bool> {
    let Value::Array(items) = answer else { return vec![false; count] };
    let answers = match (called, items.as_slice()) {
        (Called::Release, answers) => answers,
        (Called::Acquire, [done, Value::Int(_), answers @ ..]) if is_text(done, b"done") => answers,
        (Called::Extend, [done, Value::Int(_), Value::Int(0), answers @ ..]) if is_text(done, b"done") => answers,
        _ => &[],
    };
    match answers.len() == count {
        true => answers.iter().map(|answer| *answer == Value::Int(1)).collect(),
        false => vec![false; count],
    }
}

proptest! {
    #[test]
    fn only_the_exact_words_of_the_script_are_a_grant(answer in script(), count in 1usize..4) {
        for called in CALLED {
            let replies = read(called, count, &written(&answer));
            prop_assert_eq!(replies.len(), count);
            let is_granted: Vec<bool> = replies.iter().map(|raw| raw.reply == Reply::Granted).collect();
            prop_assert_eq!(is_granted, granted(called, count, &answer), "{:?}", called);
            for raw in replies {
                let votes = matches!(raw.reply, Reply::Granted | Reply::Repaired | Reply::Kept { .. });
                prop_assert!(votes || raw.instance_us.is_none());
                let is_of_an_extend = matches!(raw.reply, Reply::Repaired | Reply::Kept { .. });
                prop_assert!(called == Called::Extend || !is_of_an_extend);
            }
        }
    }

    #[test]
    fn no_error_is_a_vote(code in "[A-Z]{1,12}", details in "\\PC{0,300}") {
        let wire = format!("-{code} {details}\r\n");
        for called in CALLED {
            let reply = from_wire(called, &wire);
            let missing = code == "NOSCRIPT" && reply == Reply::NotSent(Cause::ScriptMissing);
            prop_assert!(missing || matches!(reply, Reply::Unknown(_)));
        }
        let answers: Vec<Value> = Parser::new().parse_value(wire.as_bytes()).into_iter().collect();
        prop_assert_eq!(classify_key_check(&[claim()], &answers), None);
    }
}

const NOW: &str = ":1700000000000000\r\n";

#[test]
fn the_answers_of_the_scripts_are_read() {
    let acquired = |answer: &str| from_wire(Called::Acquire, &format!("*3\r\n$4\r\ndone\r\n{NOW}{answer}"));
    let extended = |left_ms: i64, answer: &str| {
        from_wire(Called::Extend, &format!("*4\r\n$4\r\ndone\r\n{NOW}:{left_ms}\r\n{answer}"))
    };
    let released = |answer: &str| from_wire(Called::Release, &format!("*1\r\n{answer}"));
    let is_odd = |reply: &Reply| matches!(reply, Reply::Unknown(Cause::OddReply(_)));

    assert_eq!(acquired(":1\r\n"), Reply::Granted);
    assert_eq!(extended(0, ":1\r\n"), Reply::Granted);
    assert_eq!(extended(0, ":2\r\n"), Reply::Repaired);
    assert_eq!(extended(1_500, ":1\r\n"), Reply::Kept { remaining: Duration::from_millis(1_500) });
    assert!(is_odd(&extended(1_500, ":2\r\n")), "in quarantine nothing is set");
    assert!(is_odd(&extended(-1, ":1\r\n")) && is_odd(&acquired(":2\r\n")) && is_odd(&acquired(":0\r\n")));
    assert_eq!((released(":1\r\n"), released(":0\r\n")), (Reply::Granted, Reply::Refused(Refusal::default())));
    assert!(is_odd(&released(":2\r\n")) && is_odd(&released("$7\r\ngranted\r\n")));
    assert!(is_odd(&from_wire(Called::Release, "~1\r\n:1\r\n")), "a set is no list");

    for wire in
        ["*4\r\n$7\r\nrefused\r\n:900\r\n$1\r\nx\r\n$1\r\n1\r\n", "*4\r\n$7\r\nrefused\r\n:-1\r\n$-1\r\n$-1\r\n"]
    {
        let refusal = Refusal {
            value: Some(b"x".to_vec()),
            expires_in: Some(Duration::from_millis(900)),
            token: FencingToken::from_number(4096),
        };
        let without_end = Refusal { expires_in: Some(Duration::MAX), ..Refusal::default() };
        let refusal = if wire.contains(":900") { refusal } else { without_end };
        assert_eq!([acquired(wire), extended(0, wire)], [Reply::Refused(refusal.clone()), Reply::Refused(refusal)]);
        assert!(is_odd(&released(wire)));
    }
    let stale = "*2\r\n$5\r\nstale\r\n$1\r\n2\r\n";
    assert_eq!(acquired(stale), Reply::Stale { stored: FencingToken::from_number(8192).unwrap() });
    assert!(is_odd(&extended(0, stale)));
    assert!(is_odd(&acquired(&stale.replace("stale", "other"))));
    let behind = Cause::ClockBehind { clock_s: 1_700_000_000, token_s: claim().token.clock_us() / 1_000_000 };
    for reply in [acquired("$5\r\nahead\r\n"), extended(0, "$5\r\nahead\r\n")] {
        assert_eq!(reply, Reply::Unknown(behind.clone()));
    }
    for (left, remaining) in [(1_500, Some(Duration::from_millis(1_500))), (-1, None)] {
        let wire = format!("*2\r\n$12\r\nnot admitted\r\n:{left}\r\n");
        for called in [Called::Acquire, Called::Extend] {
            assert_eq!(from_wire(called, &wire), Reply::NotAdmitted { remaining });
        }
        assert!(is_odd(&from_wire(Called::Release, &wire)));
    }
}

/// Another request is as well as if it had been alone.
#[test]
fn an_error_among_the_answers_concerns_its_own_lock_and_one_in_their_place_all() {
    let oom = "-OOM command not allowed when used memory > 'maxmemory'.\r\n";
    let wire = format!("*5\r\n$4\r\ndone\r\n{NOW}:1\r\n{oom}:1\r\n");
    let each = read(Called::Acquire, 3, wire.as_bytes());
    let granted = RawReply { reply: Reply::Granted, instance_us: Some(1_700_000_000_000_000) };
    let failed = RawReply { reply: Reply::Unknown(Cause::OutOfMemory), instance_us: None };
    assert_eq!(each, [granted.clone(), failed, granted]);
    for (wire, is_a_fault) in
        [("-NOSCRIPT No matching script.\r\n", false), ("-NOPERM No permissions to access a key\r\n", true)]
    {
        let all = read(Called::Acquire, 2, wire.as_bytes());
        assert!(all.iter().all(|raw| !matches!(raw.reply, Reply::Granted)) && all[0] == all[1], "{all:?}");
        assert_eq!(is_a_fault_of_a_request(wire.as_bytes()), is_a_fault);
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
fn the_errors_of_real_servers_are_distinguished() {
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
        for called in CALLED {
            let reply = from_wire(called, &format!("-{text}\r\n"));
            assert_eq!(name(&reply), expected, "{text}: {reply:?}");
        }
    }
}

#[test]
fn what_a_server_repeats_of_a_command_is_left_out() {
    let echo = "ERR unknown command 'SCRIPT', with args beginning with: 'LOAD' '-- a whole script' ";
    let Reply::Unknown(cause) = from_wire(Called::Acquire, &format!("-{echo}\r\n")) else { panic!("it is unknown") };
    assert_eq!(cause, Cause::Server("ERR unknown command 'SCRIPT'".to_owned()));
}

const NOW_US: u64 = 1_800_000_000_000_000;

fn text(text: impl AsRef<[u8]>) -> Value {
    Value::BulkString(text.as_ref().to_vec())
}

fn attached() -> AttachedRecord {
    let (identity, origin) = (ProcessIdentity::new("run", "replication"), RecordOrigin::Waits);
    AttachedRecord::new(AdmissionRecord { identity, vote_from_ms: 1, longest_ttl_ms: 1_000, origin, order: 1 }, true)
}

/// The replies to plain acquires, which are there only when all answers are.
fn plain(claims: &[&Claim], attached: Option<&AttachedRecord>, answers: &[Value]) -> Vec<RawReply> {
    let mut plain = PlainAnswers::default();
    let take = |answer| plain.take(claims.len(), claims, attached, &written(answer));
    let mut replies: Vec<_> = answers.iter().map(take).collect();
    let last = replies.pop().flatten();
    assert!(replies.iter().all(Option::is_none));
    last.unwrap_or_default()
}

/// What is said of the tokens, the clock and the record is said of both.
#[test]
fn a_grant_takes_its_own_key_and_all_that_is_said_of_all_and_nothing_else_is_one() {
    let attached = attached();
    let claims = [1, 2].map(|round| Claim::sample(round, &round.to_string()));
    let claims: Vec<&Claim> = claims.iter().collect();
    let time = |us: u64| Value::Array(vec![text((us / MICROS).to_string()), text((us % MICROS).to_string())]);
    let last = |record: &str, floor: Value| Value::Array(vec![text(record), floor]);
    let grants = vec![Value::Nil, Value::Nil, Value::Int(2), time(NOW_US), last(attached.wire(), Value::Nil)];
    let replies = |answers: &[Value]| {
        let replies = plain(&claims, Some(&attached), answers);
        assert_eq!(replies.len(), 2);
        replies
    };
    let granted = RawReply { reply: Reply::Granted, instance_us: Some(NOW_US) };
    assert_eq!(replies(&grants), [granted.clone(), granted.clone()]);
    let unattached = plain(&claims, None, &grants);
    assert!(unattached.iter().all(|raw| raw.reply == Reply::NotAdmitted { remaining: None }));
    let denied = redis::parse_redis_value(b"-NOPERM no\r\n").unwrap();
    let missing = redis::parse_redis_value(b"-NOSCRIPT no\r\n").unwrap();
    let odd = [Value::Okay, Value::Int(0), Value::Int(3), text("other"), Value::Array(Vec::new()), denied, missing];
    for (place, odd) in (0..grants.len()).flat_map(|place| odd.iter().map(move |odd| (place, odd))) {
        let mut answers = grants.clone();
        answers[place] = odd.clone();
        let [first, second] = replies(&answers).try_into().unwrap();
        assert_eq!(first == granted, place == 1, "{place} {odd:?}: {first:?}");
        assert_eq!(second == granted, place == 0, "{place} {odd:?}: {second:?}");
        assert!([first, second].iter().all(|raw| !matches!(raw.reply, Reply::NotSent(_))), "a key may be set");
    }
    let with = |place: usize, answer: Value| {
        let mut answers = grants.clone();
        answers[place] = answer;
        replies(&answers).into_iter().map(|raw| raw.reply).collect::<Vec<_>>()
    };
    let [stale, both] = [0, 1].map(|at| Reply::Stale { stored: claims[at].token });
    for (above, floor) in [(1, "1"), (1, "60000000000000"), (0, "no token"), (0, "1800000000000000")] {
        let floor_at = with(4, last(attached.wire(), text(floor)));
        assert_eq!(
            floor_at.iter().filter(|reply| matches!(reply, Reply::Stale { .. })).count(),
            2 * above,
            "{floor}: {floor_at:?}"
        );
    }
    assert_eq!(with(2, Value::Int(1)), [stale, both], "the answer does not say which one is in doubt");
    assert_eq!(with(4, Value::Array(vec![Value::Nil; 2])), [const { Reply::NotAdmitted { remaining: None } }; 2]);
    let by = |value: Option<&[u8]>| Reply::Refused(Refusal { value: value.map(<[u8]>::to_vec), ..Refusal::default() });
    assert_eq!(with(0, text("x")), [by(Some(b"x")), Reply::Granted]);
    assert_eq!(with(0, text("")), [by(None), Reply::Granted], "what was too long to be read");
    let list = redis::parse_redis_value(b"-WRONGTYPE no\r\n").unwrap();
    assert_eq!(with(0, list), [by(None), Reply::Granted]);
    for bits in 1..8_u8 {
        let mut answers = grants.clone();
        let all = [(0, text("x")), (2, Value::Int(1)), (4, last("other", Value::Nil))];
        all.into_iter().filter(|(at, _)| bits >> (at / 2) & 1 == 1).for_each(|(at, answer)| answers[at] = answer);
        assert!(replies(&answers).iter().take(1).all(|raw| raw.reply != Reply::Granted), "{bits:03b}");
    }
}

fn look() -> impl Strategy<Value = Value> {
    let own = claim().value.as_bytes().to_vec();
    let one = prop_oneof![
        6 => Just(Value::BulkString(own)),
        2 => Just(Value::Nil),
        2 => word().prop_map(Value::BulkString),
        1 => value(),
    ];
    prop_oneof![5 => prop::collection::vec(one, 0..7).prop_map(Value::Array), 1 => value()]
}

proptest! {
    #[test]
    fn only_an_exact_answer_to_a_look_says_that_something_is_gone(value in look(), keys in 0usize..5) {
        let claims = vec![claim(); keys];
        let text = |value: &Value| matches!(value, Value::Nil | Value::BulkString(_) | Value::SimpleString(_));
        let answer = match &value {
            Value::Array(values) if values.len() == keys && values.iter().all(text) => Some(values),
            _ => None,
        };
        let states = classify_key_check(&claims, &[Value::Okay, value.clone()]);
        prop_assert_eq!(states.is_some(), answer.is_some(), "{:?}", value);
        for ((claim, state), value) in claims.iter().zip(states.into_iter().flatten()).zip(answer.into_iter().flatten()) {
            let is_own = is_text(value, claim.value.as_bytes());
            let other = || KeyState::NotOwn(bytes(value).map(<[u8]>::to_vec));
            prop_assert_eq!(state, if is_own { KeyState::Own } else { other() });
        }
    }
}
