//! On what it was measured, of which commit and when, as a sentence beside the figures.

use std::fs;
use std::thread::available_parallelism;

#[path = "built.rs"]
mod built;

/// The commit, the machine, and how much else it did when this began.
pub(crate) fn described() -> String {
    let processors = available_parallelism().map_or_else(|_| "some".to_owned(), |count| count.to_string());
    let model = field("/proc/cpuinfo", "model name").map_or_else(String::new, |model| format!(" ({model})"));
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_else(|_| "unknown".to_owned());
    let load = fs::read_to_string("/proc/loadavg").ok();
    let load = load.as_ref().and_then(|load| load.split(' ').next()).unwrap_or("unknown");
    format!(
        "{}; {processors} processors{model} for clients and servers together, {} {}, loopback; the load was {load} when it began",
        built::built(),
        std::env::consts::OS,
        kernel.trim()
    )
}

fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
