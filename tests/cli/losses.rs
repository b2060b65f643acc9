//! A command does not outlive its lock, whatever happens to the lock or to the program.

use std::fs;
use std::process::{Child, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use redquorum_testkit::{Fleet, wait_until};

use crate::support::{
    Dir, PATIENCE, contents, fleet_of, is_root, now, output, redquorum, runs, signal, status_of, stderr,
    without_settings,
};

/// Starts a command with a grandchild; both do not care for SIGTERM. Gives their process ids.
fn stubborn(fleet: &Fleet, dir: &Dir, ttl: &str) -> (Child, Vec<String>) {
    let pids = dir.file("pids");
    let shown = pids.display();
    // The grandchild is in the command's process group, and not the command's child.
    let script = format!(
        "trap '' TERM; (sh -c 'trap \"\" TERM; echo $$ > {shown}.1; mv {shown}.1 {shown}.2; while :; do sleep 0.05; done' &); \
         while [ ! -e {shown}.2 ]; do sleep 0.01; done; (cat {shown}.2; echo $$) > {shown}.3; mv {shown}.3 {shown}; \
         while :; do sleep 0.05; done"
    );
    let child = redquorum(fleet, ["run", "-r", "a", "--ttl", ttl, "--", "sh", "-c", &script]).spawn().unwrap();
    let pids: Vec<String> = contents(&pids).lines().map(str::to_owned).collect();
    assert!(pids.len() == 2 && pids.iter().all(|pid| runs(pid)), "{pids:?}");
    (child, pids)
}

fn are_gone(pids: &[String]) -> bool {
    !pids.iter().any(|pid| runs(pid))
}

#[test]
fn a_lock_that_is_deleted_ends_the_command_and_its_grandchildren() {
    let (fleet, dir) = (fleet_of(3), Dir::new());
    let (mut child, pids) = stubborn(&fleet, &dir, "3s");
    let begun = now();
    fleet.iter().for_each(|server| drop(server.command(&["DEL", "a"]).unwrap()));
    assert_eq!(status_of(&mut child), 79);
    assert!(are_gone(&pids), "none is left when the program ends");
    assert!(begun.elapsed() < Duration::from_millis(2900), "not only when the ttl was over: {:?}", begun.elapsed());
}

#[test]
fn a_lock_that_cannot_be_renewed_ends_the_command_before_its_keys_expire() {
    let (fleet, dir) = (fleet_of(3), Dir::new());
    let (mut child, pids) = stubborn(&fleet, &dir, "10s"); // a tenth of it is left for the kill
    fleet[0].hang().unwrap();
    let left = |at: usize| fleet[at].command(&["PTTL", "a"]).unwrap().int().unwrap();
    // Of the instance that answers on, nobody renews the key any more than of the others, but for the part that it got.
    fleet[1].kill().unwrap();
    let kept = std::cell::Cell::new(i64::MAX);
    assert!(wait_until(PATIENCE, || {
        kept.set(left(2));
        are_gone(&pids)
    }));
    assert_eq!(status_of(&mut child), 79);
    assert!(kept.get() > 0, "its keys were there to the end");
}

#[test]
fn a_program_that_is_killed_takes_its_command_and_grandchildren_with_it() {
    let (fleet, dir) = (fleet_of(3), Dir::new());
    let (mut child, pids) = stubborn(&fleet, &dir, "10s");
    signal(&child, Signal::SIGKILL);
    assert_eq!(status_of(&mut child), 137);
    assert!(wait_until(Duration::from_secs(3), || are_gone(&pids)), "long before the ttl is over");
    assert!(fleet[0].command(&["PTTL", "a"]).unwrap().int().unwrap() > 0, "the key runs out by itself");
}

#[test]
fn a_program_that_stands_still_loses_its_command_before_the_keys_expire() {
    let (fleet, dir) = (fleet_of(3), Dir::new());
    let (mut child, pids) = stubborn(&fleet, &dir, "10s"); // a tenth of it is left for the kill
    signal(&child, Signal::SIGSTOP);
    let mut kept = 0;
    let gone = wait_until(PATIENCE, || {
        kept = fleet[0].command(&["PTTL", "a"]).unwrap().int().unwrap();
        are_gone(&pids)
    });
    signal(&child, Signal::SIGCONT);
    assert!(gone && kept > 0, "gone: {gone}, the key had {kept} ms left");
    assert_eq!(status_of(&mut child), 79);
}

#[test]
fn what_a_command_leaves_in_its_group_ends_before_the_lock_is_released() {
    let (fleet, dir) = (fleet_of(3), Dir::new());
    let pid = dir.file("pid");
    let script = format!("sleep 60 & echo $! > {}; exit 4", pid.display());
    let mut child = redquorum(&fleet, ["run", "-r", "a", "--", "sh", "-c", &script]).spawn().unwrap();
    assert_eq!(status_of(&mut child), 4);
    assert!(!runs(&contents(&pid)));
}

#[test]
fn a_dead_process_that_nobody_collects_does_not_delay_the_end() {
    let fleet = fleet_of(3);
    // A parent that has left the group, and does not wait for its child.
    let script = "(sleep 0.1 & exec setsid sleep 30 >/dev/null 2>&1) & echo; sleep 0.4; exit 4";
    let args = ["run", "-r", "a", "--max-ttl", "60s", "--ttl", "60s", "--", "sh", "-c", script];
    let mut child = redquorum(&fleet, args).stdout(Stdio::null()).spawn().unwrap();
    let begun = now();
    assert_eq!(status_of(&mut child), 4);
    assert!(begun.elapsed() < Duration::from_secs(9), "not the grace of what lives: {:?}", begun.elapsed());
}

#[test]
fn a_watchdog_that_is_stopped_does_not_keep_the_program_from_ending() {
    let (fleet, dir) = (fleet_of(3), Dir::new());
    let (begun, go) = (dir.file("begun"), dir.file("go"));
    let script = format!("echo > {}; while [ ! -e {} ]; do sleep 0.02; done; exit 3", begun.display(), go.display());
    let mut child = redquorum(&fleet, ["run", "-r", "a", "--", "sh", "-c", &script]).spawn().unwrap();
    contents(&begun);
    let watchdog = child_of(child.id(), "__watchdog");
    kill(watchdog, Signal::SIGSTOP).unwrap();
    fs::write(&go, "").unwrap();
    assert_eq!(status_of(&mut child), 3);
    assert!(!runs(&watchdog.to_string()), "it is gone too");
}

fn has_child(parent: u32, argument: &str) -> bool {
    find_child(parent, argument).is_some()
}

fn child_of(parent: u32, argument: &str) -> Pid {
    find_child(parent, argument).unwrap()
}

/// The process of the program that has this among its arguments.
fn find_child(parent: u32, argument: &str) -> Option<Pid> {
    let is_it = |pid: &str| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let of = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)).unwrap_or_default();
        of == parent.to_string() && line.split('\0').any(|word| word == argument)
    };
    let names = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    Some(Pid::from_raw(names.into_iter().find(|pid| is_it(pid))?.parse().unwrap()))
}

