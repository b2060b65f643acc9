//! The program on the command line, which has the library as a crate.

use super::{Rule, rule};

/// What shows something to operators.
const VIEW: &[&str] =
    &["bin::redquorum::cli", "bin::redquorum::exit", "bin::redquorum::output", "bin::redquorum::settings"];

const LIST: &[&str] = &[
    "bin::redquorum::cli",
    "bin::redquorum::exit",
    "bin::redquorum::inspect",
    "bin::redquorum::output",
    "bin::redquorum::settings",
];

const BENCH: &[&str] = &[
    "bin::redquorum::bench",
    "bin::redquorum::bench::advice",
    "bin::redquorum::bench::measure",
    "bin::redquorum::bench::samples",
    "bin::redquorum::cli",
    "bin::redquorum::clock",
    "bin::redquorum::exit",
    "bin::redquorum::output",
    "bin::redquorum::settings",
];

const CHECK: &[&str] = &[
    "bin::redquorum::check::rights",
    "bin::redquorum::cli",
    "bin::redquorum::clock",
    "bin::redquorum::exit",
    "bin::redquorum::output",
    "bin::redquorum::settings",
    "bin::redquorum::status::*",
];

const STATUS: &[&str] = &[
    "bin::redquorum::cli",
    "bin::redquorum::exit",
    "bin::redquorum::output",
    "bin::redquorum::settings",
    "bin::redquorum::status::*",
];

pub(super) const RULES: &[Rule] = &[
    rule(
        "bin/redquorum/main.rs",
        &[
            "bin::redquorum::bench",
            "bin::redquorum::check",
            "bin::redquorum::cli",
            "bin::redquorum::documents",
            "bin::redquorum::exit",
            "bin::redquorum::inspect",
            "bin::redquorum::list",
            "bin::redquorum::release",
            "bin::redquorum::roles",
            "bin::redquorum::run",
            "bin::redquorum::settings",
            "bin::redquorum::status",
        ],
        &["clap", "tokio"],
    ),
    rule("bin/redquorum/bench/mod.rs", BENCH, &["redquorum", "serde_json"]),
    rule("bin/redquorum/bench/advice.rs", BENCH, &[]),
    rule("bin/redquorum/bench/measure.rs", BENCH, &["redquorum", "tokio"]),
    rule("bin/redquorum/bench/samples.rs", &[], &[]),
    rule("bin/redquorum/check/mod.rs", CHECK, &["redquorum", "serde_json"]),
    rule("bin/redquorum/check/rights.rs", &["bin::redquorum::check", "bin::redquorum::settings"], &["redquorum"]),
    rule("bin/redquorum/cli.rs", &["bin::redquorum::settings::duration"], &["clap", "clap_complete"]),
    rule("bin/redquorum/clock.rs", &[], &["nix"]),
    rule(
        "bin/redquorum/documents.rs",
        &["bin::redquorum::cli", "bin::redquorum::exit", "bin::redquorum::output"],
        &["clap", "clap_complete", "clap_mangen"],
    ),
    rule("bin/redquorum/exit.rs", &["bin::redquorum::output", "bin::redquorum::roles"], &["clap", "redquorum"]),
    rule("bin/redquorum/inspect.rs", VIEW, &["redquorum", "serde_json"]),
    rule("bin/redquorum/list.rs", LIST, &["redquorum", "serde_json"]),
    rule("bin/redquorum/release.rs", LIST, &["redquorum", "serde_json"]),
    rule("bin/redquorum/roles.rs", &[], &["nix"]),
    rule("bin/redquorum/status/mod.rs", STATUS, &["redquorum", "tokio"]),
    rule("bin/redquorum/status/observed.rs", STATUS, &["redquorum"]),
    rule("bin/redquorum/status/problems.rs", &["bin::redquorum::output"], &["redquorum"]),
    rule("bin/redquorum/status/view.rs", STATUS, &["redquorum", "serde_json"]),
    rule(
        "bin/redquorum/output/mod.rs",
        &["bin::redquorum::exit", "bin::redquorum::output::table", "bin::redquorum::output::words"],
        &["nix", "serde_json"],
    ),
    rule("bin/redquorum/output/table.rs", &[], &[]),
    rule("bin/redquorum/output/words.rs", &[], &[]),
    rule(
        "bin/redquorum/settings/mod.rs",
        &["bin::redquorum::cli", "bin::redquorum::exit", "bin::redquorum::settings::*"],
        &["redquorum", "tokio"],
    ),
    rule("bin/redquorum/settings/address.rs", &[], &[]),
    rule("bin/redquorum/settings/duration.rs", &[], &[]),
    rule(
        "bin/redquorum/settings/tls.rs",
        &["bin::redquorum::cli", "bin::redquorum::exit", "bin::redquorum::settings::file"],
        &["redquorum"],
    ),
    rule("bin/redquorum/settings/file.rs", &["bin::redquorum::settings::duration"], &["toml"]),
    rule(
        "bin/redquorum/run/mod.rs",
        &[
            "bin::redquorum::cli",
            "bin::redquorum::clock",
            "bin::redquorum::exit",
            "bin::redquorum::output",
            "bin::redquorum::run::*",
            "bin::redquorum::settings",
        ],
        &["nix", "redquorum", "tokio"],
    ),
    rule(
        "bin/redquorum/run/child.rs",
        &[
            "bin::redquorum::cli",
            "bin::redquorum::exit",
            "bin::redquorum::roles",
            "bin::redquorum::run::group",
            "bin::redquorum::run::terminal",
            "bin::redquorum::settings",
        ],
        &["nix"],
    ),
    rule("bin/redquorum/run/group.rs", &[], &["nix", "rustix"]),
    rule("bin/redquorum/run/limits.rs", &["bin::redquorum::exit"], &[]),
    rule("bin/redquorum/run/signals.rs", &["bin::redquorum::run::terminal"], &["nix", "tokio"]),
    rule(
        "bin/redquorum/run/supervise.rs",
        &[
            "bin::redquorum::cli",
            "bin::redquorum::clock",
            "bin::redquorum::exit",
            "bin::redquorum::output",
            "bin::redquorum::run::*",
        ],
        &["nix", "redquorum", "tokio"],
    ),
    rule("bin/redquorum/run/terminal.rs", &["bin::redquorum::run::group"], &["nix"]),
    rule(
        "bin/redquorum/run/waiting.rs",
        &["bin::redquorum::inspect", "bin::redquorum::output"],
        &["redquorum", "tokio"],
    ),
    rule(
        "bin/redquorum/run/watchdog.rs",
        &[
            "bin::redquorum::clock",
            "bin::redquorum::exit",
            "bin::redquorum::roles",
            "bin::redquorum::run::group",
            "bin::redquorum::settings",
        ],
        &[],
    ),
];
