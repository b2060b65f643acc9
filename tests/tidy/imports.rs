//! Who may import whom. The table is the architecture; a new module needs a line in it.

mod circles;
mod layers;
mod paths;
mod program;

use std::collections::BTreeSet;

use crate::source::File;
pub(crate) use circles::check_circles;
use layers::{
    ACQUIRE, ADMISSION_STATE, INSPECT, INSTANCE, KEEP_ALIVE, LEASE, LINE, ROUND, ROUNDS, SHARED, STREAM, SUCCESSION,
};
use paths::{Path, paths};

struct Rule {
    /// A file below `src/`, or all of a directory. The longest that fits counts.
    files: &'static str,
    /// `a` is the module's own items, `a::*` those of its children too, `*` everything.
    modules: &'static [&'static str],
    /// Besides std; see also `NEUTRAL`.
    crates: &'static [&'static str],
}

const fn rule(files: &'static str, modules: &'static [&'static str], crates: &'static [&'static str]) -> Rule {
    Rule { files, modules, crates }
}

/// Crates that do nothing by themselves: open to all layers but the protocol.
const NEUTRAL: &[&str] = &["thiserror", "tracing", "futures_util"];

const RULES: &[Rule] = &[
    rule("protocol/mod.rs", &["protocol::*"], &[]),
    rule("protocol/time.rs", &[], &[]),
    rule("protocol/quorum.rs", &[], &[]),
    rule("protocol/client_id.rs", &[], &[]),
    rule("protocol/waiters.rs", &["protocol::client_id", "protocol::time"], &[]),
    rule("protocol/message.rs", &["protocol::client_id", "protocol::waiters"], &[]),
    rule("protocol/value.rs", &["protocol::client_id"], &["uuid"]),
    rule("protocol/retry.rs", &[], &[]),
    rule("protocol/instance_set.rs", &["protocol::quorum"], &[]),
    rule("protocol/fencing.rs", &["protocol::quorum"], &[]),
    rule("protocol/plain.rs", &["protocol::admission::state", "protocol::fencing"], &[]),
    rule("protocol/terms.rs", &["protocol::time"], &[]),
    rule("protocol/round/cause.rs", &[], &[]),
    rule("protocol/round/reply.rs", &["protocol::fencing", "protocol::round::cause"], &[]),
    rule("protocol/round/mod.rs", ROUND, &[]),
    rule("protocol/round/failure.rs", &["protocol::instance_set", "protocol::round", "protocol::round::reply"], &[]),
    rule("protocol/lease/key_presence.rs", &["protocol::instance_set", "protocol::time"], &[]),
    rule("protocol/lease/schedule.rs", &["protocol::time"], &[]),
    rule("protocol/lease/mod.rs", LEASE, &[]),
    rule("protocol/admission/mod.rs", &[], &[]),
    rule("protocol/admission/cluster.rs", &[], &[]),
    rule("protocol/admission/record.rs", &["protocol::admission::cluster"], &[]),
    rule("protocol/admission/clock_watch.rs", &["protocol::time"], &[]),
    rule("protocol/admission/own_clock.rs", &["protocol::admission::clock_watch"], &[]),
    rule(
        "protocol/admission/decide.rs",
        &["protocol::admission::cluster", "protocol::admission::record", "protocol::round::cause"],
        &[],
    ),
    rule("protocol/admission/decide/tests.rs", &[], &[]),
    rule("protocol/admission/state.rs", ADMISSION_STATE, &[]),
    rule("instance/mod.rs", INSTANCE, NEUTRAL),
    rule("instance/status.rs", &["protocol"], &[]),
    rule("instance/key_check.rs", &["protocol"], &[]),
    rule("instance/examination.rs", &["protocol"], &[]),
    rule("instance/stored_key.rs", &["protocol"], &[]),
    rule("instance/requests.rs", &["protocol", "resource"], &[]),
    rule("instance/relay.rs", &["protocol", "instance::requests"], &["tokio"]),
    rule("instance/command_size.rs", &["instance::requests"], &[]),
    rule(
        "instance/redis/address.rs",
        &[
            "protocol",
            "instance::redis::credentials",
            "instance::redis::dialed",
            "instance::redis::lookup",
            "instance::redis::tls",
        ],
        &["redis"],
    ),
    rule("instance/redis/credentials.rs", &["protocol", "instance::redis::classify"], &["tokio"]),
    rule("instance/redis/byte_stream.rs", &[], &["tokio"]),
    rule("instance/redis/lookup.rs", &[], &["tokio"]),
    rule("instance/redis/dialed.rs", &["instance::redis::byte_stream"], &[]),
    rule("instance/redis/reply_limit.rs", &[], &[]),
    rule("instance/redis/tls/mod.rs", &["instance::redis::tls::*"], &["tokio"]),
    rule(
        "instance/redis/tls/rustls.rs",
        &["instance::redis::tls::settings"],
        &["tokio", "rustls", "rustls_native_certs", "tokio_rustls"],
    ),
    rule("instance/redis/tls/settings.rs", &[], &["tokio"]),
    rule("instance/redis/tls/native.rs", &["instance::redis::tls::settings"], &["tokio", "tokio_native_tls"]),
    rule("instance/redis/stream.rs", STREAM, &["redis", "tokio", "socket2"]),
    rule("instance/redis/classify/", &["protocol", "instance", "instance::redis::classify::*"], &["redis"]),
    rule("instance/redis/scripts/", &["protocol", "resource", "instance", "instance::redis::scripts::*"], &["redis"]),
    rule("instance/redis/driver.rs", &[], &["tokio"]),
    rule("instance/redis/timer_wakeups.rs", &[], &["tokio"]),
    rule("instance/redis/flushes.rs", &[], &["tokio"]),
    rule("instance/redis/log_limit.rs", &["protocol", "foreign"], &[]),
    rule("instance/redis/hello.rs", &["protocol", "instance::redis::classify"], &["redis"]),
    rule("instance/redis/reply_counts.rs", &["protocol", "instance"], &[]),
    rule("instance/redis/trouble.rs", &["protocol", "foreign", "instance", "instance::redis::log_limit"], &[]),
    rule(
        "instance/redis/health.rs",
        &[
            "protocol",
            "instance::redis::address",
            "instance::redis::admission::server_info",
            "instance::redis::reply_counts",
            "instance::redis::trouble",
        ],
        &[],
    ),
    rule("instance/redis/send_queue.rs", &["protocol", "instance"], &["tokio"]),
    rule(
        "instance/redis/",
        &["protocol", "resource", "clock", "foreign", "random", "instance", "instance::redis::*"],
        &["redis", "tokio"],
    ),
    rule("runtime/mod.rs", &["runtime::shared"], &[]),
    rule("runtime/client_task.rs", &[], &["tokio"]),
    rule("runtime/counters.rs", &["foreign"], &["metrics"]),
    rule("foreign.rs", &[], &[]),
    rule("runtime/lasting_task.rs", &["foreign"], &["tokio"]),
    rule("runtime/wait_events.rs", &["protocol", "resource", "foreign"], &[]),
    rule("runtime/background_release.rs", &["protocol", "instance", "clock", "runtime::lasting_task"], &["tokio"]),
    rule(
        "runtime/held_lease/",
        &["protocol", "instance", "clock", "runtime::counters", "foreign", "runtime::held_lease::*"],
        &["tokio"],
    ),
    rule("runtime/keep_alive/", KEEP_ALIVE, &["tokio"]),
    rule("runtime/succession/", SUCCESSION, &["tokio"]),
    rule("runtime/shared.rs", SHARED, &["tokio"]),
    rule(
        "runtime/in_flight.rs",
        &["protocol", "instance", "runtime::background_release", "runtime::shared"],
        &["tokio"],
    ),
    rule("runtime/table_sizes.rs", &["runtime::shared", "runtime::succession"], &[]),
    rule("runtime/extend.rs", ROUNDS, &["tokio"]),
    rule(
        "runtime/keep.rs",
        &[
            "protocol",
            "instance",
            "runtime::client_task",
            "runtime::extend",
            "runtime::held_lease",
            "runtime::in_flight",
            "runtime::shared",
        ],
        &["tokio"],
    ),
    rule("runtime/examine.rs", INSPECT, &["tokio"]),
    rule("runtime/inspect.rs", INSPECT, &["tokio"]),
    rule("runtime/release.rs", ROUNDS, &["tokio"]),
    rule("runtime/acquire/limiter.rs", &["resource"], &["tokio"]),
    rule("runtime/acquire/line/", LINE, &["tokio"]),
    rule("runtime/acquire/tracker.rs", &[], &["tokio"]),
    rule("runtime/acquire/reentry_table.rs", &["resource", "runtime::held_lease"], &["tokio"]),
    rule("runtime/acquire/", ACQUIRE, &["tokio"]),
    rule("clock.rs", &["protocol::*"], &["tokio", "rustix"]),
    rule("random.rs", &[], &["getrandom", "uuid"]),
    rule("token.rs", &["protocol::*", "random"], &[]),
    rule("names.rs", &[], &["uuid"]),
    rule("resource.rs", &["protocol::*", "names"], &[]),
    rule("error/", &["*"], &["serde_core"]),
    rule("client.rs", &["*"], &["tokio"]),
    rule("config/", &["*"], &["tokio"]),
    rule("holder.rs", &["error", "random"], &[]),
    rule("lease.rs", &["*"], &["tokio_util"]),
    rule("guard.rs", &["*"], &["tokio", "tokio_util"]),
    rule("lock.rs", &["*"], &["tokio"]),
    rule("listing.rs", &["*"], &[]),
    rule("inspection.rs", &["protocol", "resource", "runtime", "runtime::inspect"], &[]),
    rule("blocking/", &["*"], &["tokio", "pollster"]),
    rule("span.rs", &[], &[]),
    rule("stats.rs", &["runtime"], &[]),
    rule("recording.rs", &["instance", "stats", "runtime", "runtime::counters"], &["metrics"]),
    rule("guide/mod.rs", &[], &[]),
    rule("testing/mod.rs", &["*"], &[]),
    rule("testing/instance/", &["*"], &["tokio"]),
    rule("testing/mirror/", &["protocol", "resource", "instance", "testing::mirror::*"], &[]),
    rule("testing/network/", &["protocol", "clock", "testing::network::*"], &["tokio"]),
    rule("testing/requests.rs", &["instance"], &[]),
    rule("testing/simulation/", &["*"], &["tokio"]),
    rule("testing/conformance.rs", &["*"], &["redis", "uuid"]),
    rule("testing/conformance/", &["*"], &[]),
    rule("lib.rs", &["*"], &[]),
];

/// What may stand at the head of a path.
pub(crate) struct Known {
    modules: BTreeSet<String>,
    crates: BTreeSet<String>,
}

impl Known {
    /// The modules below `src/`, and the crates in the manifest.
    pub(crate) fn of(files: &[File]) -> Self {
        let modules = files.iter().filter(|file| file.is_rust_in("src/")).map(|file| module_of(&file.path).join("::"));
        let mut crates: BTreeSet<_> = ["redquorum".to_owned()].into();
        let mut in_dependencies = false;
        let manifest = files.iter().filter(|file| file.path == "Cargo.toml");
        for line in manifest.flat_map(|file| file.text.lines()) {
            if line.starts_with('[') {
                in_dependencies = line.ends_with("dependencies]");
            } else if let (true, Some((name, _))) = (in_dependencies, line.split_once('=')) {
                crates.insert(name.trim().replace('-', "_"));
            }
        }
        Self { modules: modules.collect(), crates }
    }

    /// The deepest module on the way of an absolute path; what follows are its items.
    fn module(&self, absolute: &[String]) -> Option<String> {
        let mut ends = (0..=absolute.len()).rev().map(|end| absolute.get(..end).unwrap_or_default().join("::"));
        ends.find(|module| self.modules.contains(module))
    }
}

/// `src/a/b.rs` is `a::b`, as is `src/a/b/mod.rs`.
fn module_of(path: &str) -> Vec<String> {
    let path = path.trim_start_matches("src/").trim_end_matches(".rs");
    let mut parts: Vec<_> = path.split('/').map(str::to_owned).collect();
    if parts.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        parts.pop();
    }
    parts
}

pub(crate) fn check(file: &File, known: &Known) -> Vec<String> {
    let name = file.path.trim_start_matches("src/");
    let fits = |rule: &&Rule| name == rule.files || (rule.files.ends_with('/') && name.starts_with(rule.files));
    let Some(rule) = RULES.iter().chain(program::RULES).filter(fits).max_by_key(|rule| rule.files.len()) else {
        return vec![file.problem(1, "has no line in the table of tests/tidy/imports.rs")];
    };
    let tokens = match file.shipped_tokens() {
        Ok(tokens) => tokens,
        Err(problems) => return problems,
    };
    let found = paths(&tokens, &module_of(&file.path));
    found.iter().filter_map(|path| refused(path, rule, known).map(|what| file.problem(path.line, &what))).collect()
}

fn refused(path: &Path, rule: &Rule, known: &Known) -> Option<String> {
    let is_neutral = |name: &str| NEUTRAL.contains(&name) && !rule.files.starts_with("protocol/");
    if let Some(absolute) = path.absolute(&known.modules) {
        let module = known.module(&absolute).unwrap_or_default();
        let allowed = rule.modules.iter().any(|allowed| match allowed.strip_suffix("*") {
            Some("") => true,
            Some(parent) => format!("{module}::").starts_with(parent),
            None => module == *allowed,
        });
        let named = if module.is_empty() { "the crate's root" } else { &module };
        return (!allowed).then(|| format!("{} may not import from {named}", rule.files));
    }
    let krate = path.segments.first()?;
    let allowed = !known.crates.contains(krate) || is_neutral(krate) || rule.crates.contains(&krate.as_str());
    (!allowed).then(|| format!("{} may not use the crate {krate}", rule.files))
}

/// Time, chance and the outside come into the protocol as arguments.
pub(crate) fn check_pure(file: &File) -> Vec<String> {
    const IMPURE: &[&str] = &["fs", "net", "io", "thread", "process", "env", "os", "task", "future"];
    let tokens = match file.shipped_tokens() {
        Ok(tokens) => tokens,
        Err(problems) => return problems,
    };
    let mut problems = Vec::new();
    for path in paths(&tokens, &module_of(&file.path)) {
        let segments: Vec<_> = path.segments.iter().map(String::as_str).collect();
        match segments[..] {
            ["async" | "await"] => problems.push(file.problem(path.line, "the protocol is not asynchronous")),
            ["std", "time", clock @ ("Instant" | "SystemTime" | "*"), ..] => {
                problems
                    .push(file.problem(path.line, &format!("the protocol takes time as data, not as std's {clock}")));
            }
            ["std", module, ..] if IMPURE.contains(&module) => {
                problems.push(file.problem(path.line, &format!("the protocol may not use std::{module}")));
            }
            _ => {}
        }
    }
    problems
}

/// The simulator stands in for everything but the protocol, so it must not lean on the rest.
pub(crate) fn check_simulator(file: &File) -> Vec<String> {
    let tokens = match file.tokens() {
        Ok(tokens) => tokens,
        Err(problems) => return problems,
    };
    let mut problems = Vec::new();
    for path in paths(&tokens, &[]) {
        let segments: Vec<_> = path.segments.iter().map(String::as_str).collect();
        match segments[..] {
            ["redquorum", "protocol", ..] => {}
            ["redquorum", item, ..] => problems.push(file.problem(path.line, &format!("uses redquorum::{item}"))),
            [krate @ ("redis" | "tokio" | "redquorum_testkit"), _, ..] => {
                problems.push(file.problem(path.line, &format!("uses the crate {krate}")));
            }
            _ => {}
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(path: &str, text: &str) -> usize {
        let modules = [
            "",
            "client",
            "instance",
            "instance::redis",
            "protocol",
            "protocol::quorum",
            "protocol::round",
            "runtime",
            "clock",
        ];
        let crates = ["redis", "tokio", "rand", "tracing"];
        let known = Known { modules: modules.map(str::to_owned).into(), crates: crates.map(str::to_owned).into() };
        check(&File::new(path, text), &known).len()
    }

    #[test]
    fn what_a_layer_may_not_import_is_found_however_it_is_written() {
        for text in [
            "use tokio::time::sleep;",
            "use tokio as other;",
            "use crate::{protocol::quorum::Quorum, client::Redlock};",
            "use super::super::clock::Clock;",
            "fn f() { let x = vec![crate::runtime::now()]; }",
            "fn f() { ::redis::cmd(\"GET\"); }",
            "#[tokio::main] fn f() {}",
            "use crate::Redlock;",
            "mod inner { use super::super::super::client::Redlock; }",
            "fn f() { tracing::debug!(\"x\"); }",
        ] {
            assert_eq!(problems("src/protocol/round/mod.rs", text), 1, "{text}");
        }
        assert_eq!(problems("src/runtime/extend.rs", "use crate::instance::redis::RedisInstance;"), 1);
        assert_eq!(problems("src/runtime/extend.rs", "use redis::Cmd;"), 1);
        assert_eq!(problems("src/instance/mod.rs", "pub use self::redis::RedisInstance;"), 1);
        assert_eq!(problems("src/instance/redis/mod.rs", "use crate::runtime::Shared;"), 1);
        assert_eq!(problems("src/shiny.rs", ""), 1, "a module without a rule");
    }

    #[test]
    fn what_a_layer_may_import_is_not_reported() {
        let text = "//! crate::client\nuse std::fmt; use self::{Round, quorum::Quorum}; /* tokio::x */
            fn f() { \"redis::x\"; self::g(); round::h(); } #[cfg(test)] mod tests { use tokio::test; }";
        assert_eq!(problems("src/protocol/mod.rs", text), 0);
        let text = "use crate::instance::Instance; use tokio::{sync::watch, time::*}; use tracing::debug;";
        assert_eq!(problems("src/runtime/extend.rs", text), 0);
        assert_eq!(problems("src/client.rs", "use crate::instance::redis::RedisInstance;"), 0);
    }

    #[test]
    fn crates_come_from_every_dependency_section() {
        let manifest = "[package]\nname = \"a\"\n[dependencies]\nfutures-util = \"1\"\n[target.'cfg(x)'.dependencies]\nb = { c = \"1\" }\n[features]\nd = []\n";
        let known = Known::of(&[File::new("Cargo.toml", manifest), File::new("src/a/mod.rs", "")]);
        assert_eq!(known.crates, ["b", "futures_util", "redquorum"].map(str::to_owned).into());
        assert_eq!(known.modules, ["a".to_owned()].into());
    }

    #[test]
    fn a_protocol_that_is_not_pure_is_found() {
        let impure = |text| check_pure(&File::new("src/protocol/a.rs", text)).len();
        assert_eq!(impure("use std::time::{Duration, Instant};"), 1);
        assert_eq!(impure("async fn f() { std::thread::yield_now() }"), 2);
        assert_eq!(impure("use std::time::Duration; use super::Instant; use std::fmt;"), 0);
    }

    #[test]
    fn a_simulator_that_leans_on_more_is_found() {
        let leans = |text| check_simulator(&File::new("tests/sim/main.rs", text)).len();
        assert_eq!(leans("use redquorum::{Redlock, protocol::Round};"), 1);
        assert_eq!(leans("fn f() { tokio::spawn(g()); }"), 1);
        assert_eq!(leans("use redquorum::protocol::{Round, Quorum}; use crate::world::World;"), 0);
    }
}
