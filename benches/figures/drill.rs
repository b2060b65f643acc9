//! The tables of `docs/drills.md`.

use crate::measured::{Measured, shown};
use crate::page::table;

const GUARDS_ON: &str = "guards on";
/// Those whose violations have a column of their own; waiters have others.
const CONTROLS: [&str; 2] = ["guards off", "rslock"];

/// Where a scenario was not run, or nothing was measured.
const NONE: &str = "–";

const SERVERS: [(&str, &str); 2] = [("redis-server", "Redis"), ("valkey-server", "Valkey")];

const HEAD: [&str; 8] = [
    "grants",
    "during, %",
    "after, %",
    "leases lost",
    "writes refused",
    "longest gap, s",
    "next grant, s",
    "violations",
];

/// One table for each server.
pub(crate) fn tables(measured: &Measured) -> String {
    let of_each = SERVERS.map(|(program, called)| {
        let with_guards = format!("{program}, {GUARDS_ON}");
        let scenarios =
            measured.subjects().into_iter().filter(|(_, of)| *of == with_guards).map(|(scenario, _)| scenario);
        let rows = scenarios.map(|scenario| {
            let control = |peer| whole(measured, scenario, &format!("{program}, {peer}"), "violations");
            let figures = figures(measured, scenario, program).into_iter().chain(CONTROLS.map(control));
            [scenario.to_owned()].into_iter().chain(figures).collect()
        });
        let head = [&["scenario"], &HEAD[..], &CONTROLS[..]].concat();
        format!("{called}:\n\n{}", table(&head, &rows.collect::<Vec<_>>()))
    });
    of_each.join("\n")
}

/// Of random faults for a long time, one row for each server.
pub(crate) fn mixture(measured: &Measured) -> String {
    let rows = SERVERS.map(|(program, called)| {
        let figures = figures(measured, "mixture", program);
        [called.to_owned()].into_iter().chain(figures).collect()
    });
    table(&[&["server"], &HEAD[..]].concat(), &rows)
}

fn figures(measured: &Measured, scenario: &str, program: &str) -> Vec<String> {
    let subject = format!("{program}, {GUARDS_ON}");
    let seconds = |metric| {
        let value = measured.median(scenario, &subject, metric);
        value.map_or(NONE.to_owned(), |value| format!("{value:.1}"))
    };
    let counts = ["during", "after", "leases lost", "writes refused"];
    let grants = shown(measured.median(scenario, &subject, "grants"));
    let counts = counts.map(|metric| whole(measured, scenario, &subject, metric));
    let times = ["longest gap", "next grant"].map(seconds);
    let violations = whole(measured, scenario, &subject, "violations");
    [grants].into_iter().chain(counts).chain(times).chain([violations]).collect()
}

fn whole(measured: &Measured, scenario: &str, subject: &str, metric: &str) -> String {
    measured.median(scenario, subject, metric).map_or(NONE.to_owned(), |value| format!("{value:.0}"))
}
