//! Permits of semaphores and elections on the command line.

use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::Signal;
use redquorum_testkit::wait_until;
use serde_json::Value;

use crate::support::{Dir, PATIENCE, contents, fleet_of, now, output, redquorum, signal, status_of, stderr, stdout};

#[test]
fn no_more_commands_run_at_a_time_than_there_are_permits() {
    let (fleet, dir) = (fleet_of(3), Dir::new());
    let log = dir.file("log");
    let script = format!("echo begin $REDQUORUM_PERMIT >> {0}; sleep 1; echo end >> {0}", log.display());
    let start = |_| {
        let args = ["run", "-r", "downloads", "--permits", "3", "--", "sh", "-c", &script];
        redquorum(&fleet, args).stderr(Stdio::null()).spawn().unwrap()
    };
    let children: Vec<_> = (0..8).map(start).collect();
    for mut child in children {
        assert_eq!(status_of(&mut child), 0);
    }
    let (mut inside, mut most, mut begun) = (0, 0, 0);
    for line in contents(&log).lines() {
        match line.strip_prefix("begin ") {
            Some(permit) => {
                assert!(permit.parse::<u32>().unwrap() < 3);
                (inside, begun) = (inside + 1, begun + 1);
                most = most.max(inside);
            }
            None => inside -= 1,
        }
    }
    assert_eq!((most, begun), (3, 8));
    assert!(fleet.iter().all(|server| server.keys().unwrap().is_empty()), "all was released");
}

#[test]
fn a_permit_that_cannot_be_had_has_its_status() {
    let (fleet, dir) = (fleet_of(3), Dir::new());
    let begun = dir.file("begun");
    let script = format!("echo > {}; exec sleep 60", begun.display());
    let run = ["run", "-r", "a", "--permits", "1"];
    let mut holder = redquorum(&fleet, [&run[..], &["--", "sh", "-c", &script]].concat()).spawn().unwrap();
    contents(&begun);
    let refused = output(&mut redquorum(&fleet, [&run[..], &["--try", "-E", "3", "--", "true"]].concat()));
    assert_eq!(refused.status.code(), Some(3), "{}", stderr(&refused));
    let late = output(&mut redquorum(&fleet, [&run[..], &["--wait", "3s", "--", "true"]].concat()));
    assert_eq!(late.status.code(), Some(75));
    assert!(stderr(&late).contains("waiting for a#0, held by"), "{}", stderr(&late));
    let cases: [&[&str]; 4] = [
        &["--permits", "0"],
        &["--permits", "257"],
        &["--permits", "2", "-r", "b"],
        &["--permits", "2", "--holder", "me"],
    ];
    for case in cases {
        let wrong = output(&mut redquorum(&fleet, [&["run", "-r", "a"], case, &["--", "true"]].concat()));
        assert_eq!(wrong.status.code(), Some(64), "{case:?}: {}", stderr(&wrong));
    }
    signal(&holder, Signal::SIGTERM);
    assert_eq!(status_of(&mut holder), 128 + 15);
}

