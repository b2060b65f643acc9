//! Whether a lock would be got, where instances answer and may vote and set no key.

use std::process::Stdio;

use redquorum_testkit::{Server, wait_until};
use serde_json::Value;

use crate::support::{Dir, PATIENCE, contents, fleet_of, now, output, plain, redquorum, status_of, stderr, stdout};

/// What keeps a server from writing, and the words for it.
type Obstacle = (fn(&Server), &'static str);

const OBSTACLES: [Obstacle; 5] = [
    (fail_snapshots, "unable to persist to disk"),
    (need_replicas, "replicas"),
    (pause, "CLIENT UNPAUSE"),
    (deny_writes, "permission denied"),
    (deny_renewals, "permission denied"),
];

fn fail_snapshots(server: &Server) {
    server.command(&["CONFIG", "SET", "save", "3600 1"]).unwrap();
    std::fs::remove_dir_all(server.dir()).unwrap(); // where it would write them
    server.command(&["BGSAVE"]).unwrap();
    let status = || server.info("persistence", "rdb_last_bgsave_status").unwrap();
    assert!(wait_until(PATIENCE, || status().as_deref() == Some("err")), "{:?}", status());
}

fn need_replicas(server: &Server) {
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]).unwrap();
}

fn pause(server: &Server) {
    server.command(&["CLIENT", "PAUSE", "600000", "WRITE"]).unwrap();
}

fn deny_writes(server: &Server) {
    server.command(&["ACL", "SETUSER", "default", "-@write"]).unwrap();
}

fn deny_renewals(server: &Server) {
    server.command(&["ACL", "SETUSER", "default", "-evalsha"]).unwrap();
}

/// Counter-example: "locks can be acquired", and 0.
#[test]
fn a_status_does_not_promise_locks_where_too_few_instances_write() {
    for (stop, words) in OBSTACLES {
        let fleet = fleet_of(3);
        let opened = ["admission", "open", "--max-ttl", "5s", "--no-lock-was-held-within", "5s"];
        let opened = output(&mut plain(&fleet, opened));
        assert_eq!(opened.status.code(), Some(0), "{}", stderr(&opened));
        let status = |options: &[&str]| output(plain(&fleet, ["status"]).args(options));
        stop(&fleet[0]);
        let one = status(&[]);
        assert_eq!(one.status.code(), Some(0), "two are enough, {words}: {}", stdout(&one));
        assert!(
            stdout(&one).lines().any(|line| line.starts_with("127.0.0.1") && line.contains(words)),
            "{}",
            stdout(&one)
        );
        stop(&fleet[1]);
        let two = status(&[]);
        assert_eq!(two.status.code(), Some(69), "{words}: {}", stdout(&two));
        let verdict = "1 of 3 may vote, 2 needed: too many carry out no write, no lock can be acquired\n";
        assert!(stdout(&two).ends_with(verdict), "{words}: {}", stdout(&two));
        let json: Value = serde_json::from_str(&stdout(&status(&["--json"]))).unwrap();
        assert_eq!(json["can_lock"], false, "{json}");
        assert!(json["instances"][0]["refuses_writes"].is_string(), "{json}");
        assert!(json["instances"][2]["refuses_writes"].is_null(), "{json}");
        assert!(fleet[2].keys().unwrap().is_empty(), "it has written nothing");
        let a_try =
            ["run", "-r", "a", "--try", "--max-ttl", "5s", "--ttl", "5s", "--connect-timeout", "30s", "--", "true"];
        let tried = output(&mut plain(&fleet, a_try));
        assert!(tried.status.code() == Some(69) && stderr(&tried).contains(words), "{words}: {}", stderr(&tried));
    }
}

