//! Commands under one lock do not overlap, whatever is killed, hung and stopped.

use std::collections::HashSet;
use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, sleep};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use redquorum_testkit::Fleet;

use crate::support::{Dir, fleet_of, now, redquorum};

const LONG: Duration = Duration::from_secs(24);
const LONGEST: Duration = Duration::from_secs(72);

/// What goes on beside the commands; it says which of the two programs is meant.
fn disturb(fleet: &Fleet, round: usize, program: &AtomicU32) {
    let signal = |number| {
        let pid = program.load(Ordering::Acquire);
        if pid != 0 {
            let _ = kill(Pid::from_raw(i32::try_from(pid).unwrap()), number);
        }
    };
    match round % 4 {
        0 => {
            let pair = [&fleet[0], &fleet[1]];
            pair.iter().for_each(|server| server.hang().unwrap());
            sleep(Duration::from_millis(3300)); // longer than the ttl
            pair.iter().for_each(|server| server.resume().unwrap());
        }
        1 => signal(Signal::SIGKILL),
        2 => {
            signal(Signal::SIGSTOP);
            sleep(Duration::from_millis(3500));
            signal(Signal::SIGCONT);
        }
        _ => {
            fleet[2].kill().unwrap();
            sleep(Duration::from_millis(500));
            fleet[2].restart().unwrap();
        }
    }
}

#[test]
fn two_that_run_in_a_loop_never_overlap() {
    let (fleet, dir) = (fleet_of(3), Dir::new());
    let log = dir.file("log");
    // A command that does not care for SIGTERM, and something in its background, write on and on.
    let script = format!(
        "trap '' TERM; say() {{ echo $1 $REDQUORUM_FENCING_TOKEN >> {}; }}; say begin; \
         (for i in 1 2 3 4 5 6 7 8; do say tick; sleep 0.1; done) & \
         for i in 1 2 3 4; do say tock; sleep 0.1; done; wait; say end",
        log.display()
    );
    let ended = AtomicBool::new(false);
    let programs = [AtomicU32::new(0), AtomicU32::new(0)];
    let codes = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for program in &programs {
            scope.spawn(|| {
                while !ended.load(Ordering::Acquire) {
                    let args = ["run", "-r", "a", "--ttl", "3s", "--wait", "10s", "--", "sh", "-c", &script];
                    let mut child = redquorum(&fleet, args).stderr(std::process::Stdio::null()).spawn().unwrap();
                    program.store(child.id(), Ordering::Release);
                    codes.lock().unwrap().push(child.wait().unwrap().code());
                    program.store(0, Ordering::Release);
                }
            });
        }
        let begun = now();
        // Which of them come to their end and which are killed or lose the lock is chance: it goes on until some
        // have done each. `losses.rs` has those that surely lose it.
        let both = || {
            let codes = codes.lock().unwrap();
            codes.contains(&Some(0)) && codes.iter().any(|code| *code != Some(0))
        };
        for round in 0.. {
            if begun.elapsed() > LONGEST || (begun.elapsed() > LONG && both()) {
                break;
            }
            sleep(Duration::from_millis(700));
            disturb(&fleet, round, &programs[round / 4 % 2]);
        }
        ended.store(true, Ordering::Release);
    });
    let codes = codes.into_inner().unwrap();
    let disturbed = codes.iter().any(|code| *code != Some(0));
    assert!(codes.contains(&Some(0)) && disturbed, "some came to their end and some did not: {codes:?}");
    check(&fs::read_to_string(log).unwrap());
}

/// A client that has begun is the only one to write until the next begins, and tokens rise.
fn check(log: &str) {
    let (mut seen, mut last) = (HashSet::new(), 0_u64);
    for line in log.lines() {
        let (what, token) = line.split_once(' ').unwrap();
        let token: u64 = token.parse().unwrap();
        if what == "begin" {
            assert!(seen.insert(token) && token > last, "{line} after {last}\n{log}");
            last = token;
        }
        assert_eq!(token, last, "{line}: it wrote on after another had begun\n{log}");
    }
    assert!(seen.len() > 5, "too few commands ran to say anything\n{log}");
}

#[test]
#[should_panic(expected = "it wrote on")]
fn an_overlap_would_be_found() {
    check("begin 1\ntick 1\nbegin 2\ntick 1\n");
}
