//! How the program ends: its own statuses, and the command's.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use nix::sys::signal::Signal;
use redquorum_testkit::{Server, wait_until};

use crate::support::{
    Dir, bare, contents, fleet_of, is_root, let_others_use, now, output, redquorum, signal, status_of, stderr, stdout,
};

#[test]
fn the_status_of_the_command_is_passed_on() {
    let fleet = fleet_of(3);
    let run = |script: &str| {
        let output = output(&mut redquorum(&fleet, ["run", "-r", "a", "--", "sh", "-c", script]));
        assert_eq!(stderr(&output), "", "{script}");
        (output.status.code(), output.status.signal())
    };
    for (script, expected) in [("exit 0", 0), ("exit 7", 7), ("exit 75", 75)] {
        assert_eq!(run(script), (Some(expected), None), "{script}");
    }
    for (name, number) in [("HUP", 1), ("INT", 2), ("QUIT", 3), ("KILL", 9), ("SEGV", 11), ("TERM", 15)] {
        assert_eq!(run(&format!("ulimit -c 0; kill -{name} $$")), (None, Some(number)), "{name}");
    }
    assert_eq!(run("kill -34 $$"), (Some(162), None), "one for real time has no name");
    assert_eq!(run("kill -PIPE $$"), (Some(141), None), "every program in Rust ignores this one");
    assert!(fleet.iter().all(|server| server.keys().unwrap().is_empty()), "all was released");
}

