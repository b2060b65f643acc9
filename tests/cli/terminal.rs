//! At a terminal, under a shell with jobs.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use nix::pty::openpty;
use redquorum_testkit::{Fleet, wait_until};

use crate::support::{Dir, PATIENCE, contents, fleet_of, redquorum};

/// A shell in a terminal of its own. It ends with the value.
struct Shell {
    keys: File,
    screen: Arc<Mutex<String>>,
    shell: Child,
    /// What of the screen was looked at.
    seen: usize,
}

impl Shell {
    fn start(fleet: &Fleet) -> Self {
        let pair = openpty(None, None).unwrap();
        let (keys, mut display) = (File::from(pair.master.try_clone().unwrap()), File::from(pair.master));
        let slave = File::from(pair.slave);
        let program = redquorum(fleet, [""; 0]);
        let shell = Command::new("setsid")
            .args(["--ctty", "--wait", "bash", "--norc", "--noprofile", "-i"])
            .env("PS1", "ready> ")
            .env("TERM", "xterm")
            .env("redquorum", program.get_program())
            .env("REDQUORUM_INSTANCES", fleet.addresses().join(" "))
            .env("REDQUORUM_INSTANCE_TIMEOUT", "1s")
            .env_remove("REDQUORUM_SERVER")
            .stdin(Stdio::from(slave.try_clone().unwrap()))
            .stdout(Stdio::from(slave.try_clone().unwrap()))
            .stderr(Stdio::from(slave))
            .spawn()
            .unwrap();
        let screen = Arc::<Mutex<String>>::default();
        let written = Arc::clone(&screen);
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length) = display.read(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
                written.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
            }
        });
        let mut shell = Self { keys, screen, shell, seen: 0 };
        shell.wait_for("ready> ");
        shell
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    fn line(&mut self, line: &str) {
        self.press(&format!("{line}\n"));
    }

    /// Waits until the screen shows it, after what was looked at before. What stood between.
    #[track_caller]
    fn wait_for(&mut self, text: &str) -> String {
        let screen = || self.screen.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let found = wait_until(PATIENCE, || screen()[self.seen..].contains(text));
        let screen = screen();
        assert!(found, "no {text:?} on the screen:\n{screen}");
        let (before, _) = screen[self.seen..].split_once(text).unwrap();
        self.seen += before.len() + text.len();
        before.to_owned()
    }
}

impl Shell {
    /// As `wait_for`, with empty lines until then: of what a job does a shell tells at the next prompt.
    #[track_caller]
    fn wait_at_prompts_for(&mut self, text: &str) {
        let seen = self.seen;
        wait_until(PATIENCE, || {
            self.line("");
            thread::sleep(Duration::from_millis(200));
            self.screen.lock().unwrap_or_else(PoisonError::into_inner)[seen..].contains(text)
        });
        self.wait_for(text);
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.keys.write_all(b"\x03\nexit\n");
        if !wait_until(Duration::from_secs(2), || self.shell.try_wait().is_ok_and(|status| status.is_some())) {
            let _ = self.shell.kill();
        }
        let _ = self.shell.wait();
    }
}

#[test]
fn ctrl_c_reaches_the_command_and_the_status_says_so() {
    let fleet = fleet_of(3);
    let mut shell = Shell::start(&fleet);
    shell.line("$redquorum --no-admission run -r a -- sh -c 'echo be''gun; sleep 60'");
    shell.wait_for("begun\r\n");
    thread::sleep(Duration::from_millis(300)); // a shell that is just about to fork may swallow it
    shell.press("\x03");
    shell.wait_for("ready> ");
    shell.line("echo status=$?");
    shell.wait_for("status=130");
    assert!(fleet.iter().all(|server| server.keys().unwrap().is_empty()), "it was released");
}

/// A file with a script, to be run by a shell or another program.
fn script(dir: &Dir, name: &str, text: &str) -> String {
    let path = dir.file(name);
    std::fs::write(&path, format!("{text}\n")).unwrap();
    path.to_string_lossy().into_owned()
}

#[test]
fn ctrl_c_ends_a_script_with_the_command_or_while_it_waits() {
    let (fleet, dir) = (fleet_of(3), Dir::new());
    fleet.iter().for_each(|server| drop(server.command(&["SET", "other", "x"]).unwrap()));
    let sleeps = script(&dir, "sleeps", "echo it runs; sleep 60");
    let own_way = script(&dir, "own_way", "trap 'exit 130' INT; echo it runs; sleep 60");
    let mut shell = Shell::start(&fleet);
    for program in ["sh", "bash"] {
        // A command that ends in its own way is for the script to judge.
        for (lock, command, begun, goes_on) in [
            ("a", &sleeps, "it runs\r\n", false),
            ("other", &sleeps, "waiting for other", false),
            ("a", &own_way, "it runs\r\n", true),
        ] {
            let text = format!("$redquorum --no-admission run -r {lock} -- sh {command}\necho went on with $?");
            shell.line(&format!("{program} {}", script(&dir, "script", &text)));
            shell.wait_for(begun);
            thread::sleep(Duration::from_millis(300));
            shell.press("\x03");
            if goes_on {
                shell.wait_for("went on with 130");
            }
            shell.wait_for("ready> ");
            shell.line("echo status=$?");
            let before = shell.wait_for(if goes_on { "status=0" } else { "status=130" });
            assert!(!before.contains("went on"), "{program} {lock}: {before}");
        }
    }
    assert!(fleet.iter().all(|server| server.keys().unwrap() == ["other"]), "all was released");
}