#[test]
fn a_watchdog_that_is_killed_is_replaced() {
    let (fleet, dir) = (fleet_of(3), Dir::new());
    let (mut child, pids) = stubborn(&fleet, &dir, "10s");
    let watchdog = child_of(child.id(), "__watchdog");
    kill(watchdog, Signal::SIGKILL).unwrap();
    assert!(wait_until(PATIENCE, || !runs(&watchdog.to_string()) && has_child(child.id(), "__watchdog")));
    std::thread::sleep(Duration::from_secs(2)); // it is told of the group as soon as it is ready
    signal(&child, Signal::SIGKILL);
    assert_eq!(status_of(&mut child), 137);
    assert!(wait_until(Duration::from_secs(3), || are_gone(&pids)), "the grandchild too, long before the ttl is over");
}

#[test]
fn a_command_that_nobody_can_watch_over_any_more_is_ended() {
    let (fleet, dir) = (fleet_of(3), Dir::new());
    let (mut child, pids) = stubborn(&fleet, &dir, "3s");
    let limit = std::process::Command::new("prlimit").args(["--nofile=3", "--pid", &child.id().to_string()]).status();
    assert!(limit.unwrap().success());
    kill(child_of(child.id(), "__watchdog"), Signal::SIGKILL).unwrap();
    assert_eq!(status_of(&mut child), 71);
    assert!(are_gone(&pids));
}

/// A command under a lock, by a program that may not end what has become another user's; that lives for so long.
fn of_another_user(fleet: &Fleet, dir: &Dir, lives: &str) -> (Child, String) {
    let pid = dir.file("pid");
    let script = format!("setpriv --reuid=65534 --clear-groups sleep {lives} & echo $! > {}; sleep 0.5", pid.display());
    let program = redquorum(fleet, ["run"]);
    let mut command = std::process::Command::new("setpriv");
    command.arg("--bounding-set=-kill").arg(program.get_program());
    command.args(["--no-admission", "--instance-timeout", "1s", "run", "-r", "a", "--ttl", "2s"]);
    command.args(["--", "sh", "-c", &script]);
    let child = without_settings(&mut command).env("REDQUORUM_INSTANCES", fleet.addresses().join(",")).spawn().unwrap();
    (child, contents(&pid))
}

