//! How large the library is, and how much of it an uncontended acquire and its release pass. These figures only fall.
//!
//! A line of code holds a token that is no documentation and not only for tests. A type is a `struct`, an `enum` or a `trait`. `bin` and
//! `testing` do not count. Who makes a figure smaller lowers its budget; who has to raise one says in the commit what it is worth.

use std::collections::{BTreeMap, BTreeSet};

use crate::arrows::{Known, module_of, paths};
use crate::source::File;

/// What is counted, the most of it, and by how much less there may be before the budget is to be lowered.
type Budget = (&'static str, usize, usize);

const LIBRARY: [Budget; 3] = [("files", 157, 0), ("lines", 31_210, 60), ("lines of code", 18_170, 40)];
const PAIR: [Budget; 3] = [("files", 73, 0), ("lines of code", 11_239, 20), ("types", 212, 0)];

/// What an uncontended acquire and its release run through, by the functions that a profiler saw called for each of them. The first is where
/// users begin; each other one is imported by one of these.
const WAY: &[&str] = &[
    "src/client.rs",
    "src/lock.rs",
    "src/clock.rs",
    "src/config/check.rs",
    "src/config/mod.rs",
    "src/guard.rs",
    "src/instance/cause.rs",
    "src/instance/command_size.rs",
    "src/instance/redis/address.rs",
    "src/instance/redis/admission/records.rs",
    "src/instance/redis/admission/shared.rs",
    "src/instance/redis/batch.rs",
    "src/instance/redis/classify/mod.rs",
    "src/instance/redis/conn.rs",
    "src/instance/redis/conn/gathering.rs",
    "src/instance/redis/connection.rs",
    "src/instance/redis/denied.rs",
    "src/instance/redis/link.rs",
    "src/instance/redis/mod.rs",
    "src/instance/redis/options.rs",
    "src/instance/redis/pushes.rs",
    "src/instance/redis/resp.rs",
    "src/instance/redis/scripts/mod.rs",
    "src/instance/redis/standing.rs",
    "src/instance/reply_to.rs",
    "src/instance/requests.rs",
    "src/lease.rs",
    "src/names.rs",
    "src/process.rs",
    "src/protocol/admission/clock_watch.rs",
    "src/protocol/admission/record.rs",
    "src/protocol/admission/state.rs",
    "src/protocol/fencing.rs",
    "src/protocol/instance_set.rs",
    "src/protocol/lease/counted_votes.rs",
    "src/protocol/lease/key_presence.rs",
    "src/protocol/lease/mod.rs",
    "src/protocol/lease/schedule.rs",
    "src/protocol/quorum.rs",
    "src/protocol/readers.rs",
    "src/protocol/round/contest.rs",
    "src/protocol/round/mod.rs",
    "src/protocol/round/reply.rs",
    "src/protocol/terms.rs",
    "src/protocol/time.rs",
    "src/protocol/value.rs",
    "src/protocol/waiters.rs",
    "src/random.rs",
    "src/resource.rs",
    "src/runtime/acquire/attempt.rs",
    "src/runtime/acquire/mod.rs",
    "src/runtime/acquire/slot.rs",
    "src/runtime/acquire/try_acquire.rs",
    "src/runtime/acquire/uncollected.rs",
    "src/runtime/acquire/waiter.rs",
    "src/runtime/background_release.rs",
    "src/runtime/ballot.rs",
    "src/runtime/counters.rs",
    "src/runtime/held_lease/end.rs",
    "src/runtime/held_lease/mod.rs",
    "src/runtime/in_flight.rs",
    "src/runtime/keep_alive/mod.rs",
    "src/runtime/keep_alive/table.rs",
    "src/runtime/keep_alive/task.rs",
    "src/runtime/order/known.rs",
    "src/runtime/order/mod.rs",
    "src/runtime/pending_releases.rs",
    "src/runtime/release.rs",
    "src/runtime/shared.rs",
    "src/runtime/tasks.rs",
    "src/runtime/wait_events.rs",
    "src/span.rs",
    "src/token.rs",
];

/// Figures above their budget, or far below it.
pub(crate) fn check(files: &[File]) -> Vec<String> {
    let is_counted =
        |file: &&File| file.is_rust_in("src/") && !file.is_rust_in("src/bin/") && !file.is_rust_in("src/testing/");
    let all: Vec<&File> = files.iter().filter(is_counted).collect();
    let way: Vec<&File> = all.iter().copied().filter(|file| WAY.contains(&file.path.as_str())).collect();
    let sum = |files: &[&File], count: fn(&File) -> usize| files.iter().map(|file| count(file)).sum::<usize>();
    let lines = |file: &File| file.text.lines().count();
    let library = [all.len(), sum(&all, lines), sum(&all, lines_of_code)];
    let pair = [way.len(), sum(&way, lines_of_code), sum(&way, types)];
    let problems = |of, budgets: [Budget; 3], counted: [usize; 3]| {
        budgets.into_iter().zip(counted).filter_map(move |((what, most, slack), count)| {
            let is_within = count <= most && most <= count + slack;
            (!is_within).then(|| format!("{of} has {count} {what}, and its budget is {most}"))
        })
    };
    problems("the library", LIBRARY, library).chain(problems("the way of a pair", PAIR, pair)).collect()
}

/// Files of the way that are not there, or that none of the others imports.
pub(crate) fn check_way(files: &[File], way: &[&str]) -> Vec<String> {
    let known = Known::of(files);
    let by_module: BTreeMap<String, &File> =
        files.iter().filter(|file| file.is_rust_in("src/")).map(|file| (module_of(file).join("::"), file)).collect();
    let on_way = |file: &&&File| way.contains(&file.path.as_str());
    let reached: BTreeSet<&str> = by_module
        .values()
        .filter(on_way)
        .flat_map(|file| paths(file).into_iter().map(|(path, _)| (module_of(file), path)))
        .flat_map(|(from, path)| leads_to(&known, &by_module, &path, &from))
        .collect();
    let problem = |path: &&&str| !reached.contains(**path) && **path != way[0];
    way.iter().filter(problem).map(|path| format!("{path}: no other file on the way imports it")).collect()
}

/// The files that a path of a module leads through, to where the item is that it names.
fn leads_to<'a>(
    known: &Known,
    by_module: &BTreeMap<String, &'a File>,
    path: &[String],
    from: &[String],
) -> Vec<&'a str> {
    let (mut found, mut path, mut from) = (Vec::new(), path.to_vec(), from.to_vec());
    while let Some(module) = known.module(&path, &from)
        && let Some(file) = by_module.get(&module)
        && !found.contains(&file.path.as_str())
    {
        found.push(&*file.path);
        from = module_of(file);
        // What it has from elsewhere has the same name there.
        let Some(name) = path.iter().rev().find(|name| !from.contains(name)).cloned() else { break };
        let exported = paths(file).into_iter().map(|(path, _)| path).find(|path| path.last() == Some(&name));
        let Some(exported) = exported else { break };
        path = exported;
    }
    found
}

