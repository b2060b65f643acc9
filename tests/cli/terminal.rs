//! At a terminal, under a shell with jobs.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use nix::pty::openpty;
use redquorum_testkit::{Fleet, wait_until};

use crate::support::{PATIENCE, fleet_of, redquorum};

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

    /// Waits until the screen shows it, after what was looked at before.
    #[track_caller]
    fn wait_for(&mut self, text: &str) {
        let screen = || self.screen.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let found = wait_until(PATIENCE, || screen()[self.seen..].contains(text));
        let screen = screen();
        assert!(found, "no {text:?} on the screen:\n{screen}");
        self.seen += screen[self.seen..].find(text).unwrap() + text.len();
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
    shell.line("$redquorum --no-admission run -r a -- sh -c 'echo be''gun; sleep 60'; echo status=$?");
    shell.wait_for("begun\r\n");
    thread::sleep(Duration::from_millis(300)); // a shell that is just about to fork may swallow it
    shell.press("\x03");
    shell.wait_for("status=130");
    assert!(fleet.iter().all(|server| server.keys().unwrap().is_empty()), "it was released");
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
    shell.line("$redquorum --no-admission run -r a --ttl 1s -- sh -c 'echo be''gun; read x; echo go''ne=on'");
    shell.wait_for("begun\r\n");
    shell.press("\x1a");
    shell.wait_for("Stopped");
    thread::sleep(Duration::from_millis(1500));
    shell.line("fg; echo then=$?");
    shell.wait_for("the lock on a was lost");
    shell.wait_for("then=79");
}

#[test]
fn a_job_in_the_background_stops_when_it_reads_the_terminal() {
    let fleet = fleet_of(3);
    let mut shell = Shell::start(&fleet);
    shell.line("$redquorum --no-admission run -r a -- sh -c 'read x; echo got=$x' &");
    thread::sleep(Duration::from_millis(700));
    shell.line("");
    shell.wait_for("Stopped");
    shell.line("fg");
    thread::sleep(Duration::from_millis(200));
    shell.line("hello");
    shell.wait_for("got=hello");
}

#[test]
fn who_waits_is_told_for_whom_and_the_line_is_gone_afterwards() {
    let fleet = fleet_of(3);
    fleet.iter().for_each(|server| drop(server.command(&["SET", "a", "other", "PX", "4000"]).unwrap()));
    let mut shell = Shell::start(&fleet);
    shell.line("$redquorum --no-admission run -r a -- echo 'I am'' in'");
    shell.wait_for("\r\x1b[Kwaiting for a, held by a client of another kind on 3/3, ");
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
    fleet[0].command(&["SET", "a", "other"]).unwrap();
    let mut shell = Shell::start(&fleet);
    for (answer, expected) in [("n", 64), ("", 64), ("y", 0)] {
        shell.line("$redquorum --no-admission release a --force; echo status=$?");
        shell.wait_for("a is held by a client of another kind");
        shell.wait_for("[y/N] ");
        shell.line(answer);
        shell.wait_for(&format!("status={expected}\r\n"));
    }
    assert_eq!(fleet[0].keys().unwrap(), [""; 0]);
}
