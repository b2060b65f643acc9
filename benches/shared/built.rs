//! Of which commit something is measured, and when.

use std::process::Command;

/// What a program said that said nothing.
const NOTHING: &str = "unknown";

/// The commit, and today.
pub(crate) fn built() -> String {
    format!("commit {}, {}", commit(), output("date", &["+%F"]))
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