/// Counter-example: "it could not be renewed in time", and no more.
#[test]
fn a_command_that_ends_since_its_lock_is_not_renewed_says_where_and_why() {
    for (stop, words) in OBSTACLES {
        // After a while without an answer its connection is made anew.
        let paused = ["no answer", "went unanswered", "connection", "not connected"];
        let causes = if words == "CLIENT UNPAUSE" { &paused[..] } else { &[words] };
        let (fleet, dir) = (fleet_of(3), Dir::new());
        let begun = dir.file("begun");
        let script = format!("echo > {}; exec sleep 60", begun.display());
        let args = ["run", "-r", "a", "--ttl", "5s", "--", "sh", "-c", &script];
        let mut child = redquorum(&fleet, args).stderr(Stdio::piped()).spawn().unwrap();
        contents(&begun);
        stop(&fleet[0]);
        stop(&fleet[1]);
        assert_eq!(status_of(&mut child), 79, "{words}");
        let told = stderr(&child.wait_with_output().unwrap());
        let address = |at: usize| format!("127.0.0.1:{}", fleet[at].port());
        assert!(told.contains("it could not be renewed in time: "), "{told}");
        assert!(causes.iter().any(|cause| told.contains(cause)), "{told}");
        assert!(told.contains(&address(0)) && told.contains(&address(1)), "{told}");
    }
}

/// Counter-example: "waiting for a", and no more.
#[test]
fn a_command_that_waits_for_a_free_lock_says_which_instances_refuse_it_and_why() {
    let (fleet, dir) = (fleet_of(3), Dir::new());
    fleet[..2].iter().for_each(need_replicas);
    let log = dir.file("log");
    let to_log = Stdio::from(std::fs::File::create(&log).unwrap());
    let mut waits = redquorum(&fleet, ["run", "-r", "a", "--", "true"]).stderr(to_log).spawn().unwrap();
    let told = || std::fs::read_to_string(&log).unwrap();
    let [first, second] = [0, 1].map(|at| format!("127.0.0.1:{}", fleet[at].port()));
    let says = format!("waiting for a: 1 of 3 instances may vote, 2 needed; {first}, {second}: cannot write: ");
    assert!(wait_until(PATIENCE, || told().contains(&says)), "{}", told());
    for server in &fleet[..2] {
        server.command(&["CONFIG", "SET", "min-replicas-to-write", "0"]).unwrap();
    }
    assert_eq!(status_of(&mut waits), 0, "{}", told());
}

/// Counter-example: `check --quiet`, which was said to be for probes, ended with 0 beside three new servers, and with 1 beside one of three
/// that was dead.
#[test]
fn a_quiet_status_ends_with_0_just_where_a_lock_would_be_got() {
    let fleet = fleet_of(3);
    let probe = || output(&mut plain(&fleet, ["status", "--quiet", "--max-ttl", "5s", "--connect-timeout", "15s"]));
    let is_quiet = |it: &std::process::Output| {
        (it.status.code(), stdout(it), stderr(it)) == (Some(0), String::new(), String::new())
    };
    let new = probe();
    assert_eq!((new.status.code(), stdout(&new)), (Some(69), String::new()));
    assert!(
        stderr(&new).contains("0 of 3 may vote") && stderr(&new).contains("no admission record"),
        "{}",
        stderr(&new)
    );
    let checked = output(&mut plain(&fleet, ["check", "--quiet", "--max-ttl", "5s"]));
    assert_eq!(checked.status.code(), Some(1));
    assert!(stderr(&checked).contains("all: no lock can be acquired"), "{}", stderr(&checked));
    let open = ["admission", "open", "--max-ttl", "5s", "--no-lock-was-held-within", "5s"];
    assert_eq!(output(&mut plain(&fleet, open)).status.code(), Some(0));
    let opened = probe();
    assert!(is_quiet(&opened), "{opened:?}");
    fleet[2].hang().unwrap();
    let (begun, beside_one) = (now(), probe());
    assert!(is_quiet(&beside_one) && begun.elapsed().as_secs() < 10, "{beside_one:?} in {:?}", begun.elapsed());
    fleet[2].kill().unwrap();
    let beside_one = probe();
    assert!(is_quiet(&beside_one), "{beside_one:?}");
    need_replicas(&fleet[1]);
    let (full, two) = (probe(), "too many carry out no write");
    assert!(full.status.code() == Some(69) && stderr(&full).contains(two), "{full:?}");
    fleet[1].kill().unwrap();
    let dead = probe();
    assert!(dead.status.code() == Some(69) && stderr(&dead).contains("Connection refused"), "{dead:?}");
}
