//! What can be done asynchronously can be done by threads, too, under the same name.

use std::collections::BTreeSet;

use crate::source::File;

const TWIN: &str = "src/blocking/twins.rs";

/// A file of the asynchronous interface, and what its twin does not have: it gives futures, or shows what operators want to know.
const WITH_TWINS: &[(&str, &[&str])] = &[
    ("src/lock.rs", &["Lock::ttl", "Lock::wait_at_most", "Lock::holder", "Lock::renew", "Lock::max_hold"]), // by a macro
    ("src/lock_all.rs", &[]),
    ("src/lock_all/guard.rs", OF_VIEWS),
    ("src/guard.rs", &[]),
    ("src/rw_lock.rs", &[]),
    ("src/semaphore.rs", &["Permit::index", "Permit::into_guard"]), // both permits have them
    ("src/election.rs", &["Leadership::info"]),                     // both have it
    ("src/client.rs", &["Redlock::builder", "Redlock::inspect", "Redlock::force_release", "Redlock::record_metrics"]),
];

/// `AllLeases`, which both share.
const OF_VIEWS: &[&str] = &[
    "AllLeases::leases",
    "AllLeases::resources",
    "AllLeases::fencing_tokens",
    "AllLeases::fencing_token",
    "AllLeases::is_valid",
    "AllLeases::remaining",
    "AllLeases::lost",
];

/// The functions of a file that what stands before them allows, each behind its type.
fn named(file: &File, begins: impl Fn(&[&str]) -> bool) -> BTreeSet<String> {
    let tokens = file.tokens();
    let texts: Vec<&str> = tokens.iter().map(|(text, _)| text.as_str()).collect();
    let mut names = BTreeSet::new();
    let mut of = "";
    for (at, text) in texts.iter().enumerate() {
        match *text {
            "impl" if at == 0 || ["}", "{", ";", "]"].contains(&texts[at - 1]) => of = implemented(&texts[at + 1..]),
            "fn" if !of.is_empty() && begins(&texts[..at]) => {
                names.extend(texts.get(at + 1).map(|name| format!("{of}::{name}")))
            }
            _ => {}
        }
    }
    names
}

/// The type of a block that begins so, behind `impl`.
fn implemented<'a>(header: &[&'a str]) -> &'a str {
    let header = header.split(|text| *text == "{").next().unwrap_or_default();
    let header = header.rsplit(|text| *text == "for").next().unwrap_or_default();
    let behind = match header.first() {
        Some(&"<") => header.iter().position(|text| *text == ">").map_or(0, |at| at + 1),
        _ => 0,
    };
    header.get(behind).copied().unwrap_or_default()
}

/// The public functions of the types in a file.
fn public(file: &File) -> BTreeSet<String> {
    named(file, |before| before.iter().rev().find(|text| !["const", "async"].contains(text)) == Some(&"pub"))
}

pub(crate) fn check(files: &[File]) -> Vec<String> {
    let find = |path: &str| files.iter().find(|file| file.path == path);
    let Some(twin) = find(TWIN) else { return vec![format!("{TWIN} is not there")] };
    let has = named(twin, |_| true);
    let mut problems = Vec::new();
    for (path, without) in WITH_TWINS {
        let Some(file) = find(path) else {
            problems.push(format!("{path} is not there"));
            continue;
        };
        let missing = public(file).into_iter().filter(|name| !has.contains(name) && !without.contains(&name.as_str()));
        problems.extend(missing.map(|name| twin.problem(1, &format!("`{name}` of {path} has no twin here"))));
    }
    problems
}

#[test]
fn a_function_without_a_twin_is_found() {
    let file = |path: &str, text: &str| File::new(path, text);
    let mut files: Vec<File> = WITH_TWINS.iter().map(|(path, _)| file(path, "")).collect();
    files.push(file(TWIN, "twins! { impl<M: Mode> S<M> has settings { fn e(&self) -> u32 = waits; } }"));
    assert_eq!(check(&files), Vec::<String>::new());
    files.retain(|file| !file.path.ends_with("src/semaphore.rs"));
    files.push(file(
        "src/semaphore.rs",
        "impl S { pub const fn a() {} pub async fn b() {} pub(crate) fn c() {} fn d() {} pub fn e() {} }",
    ));
    assert_eq!(check(&files).len(), 2);
}
