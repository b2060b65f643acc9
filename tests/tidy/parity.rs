//! What can be done asynchronously can be done by threads, too, under the same name.

use std::collections::BTreeSet;

use crate::source::File;

/// A file of the asynchronous interface, its twin, and what that does not have: it gives futures, or shows what operators want to know.
const TWINS: &[(&str, &str, &[&str])] = &[
    ("src/lock.rs", "src/blocking/lock.rs", &["ttl", "wait_at_most", "holder", "renew", "max_hold"]), // by a macro
    ("src/lock_all.rs", "src/blocking/lock_all.rs", &[]),
    ("src/lock_all/guard.rs", "src/blocking/lock_all.rs", OF_VIEWS),
    ("src/guard.rs", "src/blocking/guard.rs", &[]),
    ("src/rw_lock.rs", "src/blocking/rw_lock.rs", &[]),
    ("src/semaphore.rs", "src/blocking/semaphore.rs", &["index", "into_guard"]), // both permits have them
    ("src/election.rs", "src/blocking/election.rs", &["info", "next"]),          // both have it; of an iterator
    ("src/client.rs", "src/blocking/client.rs", &["builder", "inspect", "force_release", "record_metrics"]),
];

/// Of `AllLeases`, which both share.
const OF_VIEWS: &[&str] = &["resources", "fencing_tokens", "fencing_token", "is_valid", "remaining", "lost"];

/// The public functions of the types in a file.
fn public(file: &File) -> BTreeSet<String> {
    let tokens = file.tokens();
    let texts: Vec<&str> = tokens.iter().map(|(text, _)| text.as_str()).collect();
    let is_word = |text: &&str| ["const", "async"].contains(text);
    let starts = texts.iter().enumerate().filter(|(_, text)| **text == "pub");
    let names = starts.filter_map(|(at, _)| {
        let mut rest = texts[at + 1..].iter().skip_while(|text| is_word(text));
        (*rest.next()? == "fn").then(|| rest.next())?
    });
    names.map(|name| (*name).to_owned()).collect()
}

pub(crate) fn check(files: &[File]) -> Vec<String> {
    let find = |path: &str| files.iter().find(|file| file.path == path);
    let mut problems = Vec::new();
    for (path, twin, without) in TWINS {
        let (Some(file), Some(twin)) = (find(path), find(twin)) else {
            problems.push(format!("{path} or {twin} is not there"));
            continue;
        };
        let has = public(twin);
        let missing = public(file).into_iter().filter(|name| !has.contains(name) && !without.contains(&name.as_str()));
        problems.extend(missing.map(|name| twin.problem(1, &format!("`{name}` of {path} has no twin here"))));
    }
    problems
}

#[test]
fn a_function_without_a_twin_is_found() {
    let file = |path: &str, text: &str| File::new(path, text);
    let mut files: Vec<File> = TWINS.iter().flat_map(|(path, twin, _)| [file(path, ""), file(twin, "")]).collect();
    assert_eq!(check(&files), Vec::<String>::new());
    files.retain(|file| !file.path.ends_with("src/semaphore.rs"));
    files.push(file(
        "src/semaphore.rs",
        "impl S { pub const fn a() {} pub async fn b() {} pub(crate) fn c() {} fn d() {} }",
    ));
    assert_eq!(check(&files).len(), 2);
}
