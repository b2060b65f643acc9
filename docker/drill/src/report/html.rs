//! The page: a table of results, then a timeline of each. It needs nothing but itself.

use super::timeline::{CLIENTS, STATES, draw, escape};
use super::{Report, ScenarioOutcome, ScenarioReport, usage, waiting};
use crate::check::Phase;

const STYLE: &str = "body{font:14px/1.45 sans-serif;margin:2em auto;max-width:1080px;color:#222}\
    table{border-collapse:collapse;width:100%;font-size:13px}td,th{padding:3px 7px;border-bottom:1px solid #ddd;\
    text-align:right;white-space:nowrap}th{background:#f4f4f4}td:first-child,th:first-child,.l{text-align:left}.scroll{overflow-x:auto;\
    border:1px solid #ddd}.good{color:#256029}.violated,.blind{background:#d00000;color:#fff;font-weight:bold}\
    .caught{color:#8a4b00}h3{margin:1.6em 0 .2em}p{margin:.3em 0}code{background:#f4f4f4;padding:1px 4px}\
    .key span{display:inline-block;padding:0 7px;margin-right:5px;border-radius:2px}.found{font-size:12px;color:#a00}";

pub(crate) fn page(report: &Report) -> String {
    let rows: String = report.results.iter().enumerate().map(|(index, result)| row(index, result)).collect();
    let sections: String = report.results.iter().enumerate().map(|(index, result)| section(index, result)).collect();
    let had_controls = report.results.iter().any(|result| result.verdict == ScenarioOutcome::Caught);
    let (class, said) = match report.is_good() {
        true if had_controls => ("good", "Nothing was violated that must hold, and every control was caught."),
        true => ("good", "Nothing was violated that must hold. No control was run."),
        false if report.results.iter().any(|result| result.verdict == ScenarioOutcome::Violated) => {
            ("violated", "A guarantee was VIOLATED.")
        }
        false => ("blind", "A control found no violation: the checker or the scenario is broken."),
    };
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Failure drills of redquorum</title>\
         <style>{STYLE}</style><h1>Failure drills</h1><p class=\"{class}\">{said}</p>\
         <p>{}. Seed {}. To repeat: <code>{}</code></p>{}\
         <table><tr><th>scenario<th class=\"l\">server<th class=\"l\">library<th class=\"l\">verdict<th>violations\
         <th>grants<th>before<th>during<th>after<th>longest gap<th>recovery<th>lost<th>writes refused\
         <th class=\"l\">as intended</tr>{rows}</table>{HOW}{sections}</html>",
        escape(&versions(report)),
        report.seed,
        escape(&report.command),
        key()
    )
}

const HOW: &str = "<p>Before, during, after: the share of tries that the instances could decide (granted, of granted \
    and failed; refusals because somebody else holds the lock are not counted). Longest gap: without a grant or an \
    extend while the fault was there. Recovery: from its end to the next grant. An instance is drawn as cut if any \
    client is cut from it.</p>";

fn key() -> String {
    let sample = |(name, color): &(&str, &str)| {
        let ink = if ["down", "quarantine", "c1", "c2", "c3", "c4"].contains(name) { "#fff" } else { "#222" };
        format!("<span style=\"background:{color};color:{ink}\">{name}</span>")
    };
    let states: String = STATES.iter().map(sample).collect();
    let clients: String = CLIENTS.iter().map(sample).collect();
    format!(
        "<p class=\"key\">instances: {states} locks held by: {clients} \u{25c6} lease lost \u{2715} late write refused \
         <b style=\"color:#d00000\">\u{25bc}</b> violation</p>"
    )
}

/// The engine, the kernel and the servers.
fn versions(report: &Report) -> String {
    let mut servers: Vec<&str> = report.results.iter().map(|result| result.server_version.as_str()).collect();
    servers.sort_unstable();
    servers.dedup();
    format!("redquorum {}, {}, {}", report.version, servers.join(", "), report.versions)
}

fn row(index: usize, result: &ScenarioReport) -> String {
    let availability = &result.availability;
    format!(
        "<tr><td><a href=\"#{index}\">{}</a><td class=\"l\">{}<td class=\"l\">{}<td class=\"l {class}\">{}<td>{}<td>{}\
         <td>{}<td>{}<td>{}<td>{:.1} s<td>{}<td>{}<td>{}<td class=\"l\">{}</tr>",
        result.scenario,
        result.server,
        result.peer,
        result.verdict.name(),
        result.violations.len(),
        result.grants,
        share(&availability.before),
        share(&availability.during),
        share(&availability.after),
        availability.during.longest_gap_ms / 1000.0,
        availability.recovery_ms.map_or_else(|| "-".to_owned(), |ms| format!("{:.1} s", ms / 1000.0)),
        result.losses,
        result.refused_writes,
        result.shown.map_or("", |shown| if shown { "yes" } else { "no" }),
        class = result.verdict.name().to_lowercase()
    )
}

fn share(phase: &Phase) -> String {
    phase.share.map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", share * 100.0))
}

fn section(index: usize, result: &ScenarioReport) -> String {
    let shown = result.violations.iter().take(5);
    let mut found: String = shown
        .map(|violation| format!("<p class=\"found\">{}: {}</p>", violation.rule, escape(&violation.text)))
        .collect();
    if result.violations.len() > 5 {
        found.push_str(&format!("<p class=\"found\">and {} more</p>", result.violations.len() - 5));
    }
    let cause = result
        .availability
        .cause
        .as_deref()
        .map_or_else(String::new, |cause| format!("<p>A failed try was told: <code>{}</code></p>", escape(cause)));
    let prepared = match result.prepared.join("; ") {
        none if none.is_empty() => none,
        some => format!("<p>Before: {}.</p>", escape(&some)),
    };
    format!(
        "<h3 id=\"{index}\">{} <small>{}, {}: {}</small></h3><p>{}.</p>{prepared}{found}{cause}<div class=\"scroll\">{}</div>{}{}",
        result.scenario,
        result.server,
        result.peer,
        result.verdict.name(),
        escape(result.about),
        draw(result),
        waiting::html(result),
        usage::html(result)
    )
}