#[test]
fn one_of_several_commands_runs_where_it_leads_and_others_are_told_who() {
    let (fleet, dir) = (fleet_of(3), Dir::new());
    let tell = |options: &[&str]| output(&mut redquorum(&fleet, [&["elect", "scheduler"], options].concat()));
    let nobody = tell(&[]);
    assert_eq!((nobody.status.code(), stdout(&nobody).as_str()), (Some(1), "scheduler: no leader\n"));
    let candidate = |name: &str| {
        let script = format!("echo $REDQUORUM_FENCING_TOKEN > {}; exec sleep 60", dir.file(name).display());
        let args = ["elect", "scheduler", "--ttl", "4s", "--info", name, "--", "sh", "-c", &script];
        redquorum(&fleet, args).stderr(Stdio::null()).spawn().unwrap()
    };
    let mut one = candidate("one");
    let token = contents(&dir.file("one"));
    let leader = stdout(&tell(&[]));
    assert!(leader.starts_with("scheduler: led by one, client "), "{leader}");
    assert!(leader.ends_with(&format!("token {token}")), "{leader}");
    let json: Value = serde_json::from_str(&stdout(&tell(&["--json"]))).unwrap();
    assert_eq!((&json["leader"]["info"], &json["leader"]["token"]), (&"one".into(), &token.trim().into()));

    let mut two = candidate("two");
    std::thread::sleep(Duration::from_millis(500));
    assert!(!dir.file("two").exists());
    one.kill().unwrap();
    let killed = now();
    let next = contents(&dir.file("two"));
    assert!(killed.elapsed() < Duration::from_secs(9), "its ttl, a pause and the start of a command");
    assert!(next.trim().parse::<u64>().unwrap() > token.trim().parse().unwrap());

    // The lead is lost: the command is ended, and the candidate leads again.
    std::fs::remove_file(dir.file("two")).unwrap();
    fleet.iter().for_each(|server| drop(server.command(&["DEL", "scheduler"]).unwrap()));
    let again = contents(&dir.file("two"));
    assert!(again.trim().parse::<u64>().unwrap() > next.trim().parse().unwrap());
    signal(&two, Signal::SIGTERM);
    assert_eq!(status_of(&mut two), 128 + 15, "it was told to stop, and does not campaign again");
    assert!(wait_until(PATIENCE, || fleet.iter().all(|server| server.keys().unwrap().is_empty())));
    drop(one.wait());
}

/// Counter-example: a job that was done was done again.
#[test]
fn a_command_that_has_ended_by_itself_is_not_run_again_though_the_lead_was_lost_by_then() {
    let (fleet, dir) = (fleet_of(3), Dir::new());
    for server in fleet.iter() {
        let rights = ["+@all", "-client|tracking"]; // so that the loss is found out by the release
        server.command(&[&["ACL", "SETUSER", "deaf", "on", ">x", "~*", "&*"][..], &rights].concat()).unwrap();
    }
    let script = format!("echo begun >> {0}; read _", dir.file("log").display());
    let mut candidate = redquorum(&fleet, ["elect", "e", "--info", "me", "--", "sh", "-c", &script])
        .env("REDQUORUM_USERNAME", "deaf")
        .env("REDQUORUM_PASSWORD", "x")
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    contents(&dir.file("log"));
    fleet.iter().for_each(|server| drop(server.command(&["DEL", "e"]).unwrap()));
    drop(candidate.stdin.take());
    assert_eq!(status_of(&mut candidate), 79);
    assert_eq!(contents(&dir.file("log")), "begun\n");
}

#[test]
fn a_watched_election_without_a_leader_says_so_each_time() {
    let (fleet, dir) = (fleet_of(3), Dir::new());
    let seen = dir.file("seen");
    let mut watching = redquorum(&fleet, ["elect", "scheduler", "--ttl", "2s", "--watch"])
        .stdout(std::fs::File::create(&seen).unwrap())
        .spawn()
        .unwrap();
    let shows = |lines: usize, last: &str| {
        let text = || std::fs::read_to_string(&seen).unwrap();
        let is_shown =
            || text().lines().count() == lines && text().lines().last().is_some_and(|it| it.starts_with(last));
        assert!(wait_until(PATIENCE, is_shown), "{}", text());
    };
    shows(1, "scheduler: no leader");
    let mut leader = redquorum(&fleet, ["elect", "scheduler", "--info", "one", "--", "sleep", "60"]).spawn().unwrap();
    shows(2, "scheduler: led by one");
    signal(&leader, Signal::SIGTERM);
    status_of(&mut leader);
    shows(3, "scheduler: no leader");
    signal(&watching, Signal::SIGTERM);
    status_of(&mut watching);
}

#[test]
fn what_is_no_election_is_refused() {
    let fleet = fleet_of(3);
    let long = "x".repeat(1025);
    let cases: [(&[&str], &str); 4] = [
        (&["elect", "e", "--", "true"], "--info"),
        (&["elect", "e", "--info", "me"], "COMMAND"),
        (&["elect", "e", "--info", &long, "--", "true"], "at most 1024"),
        (&["elect", "", "--info", "me", "--", "true"], "name is empty"),
    ];
    for (args, words) in cases {
        let wrong = output(&mut redquorum(&fleet, args));
        assert!(wrong.status.code() == Some(64) && stderr(&wrong).contains(words), "{args:?}: {}", stderr(&wrong));
    }
}
