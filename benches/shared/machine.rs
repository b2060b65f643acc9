//! Of which commit, when and on what it was measured, as a sentence beside the figures.

use std::fs;
use std::process::Command;
use std::thread::available_parallelism;

/// What a program said that said nothing.
const NOTHING: &str = "unknown";

/// The commit, the machine, and how much else it did when this began.
pub(crate) fn described() -> String {
    let processors = available_parallelism().map_or_else(|_| "some".to_owned(), |count| count.to_string());
    let model = field("/proc/cpuinfo", "model name").map_or_else(String::new, |model| format!(" ({model})"));
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_else(|_| "unknown".to_owned());
    let load = fs::read_to_string("/proc/loadavg").ok();
    let load = load.as_ref().and_then(|load| load.split(' ').next()).unwrap_or("unknown");
    format!(
        "commit {}, {}; {processors} processors{model} for clients and servers together, {} {}, loopback; the load was {load} when it began",
        commit(),
        output("date", &["+%F"]),
        std::env::consts::OS,
        kernel.trim()
    )
}

/// With a mark if what is measured, or measures, has changed since.
fn commit() -> String {
    let commit = output("git", &["rev-parse", "--short=10", "HEAD"]);
    let changed = output("git", &["status", "--porcelain", "--", "src", "benches", "tests/testkit", "Cargo.lock"]);
    if changed == NOTHING { commit } else { commit + "-dirty" }
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.ok().and_then(|output| String::from_utf8(output.stdout).ok());
    output.filter(|text| !text.is_empty()).map_or_else(|| NOTHING.to_owned(), |text| text.trim().to_owned())
}

fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