#[test]
fn ctrl_c_reaches_a_command_whose_output_goes_into_a_pipe() {
    let fleet = fleet_of(3);
    let mut shell = Shell::start(&fleet);
    shell.line("$redquorum --no-admission run -r a -- sh -c 'read x; echo go''t=$x; sleep 60' | cat");
    shell.line("hello");
    shell.wait_for("got=hello");
    thread::sleep(Duration::from_millis(300));
    shell.press("\x03");
    shell.wait_for("ready> ");
    assert!(wait_until(PATIENCE, || fleet.iter().all(|server| server.keys().unwrap().is_empty())));
}

#[test]
fn ctrl_z_stops_a_script_with_its_command_and_fg_lets_both_go_on() {
    let (fleet, dir) = (fleet_of(3), Dir::new());
    let command = script(&dir, "command", "echo begun; read x; echo got=$x");
    let text = format!("$redquorum --no-admission run -r a -- sh {command}\necho and on");
    let script = script(&dir, "script", &text);
    let mut shell = Shell::start(&fleet);
    for program in ["sh", "bash"] {
        shell.line(&format!("{program} {script}"));
        shell.wait_for("begun\r\n");
        thread::sleep(Duration::from_millis(300));
        shell.press("\x1a");
        shell.wait_for("Stopped");
        shell.line("echo $((40 + 2))");
        shell.wait_for("42\r\n");
        shell.line("fg");
        thread::sleep(Duration::from_millis(300));
        shell.line("hello");
        shell.wait_for("got=hello");
        shell.wait_for("and on");
    }
}

#[test]
fn one_run_within_another_stops_goes_on_and_ends_with_it() {
    let (fleet, dir) = (fleet_of(3), Dir::new());
    let command = script(&dir, "command", "echo begun; read x; echo got=$x; sleep 60");
    let run = "$redquorum --no-admission run --pass-environment";
    let mut shell = Shell::start(&fleet);
    shell.line(&format!("{run} -r a -- {run} -r b -- sh {command}"));
    shell.wait_for("begun\r\n");
    thread::sleep(Duration::from_millis(300));
    shell.press("\x1a");
    shell.wait_for("Stopped");
    shell.line("fg");
    thread::sleep(Duration::from_millis(300));
    shell.line("hello");
    shell.wait_for("got=hello");
    thread::sleep(Duration::from_millis(300));
    shell.press("\x03");
    shell.wait_for("ready> ");
    shell.line("echo status=$?");
    shell.wait_for("status=130");
    assert!(fleet.iter().all(|server| server.keys().unwrap().is_empty()), "both were released");
}

#[test]
fn a_command_that_stops_itself_gives_the_terminal_back() {
    let fleet = fleet_of(3);
    let mut shell = Shell::start(&fleet);
    for signal in ["STOP", "TSTP"] {
        shell.line(&format!("$redquorum --no-admission run -r a -- sh -c 'kill -{signal} $$; read x; echo got=$x'"));
        shell.wait_for("Stopped");
        shell.line("echo $((40 + 2))");
        shell.wait_for("42\r\n");
        shell.line("fg");
        shell.wait_for("redquorum");
        thread::sleep(Duration::from_millis(300));
        shell.line(signal);
        shell.wait_for(&format!("got={signal}"));
    }
}

#[test]
fn a_command_that_is_stopped_before_it_has_the_terminal_goes_on_once_it_has() {
    let fleet = fleet_of(3);
    let mut shell = Shell::start(&fleet);
    // As if it had read the terminal a moment before that was given to its group.
    shell.line("$redquorum --no-admission run -r a -- sh -c 'kill -TTIN $$; echo we''nt on'");
    shell.wait_for("went on\r\n");
}

#[test]
fn a_command_reads_the_terminal_also_where_standard_input_is_a_pipe() {
    let fleet = fleet_of(3);
    let mut shell = Shell::start(&fleet);
    shell.line("echo | $redquorum --no-admission run -r a -- sh -c 'read x </dev/tty; echo go''t=$x'");
    thread::sleep(Duration::from_millis(700));
    shell.line("hello");
    shell.wait_for("got=hello");
    shell.line("echo $((40 + 2))");
    shell.wait_for("42\r\n");
}

