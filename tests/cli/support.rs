//! What the tests share.
#![expect(clippy::disallowed_methods, reason = "tests on real processes measure real time")]

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use redquorum_testkit::{Fleet, Program, Server, wait_until};
use tokio::signal::unix::SignalKind;

/// What may take time without end if it goes wrong gets this much.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn fleet_of(count: usize) -> Fleet {
    start_children_with_default_signals();
    Fleet::start(&Program::required().unwrap(), count).unwrap()
}

pub(crate) fn now() -> Instant {
    Instant::now()
}

/// What is ignored where the tests were started, by `nohup` or as a job of a script, would be ignored in what they
/// start. A signal that is caught is not inherited, and nobody looks at those that are caught here.
fn start_children_with_default_signals() {
    static ONCE: Once = Once::new();
    // On a thread of its own: the first to come may be within a runtime, where none may be dropped.
    ONCE.call_once(|| std::thread::spawn(take_default_signals).join().unwrap());
}

fn take_default_signals() {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let _entered = runtime.enter();
    for kind in [SignalKind::hangup(), SignalKind::interrupt(), SignalKind::quit(), SignalKind::terminate()] {
        // Without /proc all are taken for ignored.
        if mask.is_none_or(|mask| mask >> (kind.as_raw_value() - 1) & 1 == 1) {
            drop(tokio::signal::unix::signal(kind).unwrap());
        }
    }
}

/// The program, with nothing from the environment of the tests.
pub(crate) fn bare<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    start_children_with_default_signals();
    let mut command = Command::new(env!("CARGO_BIN_EXE_redquorum"));
    without_settings(&mut command).args(args).stdin(Stdio::null());
    command
}

/// Takes the program's settings out of the environment that a command inherits: what is not known there is an error.
pub(crate) fn without_settings(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("REDQUORUM_")) {
        command.env_remove(name);
    }
    command
}

/// The program with these instances. Fresh ones vote at once, so that no test waits for that, and none is taken for
/// late when the machine stands still for a moment. What is given behind the command counts instead.
pub(crate) fn redquorum<S: AsRef<OsStr>>(fleet: &Fleet, args: impl IntoIterator<Item = S>) -> Command {
    let mut command = bare(["--no-admission", "--instance-timeout", "1s"]);
    command.args(args).env("REDQUORUM_INSTANCES", fleet.addresses().join(" "));
    command
}

/// The program as an operator calls it, with nothing but these instances.
pub(crate) fn plain<S: AsRef<OsStr>>(fleet: &Fleet, args: impl IntoIterator<Item = S>) -> Command {
    let mut command = bare(args);
    command.env("REDQUORUM_INSTANCES", fleet.addresses().join(" ")).env("REDQUORUM_INSTANCE_TIMEOUT", "1s");
    command
}

/// Waits until every instance has a key: a quorum is enough for a lock to be acquired.
#[track_caller]
pub(crate) fn all_have(fleet: &Fleet, key: &str) {
    let has_it = |server: &Server| server.keys().unwrap().iter().any(|known| known == key);
    assert!(wait_until(PATIENCE, || fleet.iter().all(has_it)), "{key} is not on all");
}

/// Runs it to its end.
pub(crate) fn output(command: &mut Command) -> Output {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
    let reading = std::thread::spawn(move || child.wait_with_output()); // a pipe does not hold all that it may write
    let ended = wait_until(PATIENCE, || reading.is_finished());
    if !ended {
        kill(pid, Signal::SIGKILL).unwrap();
    }
    let output = reading.join().unwrap().unwrap();
    assert!(ended, "it did not end: {output:?}");
    output
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Waits for the end of a process that a test has started, and gives its status as a shell would.
pub(crate) fn status_of(child: &mut Child) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    if !wait_until(PATIENCE, || child.try_wait().unwrap().is_some()) {
        child.kill().unwrap();
        panic!("it did not end");
    }
    let status = child.wait().unwrap();
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap())
}

pub(crate) fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), signal).unwrap();
}

/// Whether a process runs; one that is dead and not collected does not.
pub(crate) fn runs(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.trim().is_empty() && !rest.trim().starts_with('Z'))
}

/// Whether the tests may become other users.
pub(crate) fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").unwrap().uid() == 0
}

/// Lets other users read and run it, also where the umask would not.
pub(crate) fn let_others_use(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A directory that is gone with the value.
pub(crate) struct Dir(PathBuf);

impl Dir {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("redquorum-cli-{}-{number}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let_others_use(&dir);
        Self(dir)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Waits until a file has something in it.
#[track_caller]
pub(crate) fn contents(path: &Path) -> String {
    let read = || fs::read_to_string(path).unwrap_or_default();
    assert!(wait_until(PATIENCE, || read().ends_with('\n')), "nothing was written to {}", path.display());
    read()
}