#[test]
fn a_lock_is_held_as_long_as_something_goes_on_that_cannot_be_ended() {
    if !is_root() {
        return; // nobody else can start what becomes another user
    }
    let (fleet, dir) = (fleet_of(3), Dir::new());
    let (mut child, pid) = of_another_user(&fleet, &dir, "6");
    let is_held = || fleet.iter().filter(|server| !server.keys().unwrap().is_empty()).count() >= 2;
    while runs(&pid) {
        let held = is_held();
        assert!(held || !runs(&pid), "released while it ran");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(status_of(&mut child), 0);
    assert!(!is_held(), "and then released");
}

#[test]
fn who_loses_the_lock_while_something_cannot_be_ended_has_a_status_of_its_own() {
    if !is_root() {
        return;
    }
    let (fleet, dir) = (fleet_of(3), Dir::new());
    let (mut child, pid) = of_another_user(&fleet, &dir, "60");
    std::thread::sleep(Duration::from_secs(1));
    fleet.iter().for_each(|server| drop(server.command(&["DEL", "a"]).unwrap()));
    let status = status_of(&mut child);
    let lived = runs(&pid);
    let _ = kill(Pid::from_raw(pid.trim().parse().unwrap()), Signal::SIGKILL);
    assert_eq!((status, lived), (80, true));
}

#[test]
fn a_command_is_held_no_longer_than_max_hold_and_one_ttl() {
    let (fleet, begun) = (fleet_of(3), now());
    let args = ["run", "-r", "a", "--ttl", "3s", "--max-hold", "3s", "--", "sleep", "60"];
    let output = output(&mut redquorum(&fleet, args));
    assert_eq!(output.status.code(), Some(79));
    assert!(stderr(&output).contains("held for --max-hold 3.0 s"), "{}", stderr(&output));
    assert!(begun.elapsed() < Duration::from_secs(9), "{:?}", begun.elapsed());
}

#[test]
fn a_signal_that_is_ignored_from_the_start_is_not_passed_on() {
    let (fleet, dir) = (fleet_of(3), Dir::new());
    let begun = dir.file("begun");
    let program = redquorum(&fleet, ["run"]);
    let mut command = std::process::Command::new("sh");
    let script = format!(
        "trap '' HUP; exec {} --no-admission run -r a -- sh -c 'echo > {}; sleep 0.7; exit 3'",
        program.get_program().to_string_lossy(),
        begun.display()
    );
    without_settings(&mut command).args(["-c", &script]).env("REDQUORUM_INSTANCES", fleet.addresses().join(","));
    let mut child = command.spawn().unwrap();
    contents(&begun);
    signal(&child, Signal::SIGHUP);
    assert_eq!(status_of(&mut child), 3, "as under nohup");
}

#[test]
fn as_the_first_process_of_a_container_it_collects_the_dead_that_it_inherits() {
    let isolated = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child"];
    let within = || {
        let mut command = std::process::Command::new(isolated[0]);
        command.args(&isolated[1..]);
        command
    };
    if !within().arg("true").output().is_ok_and(|output| output.status.success()) {
        return; // not every machine lets its users make such a space
    }
    let fleet = fleet_of(3);
    // Each leaves its session, and then its parent.
    let script = "for i in 1 2 3 4 5 6 7 8; do (setsid sleep 0.3 &); done; sleep 0.6
        for i in 1 2 3 4 5 6 7 8 9 10; do
            dead=$(grep -l '^State:.Z' /proc/[0-9]*/status | wc -l)
            [ $dead = 0 ] && exit 7
            sleep 1
        done
        echo $dead >&2";
    let program = redquorum(&fleet, ["run"]);
    let mut command = within();
    without_settings(&mut command).arg(program.get_program());
    command.args(["--no-admission", "run", "-r", "a", "--", "sh", "-c", script]);
    let output = output(command.env("REDQUORUM_INSTANCES", fleet.addresses().join(",")));
    assert_eq!(output.status.code(), Some(7), "{}", stderr(&output));
}

#[test]
fn the_last_words_contain_nothing_that_a_terminal_obeys_and_promise_nothing_after_the_end() {
    let (fleet, dir, name) = (fleet_of(3), Dir::new(), "a\u{1b}[31mRED");
    let start = |seconds: &str| {
        let begun = dir.file("begun");
        let _ = std::fs::remove_file(&begun);
        let script = format!("echo > {}; exec sleep {seconds}", begun.display());
        let child = redquorum(&fleet, ["run", "-r", name, "--", "sh", "-c", &script]).stderr(Stdio::piped()).spawn();
        contents(&begun);
        child.unwrap()
    };
    let lost = start("60");
    fleet.iter().for_each(|server| drop(server.command(&["DEL", name]).unwrap()));
    let lost = lost.wait_with_output().unwrap();
    assert_eq!(lost.status.code(), Some(79));
    assert!(stderr(&lost).contains("the lock on a\\u{1b}[31mRED was lost"), "{}", stderr(&lost));

    let unconfirmed = start("1.5");
    fleet.iter().take(2).for_each(|server| server.hang().unwrap());
    let unconfirmed = unconfirmed.wait_with_output().unwrap();
    let words = stderr(&unconfirmed);
    assert!(
        unconfirmed.status.success() && words.contains("the release of a\\u{1b}[31mRED is not confirmed"),
        "{words}"
    );
    assert!(words.contains("what is left expires with its ttl") && !words.contains("background"), "{words}");
}