#[test]
fn a_command_that_nobody_can_give_the_terminal_stays_stopped() {
    let (fleet, dir) = (fleet_of(3), Dir::new());
    let log = dir.file("log");
    let mut shell = Shell::start(&fleet);
    let script_text = format!("trap 'echo >> {0}.woken' CONT; echo $$ > {0}; read x </dev/tty", log.display());
    let command = script(&dir, "command", &script_text);
    // Its shell has ended, and the terminal is another's.
    shell.line(&format!("sh -c '$redquorum --no-admission run -r a -- sh {command} &'"));
    let pid = contents(&log);
    let state = || std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    assert!(wait_until(PATIENCE, || state().contains(") T ")), "{}", state());
    thread::sleep(Duration::from_millis(500));
    let woken = std::fs::read_to_string(dir.file("log.woken")).unwrap_or_default();
    assert_eq!(woken.len(), 0, "again and again");
    assert!(state().contains(") T "));
    assert!(fleet.iter().filter(|server| !server.keys().unwrap().is_empty()).count() >= 2, "it has its lock");
}

#[test]
fn a_command_reads_the_terminal_and_the_shell_has_it_again_afterwards() {
    let fleet = fleet_of(3);
    let mut shell = Shell::start(&fleet);
    shell.line("$redquorum --no-admission run -r a -- sh -c 'read x; echo got=$x'; echo status=$?");
    shell.line("hello");
    shell.wait_for("got=hello");
    shell.wait_for("status=0");
    shell.line("echo $((40 + 2))");
    shell.wait_for("42\r\n");
}

#[test]
fn ctrl_z_stops_the_job_and_fg_lets_it_go_on_with_the_terminal() {
    let fleet = fleet_of(3);
    let mut shell = Shell::start(&fleet);
    shell.line("$redquorum --no-admission run -r a -- sh -c 'echo be''gun; read x; echo got=$x'; echo status=$?");
    shell.wait_for("begun\r\n");
    shell.press("\x1a");
    shell.wait_for("Stopped");
    shell.line("echo $((40 + 2))");
    shell.wait_for("42\r\n");
    shell.line("fg; echo then=$?");
    shell.wait_for("redquorum");
    thread::sleep(Duration::from_millis(200));
    shell.line("hello");
    shell.wait_for("got=hello");
    shell.wait_for("then=0");
}

#[test]
fn a_job_that_was_stopped_for_longer_than_its_lock_is_valid_does_not_go_on() {
    let fleet = fleet_of(3);
    let mut shell = Shell::start(&fleet);
    shell.line("$redquorum --no-admission run -r a --ttl 3s -- sh -c 'echo be''gun; read x; echo go''ne=on'");
    shell.wait_for("begun\r\n");
    shell.press("\x1a");
    shell.wait_for("Stopped");
    thread::sleep(Duration::from_millis(4500));
    shell.line("fg; echo then=$?");
    shell.wait_for("the lock on a was lost");
    shell.wait_for("then=79");
}

#[test]
fn a_job_in_the_background_stops_when_it_reads_the_terminal() {
    let fleet = fleet_of(3);
    let mut shell = Shell::start(&fleet);
    shell.line("$redquorum --no-admission run -r a -- sh -c 'read x; echo got=$x' &");
    shell.wait_at_prompts_for("Stopped");
    shell.line("fg");
    thread::sleep(Duration::from_millis(200));
    shell.line("hello");
    shell.wait_for("got=hello");
}

#[test]
fn who_waits_is_told_for_whom_and_the_line_is_gone_afterwards() {
    let fleet = fleet_of(3);
    let mut shell = Shell::start(&fleet);
    fleet.iter().for_each(|server| drop(server.command(&["SET", "a\x07b", "other", "PX", "6000"]).unwrap()));
    // What a terminal would obey is told and not written.
    shell.line(r#"$redquorum --no-admission run -r "$(printf 'a\007b')" -- echo 'I am'' in'"#);
    shell.wait_for("\r\x1b[Kwaiting for a\\u{7}b, blocked by another program's string on 3/3, ");
    shell.wait_for(" s left");
    shell.wait_for("\r\x1b[KI am in\r\n");
}

#[test]
fn a_terminal_has_colours_unless_nobody_wants_them_and_a_pipe_has_none() {
    let fleet = fleet_of(1);
    let mut shell = Shell::start(&fleet);
    shell.line("$redquorum --no-admission status");
    shell.wait_for("\x1b[1mINSTANCE\x1b[0m");
    shell.wait_for("\x1b[32mlocks can be acquired\x1b[0m");
    shell.line("NO_COLOR=1 $redquorum --no-admission status; $redquorum --no-admission status | cat");
    for _ in 0..2 {
        shell.wait_for("INSTANCE  ");
        shell.wait_for(" needed: locks can be acquired");
    }
}

#[test]
fn a_release_by_force_asks_at_a_terminal() {
    let fleet = fleet_of(1);
    fleet[0].command(&["SET", "a", ":01abff009a1040008000000000000001:web-3/4711", "PX", "600000"]).unwrap();
    let mut shell = Shell::start(&fleet);
    for (answer, expected) in [("n", 64), ("", 64), ("y", 0)] {
        shell.line("$redquorum --no-admission release a --force; echo status=$?");
        shell.wait_for("a is held by a client on web-3/4711");
        shell.wait_for("[y/N] ");
        shell.line(answer);
        shell.wait_for(&format!("status={expected}\r\n"));
    }
    assert_eq!(fleet[0].keys().unwrap(), [""; 0]);
}
