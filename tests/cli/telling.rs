//! What people are told where something is not as it should be.

use std::process::Stdio;
use std::time::Duration;

use redquorum_testkit::wait_until;

use crate::support::{
    Dir, PATIENCE, bare, contents, fleet_of, now, output, plain, redquorum, signal, status_of, stderr, stdout,
};

#[test]
fn an_address_that_is_none_is_wrong_usage_as_an_option_and_a_setting_elsewhere() {
    for address in ["htp://x", "h:99999", "h:abc"] {
        let option = output(&mut bare(["-i", address, "status"]));
        assert_eq!(option.status.code(), Some(64), "{address}: {}", stderr(&option));
        assert!(stderr(&option).contains("the address of instance 1 cannot be used"), "{}", stderr(&option));
        let variable = output(bare(["status"]).env("REDQUORUM_INSTANCES", address));
        assert_eq!(variable.status.code(), Some(78), "{address}: {}", stderr(&variable));
    }
}

/// The error was "no answer in time while opening the connection".
#[test]
fn a_server_without_tls_is_told_as_that() {
    let fleet = fleet_of(1);
    let port = fleet[0].port();
    let mut command = bare(["-i", &format!("rediss://127.0.0.1:{port}"), "--connect-timeout", "3s", "inspect", "a"]);
    let told = output(&mut command);
    assert_eq!(told.status.code(), Some(69));
    assert!(stderr(&told).contains("no TLS with it (no answer to the TLS handshake"), "{}", stderr(&told));
}

#[test]
fn a_wait_without_a_terminal_says_what_is_waited_for_once_and_then_each_ten_seconds() {
    let (fleet, dir) = (fleet_of(3), Dir::new());
    let begun = dir.file("begun");
    let script = format!("echo > {}; exec sleep 60", begun.display());
    let mut holder = redquorum(&fleet, ["run", "-r", "a", "--", "sh", "-c", &script]).spawn().unwrap();
    contents(&begun);
    let (log, start) = (dir.file("log"), now());
    let mut waiter = redquorum(&fleet, ["run", "-r", "a", "--", "true"])
        .stderr(Stdio::from(std::fs::File::create(&log).unwrap()))
        .spawn()
        .unwrap();
    let lines =
        || std::fs::read_to_string(&log).unwrap().lines().filter(|it| it.contains("waiting for a, held by")).count();
    assert!(wait_until(PATIENCE, || lines() == 1), "{}", std::fs::read_to_string(&log).unwrap());
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
    assert!(wait_until(PATIENCE, || lines() == 2), "{}", std::fs::read_to_string(&log).unwrap());
    assert!(start.elapsed() > Duration::from_secs(9), "{:?}", start.elapsed());
    signal(&holder, nix::sys::signal::Signal::SIGTERM);
    status_of(&mut holder);
    assert_eq!(status_of(&mut waiter), 0);
}

/// It said no more than what it waited for, for as long as the quarantine took.
#[test]
fn a_wait_for_a_quarantine_says_how_many_may_vote_and_when_enough_will() {
    let fleet = fleet_of(3);
    let told = output(&mut plain(&fleet, ["run", "-r", "a", "--max-ttl", "4s", "--ttl", "4s", "--", "true"]));
    assert_eq!(told.status.code(), Some(0), "{}", stderr(&told));
    let expected = "waiting for a: 0 of 3 instances may vote, 2 needed, in quarantine for another ";
    let text = stderr(&told);
    let left = text.split_once(expected).and_then(|(_, rest)| rest.split(' ').next()?.parse::<f64>().ok());
    assert!(left.is_some_and(|left| (0.0..=4.0).contains(&left)), "{text}");
}

#[test]
fn a_negative_time_and_missing_dashes_get_a_hint() {
    let negative = output(&mut bare(["-i", "h", "run", "-r", "a", "--ttl", "-5s", "--", "true"]));
    assert_eq!(negative.status.code(), Some(64));
    assert!(stderr(&negative).contains("a time cannot be negative; write 500ms"), "{}", stderr(&negative));
    let without = output(&mut bare(["-i", "h", "run", "-r", "a", "echo", "hi"]));
    assert_eq!(without.status.code(), Some(64));
    assert!(stderr(&without).contains("the command of run stands behind --"), "{}", stderr(&without));
    let other = output(&mut bare(["-i", "h", "run", "--", "true"]));
    assert!(!stderr(&other).contains("stands behind"), "{}", stderr(&other));
}

#[test]
fn what_all_instances_have_in_common_is_told_once() {
    let fleet = fleet_of(3);
    let addresses: Vec<String> = fleet.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
    let refused = ["--max-ttl", "1s", "--ttl", "1s", "--quarantine", "1m"];
    fleet.iter().for_each(|server| drop(server.command(&["CONFIG", "SET", "requirepass", "s"]).unwrap()));
    let told = output(
        bare(["--connect-timeout", "1s"])
            .args(refused)
            .args(["run", "-r", "a", "--try", "--", "true"])
            .env("REDQUORUM_INSTANCES", addresses.join(" ")),
    );
    let text = stderr(&told);
    assert_eq!(text.matches("NOAUTH").count(), 1, "{text}");
    // Two that refuse decide it: the third may still be connecting then.
    let (those, _) = text.split_once(": it requires a password (NOAUTH)").unwrap();
    let named = addresses.iter().filter(|&address| those.contains(address)).count();
    assert!(named >= 2, "{text}");
    let status = output(bare(["--connect-timeout", "1s", "status"]).env("REDQUORUM_INSTANCES", addresses.join(" ")));
    assert_eq!(stdout(&status).matches("NOAUTH").count(), 1, "{}", stdout(&status));
}

#[test]
fn the_help_of_run_lists_the_exit_statuses_and_one_warning_is_one() {
    let help = stdout(&output(&mut bare(["run", "--help"])));
    for status in ["64 ", "69 ", "71 ", "75 ", "78 ", "79 ", "80 ", "126 ", "127 "] {
        assert!(help.contains(status), "{status}\n{help}");
    }
    let fleet = fleet_of(1);
    fleet[0].command(&["CONFIG", "SET", "requirepass", "s"]).unwrap();
    let run = |arguments: &[&str]| {
        output(plain(&fleet, arguments).env("REDQUORUM_PASSWORD", "s").env("REDQUORUM_MAX_TTL", "5s"))
    };
    run(&["admission", "open", "--no-lock-was-held-within", "5s"]);
    let checked = stdout(&run(&["check"]));
    let last = checked.lines().last().unwrap();
    assert!(last.ends_with("1 warning, 0 failures"), "one instance alone: {checked}");
}