#[test]
fn what_the_program_itself_ends_with() {
    let fleet = fleet_of(3);
    let dir = Dir::new();
    let file = |text: &str| {
        let path = dir.file("settings.toml");
        std::fs::write(&path, text).unwrap();
        path.to_string_lossy().into_owned()
    };
    let cases: &[(&[&str], i32, &str)] = &[
        (&["run", "-r", "a", "--", "/nonexistent"], 127, "cannot run /nonexistent"),
        (&["run", "-r", "a", "--", "/etc/passwd"], 126, "cannot run /etc/passwd"),
        (&["run", "-r", "a"], 64, "required arguments"),
        (&["run", "-r", "a", "--ttl", "20s", "--", "true"], 64, "above max_ttl"),
        (&["run", "-r", "a", "--ttl", "500ms", "--", "true"], 64, "no time to end"),
        (&["run", "-r", "a", "--ttl", "5", "--", "true"], 64, "is no time"),
        (&["run", "-r", "a", "--keep", "100000h", "--", "touch", "/nonexistent/a"], 64, " at most"),
        (&["run", "-r", "", "--", "true"], 64, "name is empty"),
        (&["run", "-r", "a\nb", "--", "true"], 64, "one line"),
        (&["run", "-r", "a", "--ttl", "0s", "--", "true"], 64, "a ttl of 0 ms"),
        (&["run", "-r", "a", "-i", "bob@127.0.0.1", "--", "true"], 64, "a user and no password"),
        (&["run", "-r", "a", "--holder", "", "--", "true"], 64, "--holder"),
        (&["release", "a", "--holder", ""], 64, "--holder"),
        (&["run", "-r", "a", "--keep", "0s", "--", "true"], 64, "more than nothing"),
        (&["run", "-r", "a", "--at-least", "100000h", "--try", "--", "touch", "/nonexistent/a"], 64, " at most"),
        (&["run", "-r", "a", "--at-least", "1h", "--keep", "1h", "--try", "--", "true"], 64, "cannot be used with"),
        (&["run", "-r", "a", "--at-least", "1h", "--", "true"], 64, "--try"),
        (&["run", "-r", "a", "--max-hold", "0s", "--", "true"], 64, "more than nothing"),
        (&["check", "-r", ""], 64, "--resource"),
        (&["status", "--watch", "0s"], 64, "more than nothing"),
        (&["bench", "--time", "999ms"], 64, "1s at least"),
        (&["run", "-r", "a", "-E", "-1", "--", "true"], 64, "'-1' for '--conflict-exit-code"),
        (&["run", "-r", "a", "--quorum", "-1", "--", "true"], 64, "'-1' for '--quorum"),
        (&["run", "-r", "a", "--try", "--wait", "1s", "--", "true"], 64, "cannot be used with"),
        (&["run", "-r", "a", "-i", "redis://:secret@127.0.0.1", "--", "true"], 64, "visible in the list of processes"),
        (&["run", "-r", "a", "-i", "http://127.0.0.1", "--", "true"], 64, "cannot be used"),
        (&["run", "-r", "a", "-c", "/nonexistent.toml", "--", "true"], 78, "/nonexistent.toml: "),
        (&["run", "-r", "a", "-c", &file("speed = 9"), "--", "true"], 78, "no setting \"speed\""),
        (&["run", "-r", "a", "-i", "127.0.0.1:1", "--wait", "200ms", "--", "true"], 69, "127.0.0.1:1: not connected"),
        (&["run", "-r", "a", "-i", "127.0.0.1", "--quorum", "2", "--", "true"], 78, "quorum"),
    ];
    for (args, expected, says) in cases {
        let output = output(&mut redquorum(&fleet, *args));
        assert_eq!(output.status.code(), Some(*expected), "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(says) && output.stdout.is_empty(), "{args:?}: {}", stderr(&output));
    }
    let of_file = output(&mut redquorum(&fleet, ["run", "-r", "a", "-c", &file("username = 'bob'"), "--", "true"]));
    assert_eq!(of_file.status.code(), Some(78), "not as the default user: {}", stderr(&of_file));
    for args in [&["run", "-r", "a", "--", "true"][..], &["status"], &["config", "check"]] {
        let nothing = output(&mut bare(args));
        assert_eq!(nothing.status.code(), Some(78), "{args:?}: no instances were named");
        assert!(stderr(&nothing).contains("no instances are named"), "{args:?}: {}", stderr(&nothing));
    }
    let help = output(&mut bare(["--help"]));
    assert!(help.status.success() && stdout(&help).contains("79  the lock was lost"));
}

#[test]
fn a_role_of_the_program_that_is_called_with_nonsense_is_wrong_usage() {
    for args in [&["__signal", "0"][..], &["__signal", "999"], &["__signal"], &["__exec"]] {
        assert_eq!(output(&mut bare(args)).status.code(), Some(64), "{args:?}");
    }
}

#[test]
fn help_that_cannot_be_written_is_a_failure() {
    for option in ["--help", "--version"] {
        let mut command = bare([option]);
        command.stdout(std::fs::File::create("/dev/full").unwrap());
        assert_eq!(command.status().unwrap().code(), Some(71), "{option}");
    }
}

#[test]
fn a_user_without_threads_is_told_so() {
    // Root has no limit, so another user runs a copy.
    let dir = Dir::new();
    let copy = dir.file("redquorum");
    // Not by this process: what another test starts meanwhile would have it open for writing, and it could not be run.
    let copied = std::process::Command::new("cp").arg(env!("CARGO_BIN_EXE_redquorum")).arg(&copy).status().unwrap();
    assert!(copied.success());
    let_others_use(&copy);
    let mut command = std::process::Command::new(if is_root() { "setpriv" } else { "env" });
    if is_root() {
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    }
    command.args(["prlimit", "--nproc=1", "--"]).arg(&copy).args(["status", "-i", "127.0.0.1:1"]);
    let output = output(&mut command);
    assert_eq!(output.status.code(), Some(71), "{}", stderr(&output));
    assert!(stderr(&output).starts_with("redquorum: no threads could be started: "), "{}", stderr(&output));
}

#[test]
fn a_refused_client_learns_who_has_the_lock() {
    let fleet = fleet_of(3);
    let dir = Dir::new();
    let begun = dir.file("begun");
    let script = format!("echo > {}; exec sleep 60", begun.display());
    let mut holder = redquorum(&fleet, ["run", "-r", "a", "-r", "b", "--", "sh", "-c", &script]).spawn().unwrap();
    contents(&begun);
    for (args, expected) in [(&["--try"][..], 75), (&["--wait", "2s"], 75), (&["--try", "-E", "3"], 3)] {
        let args = ["run", "-r", "b"].iter().chain(args).chain(&["--", "true"]);
        let output = output(&mut redquorum(&fleet, args));
        assert_eq!(output.status.code(), Some(expected));
        assert!(stderr(&output).contains(&format!("/{}", holder.id())), "{}", stderr(&output));
    }
    let mut waiting = redquorum(&fleet, ["run", "-r", "a", "--", "sh", "-c", "exit 9"]).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    signal(&holder, Signal::SIGTERM);
    assert_eq!(status_of(&mut holder), 143, "the command died of the signal");
    assert_eq!(status_of(&mut waiting), 9, "and the next got the lock");
}

#[test]
fn who_is_ended_while_it_waits_leaves_nothing_behind() {
    let fleet = fleet_of(3);
    fleet.iter().for_each(|server| drop(server.command(&["SET", "a", "other"]).unwrap()));
    for (number, expected) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143), (Signal::SIGHUP, 129)] {
        let mut waiting = redquorum(&fleet, ["run", "-r", "a", "--", "true"]).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(300));
        signal(&waiting, number);
        assert_eq!(status_of(&mut waiting), expected);
    }
    assert!(fleet.iter().all(|server| server.keys().unwrap() == ["a"]));
}

#[test]
fn a_lock_is_kept_after_success_and_not_after_failure() {
    let fleet = fleet_of(3);
    let run =
        |script| output(&mut redquorum(&fleet, ["run", "-r", "a", "--keep", "1h", "--try", "--", "sh", "-c", script]));
    assert_eq!(run("exit 5").status.code(), Some(5));
    assert_eq!(run("exit 0").status.code(), Some(0));
    assert_eq!(run("exit 0").status.code(), Some(75), "it was done already");
    let left = |server: &Server| server.command(&["PTTL", "a"]).unwrap().int().unwrap();
    assert!(fleet.iter().filter(|server| left(server) > 3_500_000).count() >= 2);
}

