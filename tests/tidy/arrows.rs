//! Which module may import which. The table is the architecture: a room is a module with all that is below it.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{File, Token};

/// Its name, the other rooms from which it may import, and the dependencies that it may use besides `NEUTRAL`.
type Room = (&'static str, &'static [&'static str], &'static [&'static str]);

/// Of two rooms that a module is in, the one with the longer name counts.
const ROOMS: &[Room] = &[
    ("protocol", &["serialized"], &["uuid", "serde"]),
    ("log_limit", &["protocol"], &[]),
    ("random", &[], &["getrandom", "uuid"]),
    ("process", &[], &[]),
    ("names", &[], &["uuid"]),
    ("serialized", &[], &["serde"]),
    ("clock", &["protocol"], &["tokio", "nix"]),
    ("token", &["protocol", "random"], &[]),
    ("resource", &["protocol", "names"], &[]),
    ("instance", &["protocol", "resource", "serialized"], &["tokio", "serde"]),
    ("instance::redis", &["protocol", "resource", "clock", "log_limit", "random", "process", "instance"], SERVERS),
    ("runtime", BELOW_RUNTIME, &["tokio", "metrics"]),
    ("testing", &["*"], &["redis", "tokio", "uuid"]),
    ("bin", &[], &["*"]),
    // The interface, and all that is in no other room.
    ("", &["*"], &["tokio", "tokio_util", "percent_encoding", "pollster", "metrics", "serde", "serde_core", "toml"]),
];
const BELOW_RUNTIME: &[&str] =
    &["protocol", "resource", "clock", "log_limit", "random", "process", "token", "instance", "instance::redis"];
const SERVERS: &[&str] = &["redis", "itoa", "tokio", "socket2", "rustls", "rustls_native_certs", "tokio_rustls"];
/// Crates that do nothing by themselves: open to all rooms but the protocol.
const NEUTRAL: &[&str] = &["thiserror", "tracing", "futures_util"];
/// Time, chance and the outside come into the protocol as arguments.
const IMPURE: &[&str] = &["fs", "net", "io", "thread", "process", "env", "os", "task", "future"];
/// Where modules do not import each other in a circle, so that each can be read before those that use it.
const IN_ORDER: &[&str] = &["src/protocol/", "src/instance/", "src/runtime/"];

fn room_of(module: &str) -> Room {
    let is_in = |room: &&Room| room.0.is_empty() || format!("{module}::").starts_with(&format!("{}::", room.0));
    ROOMS.iter().filter(is_in).max_by_key(|room| room.0.len()).copied().unwrap_or_default()
}

/// What may stand at the head of a path.
pub(crate) struct Known {
    modules: BTreeSet<String>,
    crates: BTreeSet<String>,
}

impl Known {
    /// The modules below `src/`, and the crates in the manifest.
    pub(crate) fn of(files: &[File]) -> Self {
        let modules = files.iter().filter(|file| file.is_rust_in("src/")).map(|file| module_of(file).join("::"));
        let manifest = files.iter().filter(|file| file.path == "Cargo.toml").flat_map(|file| file.text.split("\n["));
        let dependencies = manifest.filter_map(|section| Some(section.split_once("dependencies]\n")?.1));
        let lines = dependencies.flat_map(str::lines).filter_map(|line| line.split_once(" = "));
        Self { modules: modules.collect(), crates: lines.map(|(name, _)| name.replace('-', "_")).collect() }
    }

    /// The module to which a path leads, if that is one of the crate.
    pub(crate) fn module(&self, path: &[String], from: &[String]) -> Option<String> {
        let mut base = from.to_vec();
        for (at, segment) in path.iter().enumerate() {
            match segment.as_str() {
                // A program is a crate of its own.
                "crate" => base.truncate(if base.first().is_some_and(|first| first == "bin") { 2 } else { 0 }),
                "self" => {}
                "super" => drop(base.pop()),
                name => base.push(name.to_owned()),
            }
            if at == 0 && !base.is_empty() && !self.modules.contains(&base.join("::")) {
                return None;
            }
        }
        // What follows on the deepest module are its items.
        let mut ends = (1..=base.len()).rev().map(|end| base[..end].join("::"));
        Some(ends.find(|module| self.modules.contains(module)).unwrap_or_default())
    }
}

pub(crate) fn module_of(file: &File) -> Vec<String> {
    let path = file.path.trim_start_matches("src/").trim_end_matches(".rs");
    path.split('/').filter(|part| !["mod", "lib", "main"].contains(part)).map(str::to_owned).collect()
}

/// The paths in a file, those of `use a::{b, c::d}` spelt out, each with its line.
pub(crate) fn paths(file: &File) -> Vec<(Vec<String>, usize)> {
    let mut found = Vec::new();
    walk(&file.tokens(), &mut 0, &[], &mut found);
    found
}

fn walk(tokens: &[Token], at: &mut usize, prefix: &[String], found: &mut Vec<(Vec<String>, usize)>) {
    let is = |at: usize, text: &str| tokens.get(at).is_some_and(|token| token.0 == text);
    let is_name = |text: &str| text.starts_with(|c: char| c.is_alphabetic() || c == '_');
    while let Some((name, line)) = tokens.get(*at) {
        *at += 1;
        if name == "}" && !prefix.is_empty() {
            return;
        }
        // A name alone is a path in `use a`, and a variable or a field elsewhere.
        let is_path =
            !prefix.is_empty() || *at > 1 && is(*at - 2, "use") || ["async", "await"].contains(&name.as_str());
        let mut path = [prefix, std::slice::from_ref(name)].concat();
        while is_name(name) && is(*at, ":") && is(*at + 1, ":") && !is(*at + 2, "<") {
            *at += 3;
            if is(*at - 1, "{") {
                walk(tokens, at, &path, found);
                path.clear();
            } else {
                path.push(tokens[*at - 1].0.clone());
            }
        }
        if is_name(name) && (path.len() > 1 || is_path && !path.is_empty()) {
            found.push((path, *line));
        }
    }
}

pub(crate) fn check(file: &File, known: &Known) -> Vec<String> {
    let module = module_of(file);
    let (room, imports, crates) = room_of(&module.join("::"));
    let refused = |path: &[String]| {
        if let Some(to) = known.module(path, &module) {
            let to = room_of(&to).0;
            let is_allowed = to == room || imports.contains(&"*") || imports.contains(&to);
            return (!is_allowed).then(|| format!("`{room}` may not import from `{to}`"));
        }
        let is_allowed = match path.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["async" | "await"] | ["std", "time", "Instant" | "SystemTime" | "*", ..] => room != "protocol",
            ["std", module, ..] => room != "protocol" || !IMPURE.contains(&module),
            [name, ..] if NEUTRAL.contains(&name) => room != "protocol",
            [name, ..] => !known.crates.contains(name) || crates.contains(&"*") || crates.contains(&name),
            [] => true,
        };
        (!is_allowed).then(|| format!("`{room}` may not use `{}`", path.join("::")))
    };
    paths(file).into_iter().filter_map(|(path, line)| Some(file.problem(line, &refused(&path)?))).collect()
}

/// A way into a circle below the interface and once around, if there is one.
pub(crate) fn check_circles(files: &[File], known: &Known) -> Option<String> {
    let mut imports = BTreeMap::<String, BTreeSet<String>>::new();
    for file in files.iter().filter(|file| IN_ORDER.iter().any(|dir| file.is_rust_in(dir))) {
        let from = module_of(file);
        let to = paths(file).into_iter().filter_map(|(path, _)| known.module(&path, &from));
        imports.insert(from.join("::"), to.filter(|to| *to != from.join("::")).collect());
    }
    for _ in 0..imports.len() {
        // What imports nothing that is left is in no circle.
        let left: BTreeSet<_> = imports.keys().cloned().collect();
        imports.retain(|_, to| !to.is_disjoint(&left));
    }
    let (mut way, mut from) = (Vec::new(), imports.keys().next()?);
    while !way.contains(from) {
        way.push(from.clone());
        from = imports[from].iter().find(|to| imports.contains_key(*to))?;
    }
    Some(format!("in a circle: {} imports {from}", way.join(" imports ")))
}

#[test]
fn an_import_that_a_room_may_not_have_is_found_however_it_is_written() {
    let modules = ["client", "clock", "instance", "instance::redis", "protocol", "protocol::round", "runtime"];
    let crates = ["redis", "tokio", "tracing"].map(str::to_owned).into();
    let known = Known { modules: modules.map(str::to_owned).into(), crates };
    let problems = |path, text: &str| check(&File::new(path, text), &known).len();
    let text = "use tokio::time::sleep; use tokio as other; use crate::{protocol::quorum::Quorum, client::Redlock};
        use super::super::clock::Clock; use crate::Redlock; use std::time::{Duration, Instant}; #[tokio::main]
        async fn f() { let x = vec![crate::runtime::now()]; ::redis::cmd::<u8>(\"GET\"); tracing::debug!(\"x\") }";
    assert_eq!(problems("src/protocol/round/mod.rs", text), 11);
    assert_eq!(problems("src/runtime/a.rs", "use crate::instance::{Claim, redis::B}; use redis::Cmd;"), 1);
    assert_eq!(problems("src/instance/mod.rs", "pub use self::redis::RedisInstance;"), 1);
    assert_eq!(problems("src/client.rs", "use redis::Cmd; use crate::instance::redis::RedisInstance;"), 1);
    let text = "//! crate::client\nuse std::fmt; use self::{Round, quorum::Quorum}; /* tokio::x */
        fn f() { \"redis::x\"; self::g(); round::h(); } #[cfg(test)] mod tests { use tokio::test; }";
    assert_eq!(problems("src/protocol/mod.rs", text), 0);
}

#[test]
fn a_circle_is_found_and_a_way_that_ends_is_none() {
    let circles = |c| {
        let texts = [("mod", "pub use b::B;"), ("b", "use crate::runtime::c::C; fn f() { super::c::f() }"), ("c", c)];
        let files = texts.map(|(name, text)| File::new(&format!("src/runtime/{name}.rs"), text));
        check_circles(&files, &Known::of(&files))
    };
    assert_eq!(circles("use std::fmt; #[cfg(test)] mod tests { use super::super::b::B; }"), None);
    assert!(circles("use super::b::B;").unwrap().ends_with("runtime::b imports runtime::c imports runtime::b"));
}