fn lines_of_code(file: &File) -> usize {
    let (tokens, mut lines, mut at) = (file.tokens(), BTreeSet::new(), 0);
    while at < tokens.len() {
        let is = |ahead: usize, text: &str| tokens.get(at + ahead).is_some_and(|token| token.0 == text);
        if is(0, "#") && is(1, "[") && is(2, "doc") {
            at += 6; // a line of documentation
        } else if is(0, "#") && is(1, "!") && is(2, "[") && is(3, "doc") {
            at += 7;
        } else {
            lines.insert(tokens[at].1);
            at += 1;
        }
    }
    lines.len()
}

fn types(file: &File) -> usize {
    file.tokens().iter().filter(|(text, _)| ["struct", "enum", "trait"].contains(&text.as_str())).count()
}

pub(crate) fn check_all(files: &[File]) -> Vec<String> {
    check(files).into_iter().chain(check_way(files, WAY)).collect()
}

#[test]
fn documentation_comments_and_tests_are_no_code() {
    let text = "//! About it.\n\n// why\nuse a::b;\n/// A thing.\n#[derive(Debug)]\nstruct S {\n    a: u8, // so\n}\n
        trait T {} #[cfg(test)]\nmod tests {\n    enum E {}\n}\n";
    let file = File::new("src/a.rs", text);
    assert_eq!((lines_of_code(&file), types(&file)), (6, 2));
}

#[test]
fn a_file_of_the_way_that_no_other_imports_is_found() {
    let texts = [
        ("src/lib.rs", "mod a; mod b; mod c;"),
        ("src/a.rs", "use crate::b::B; use crate::d::D;"),
        ("src/b/mod.rs", "mod inner; pub(crate) use inner::B;"),
        ("src/b/inner.rs", "struct B;"),
        ("src/c.rs", "use crate::a::A;"),
    ];
    let files = texts.map(|(path, text)| File::new(path, text));
    let problems = |way: &[&str]| check_way(&files, way).len();
    assert_eq!(problems(&["src/a.rs", "src/b/mod.rs", "src/b/inner.rs"]), 0);
    assert_eq!(problems(&["src/a.rs", "src/b/inner.rs"]), 0);
    assert_eq!(problems(&["src/a.rs", "src/c.rs"]), 1);
    assert_eq!(problems(&["src/a.rs", "src/gone.rs"]), 1);
}