#[test]
fn a_lock_is_kept_from_when_it_was_acquired_also_after_a_failure() {
    let fleet = fleet_of(3);
    let run = |script| {
        let args = ["run", "-r", "a", "--at-least", "1h", "--try", "--", "sh", "-c", script];
        output(&mut redquorum(&fleet, args)).status.code()
    };
    assert_eq!([run("exit 5"), run("exit 0")], [Some(5), Some(75)], "it was tried already");
    let left = |server: &Server| server.command(&["PTTL", "a"]).unwrap().int().unwrap();
    assert!(fleet.iter().filter(|server| left(server) > 3_500_000).count() >= 2);
    let missing = ["run", "-r", "c", "--at-least", "1h", "--try", "--", "/nonexistent/program"];
    assert_eq!(output(&mut redquorum(&fleet, missing)).status.code(), Some(127));
    let short = ["run", "-r", "b", "--at-least", "10ms", "--try", "--", "sleep", "0.1"];
    assert_eq!(output(&mut redquorum(&fleet, short)).status.code(), Some(0));
    assert!(
        fleet.iter().filter(|server| server.keys().unwrap() == ["a"]).count() >= 2,
        "what took longer, or could not be run, is released"
    );
}

#[test]
fn a_try_learns_at_once_that_no_quorum_can_be_had() {
    let fleet = fleet_of(3);
    fleet[0].kill().unwrap();
    let run = |options: &[&str]| {
        let begun = now();
        let args = ["run", "-r", "a"].iter().chain(options).chain(&["--", "true"]);
        (output(&mut redquorum(&fleet, args)), begun.elapsed())
    };
    for options in [&["--try"][..], &["--wait", "0s"]] {
        assert_eq!(run(options).0.status.code(), Some(0), "two are enough, {options:?}");
    }
    fleet[1].kill().unwrap();
    for (options, at_least, at_most) in [(&["--try"][..], 0, 3000), (&["--wait", "1s"], 1000, 3000)] {
        let (output, took) = run(options);
        assert_eq!(output.status.code(), Some(69), "{options:?}");
        assert!(stderr(&output).contains("Connection refused"), "{}", stderr(&output));
        assert!((at_least..at_most).contains(&took.as_millis()), "{options:?} took {took:?}");
    }
}

#[test]
fn the_command_learns_of_its_lock_and_reads_what_is_meant_for_it() {
    use std::io::Write;
    use std::process::Stdio;

    let fleet = fleet_of(3);
    let script = "cat; echo $REDQUORUM_RESOURCE / $REDQUORUM_FENCING_TOKEN / $REDQUORUM_VALID_UNTIL";
    let mut command = redquorum(&fleet, ["run", "-r", "b", "-r", "a", "--holder", "me", "--", "sh", "-c", script]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"from stdin\n").unwrap();
    assert!(wait_until(crate::support::PATIENCE, || child.try_wait().unwrap().is_some()));
    let text = stdout(&child.wait_with_output().unwrap());
    let rest = text.strip_prefix("from stdin\na b / ").unwrap();
    let (tokens, until) = rest.trim().split_once(" / ").unwrap();
    let tokens: Vec<u64> = tokens.split(' ').map(|token| token.parse().unwrap()).collect();
    assert!(tokens.len() == 2 && tokens.iter().all(|token| *token > 4096), "{tokens:?}");
    let wall = std::process::Command::new("date").arg("+%s").output().unwrap();
    let left = until.parse::<f64>().unwrap() - stdout(&wall).trim().parse::<f64>().unwrap();
    assert!((5.0..11.0).contains(&left), "{left}");
}

#[test]
fn a_shell_takes_the_completions_and_the_man_page_has_every_command() {
    let (dir, completions) = (Dir::new(), output(&mut bare(["completions", "bash"])));
    let file = dir.file("completions");
    std::fs::write(&file, &completions.stdout).unwrap();
    let script = format!("source {} && complete -p redquorum", file.display());
    let taken = output(std::process::Command::new("bash").args(["-c", &script]));
    assert!(taken.status.success() && stdout(&taken).contains("redquorum"), "{}", stderr(&taken));
    let man = stdout(&output(&mut bare(["man"])));
    assert!(man.contains(".TH redquorum") && man.contains(".TH redquorum-run"), "{man}");
}

/// Counter-example: all six ended with 75, "held by .. (taken on 1 of 5 instances)", and the command did not run.
#[test]
fn of_six_that_try_at_once_beside_a_minority_that_is_down_one_runs_its_command() {
    let (fleet, dir) = (fleet_of(5), Dir::new());
    fleet[0].kill().unwrap();
    fleet[1].kill().unwrap();
    for round in 0..3 {
        let name = format!("job:{round}");
        let log = dir.file(&name);
        let script = format!("echo ran >> {}; sleep 3", log.display());
        let mut all: Vec<_> = (0..6)
            .map(|_| redquorum(&fleet, ["run", "-r", &name, "--try", "--", "sh", "-c", &script]).spawn().unwrap())
            .collect();
        let mut codes: Vec<i32> = all.iter_mut().map(status_of).collect();
        codes.sort_unstable();
        assert_eq!(codes, [0, 75, 75, 75, 75, 75]);
        assert_eq!(contents(&log), "ran\n");
    }
}
