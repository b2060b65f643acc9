//! The table of those who waited, as text and as HTML.

use super::ScenarioReport;
use super::timeline::escape;
use crate::check::{Crash, WaitPhase};

const COLUMNS: [&str; 15] = [
    "seconds",
    "sections",
    "wait p50",
    "p99",
    "max",
    "hand-over p50",
    "p99",
    "max",
    "to others",
    "out of order",
    "within",
    "by",
    "times one",
    "fewest",
    "most",
];

const MEANING: &str = "Times are in ms. A hand-over is the time from the end of a lease to the next grant that was \
    waited for; to others: how many of them went to another process. Out of order: sections of somebody who had begun \
    to wait later than another one who still waited; within: those where both were of one process; by: how much \
    later, at most; times one: how often one wait was overtaken, at most. Fewest, most: sections of a process, of \
    those that were there all the time.";

pub(super) fn text(result: &ScenarioReport) -> String {
    let Some(waiting) = &result.waiting else { return String::new() };
    let width = waiting.phases.iter().map(|phase| phase.name.chars().count()).max().unwrap_or(0);
    let mut text = format!("\n{} on {}, {}\n", result.scenario, result.server, result.peer);
    let mut line = |name: &str, cells: [String; 15]| {
        let cells: Vec<String> =
            cells.iter().zip(COLUMNS).map(|(cell, of)| format!("{cell:>width$}", width = of.len().max(6))).collect();
        text.push_str(&format!("{name:<width$}  {}\n", cells.join("  ")));
    };
    line("phase", COLUMNS.map(str::to_owned));
    waiting.phases.iter().for_each(|phase| line(&phase.name, cells(phase)));
    waiting.crashes.iter().for_each(|crash| text.push_str(&format!("{}\n", sentence(crash))));
    text
}

pub(super) fn html(result: &ScenarioReport) -> String {
    let Some(waiting) = &result.waiting else { return String::new() };
    let head: String = COLUMNS.iter().map(|column| format!("<th>{column}")).collect();
    let row = |phase: &WaitPhase| {
        let cells: String = cells(phase).iter().map(|cell| format!("<td>{cell}")).collect();
        format!("<tr><td>{}{cells}</tr>", escape(&phase.name))
    };
    let rows: String = waiting.phases.iter().map(row).collect();
    let crashes: String = waiting.crashes.iter().map(|crash| format!("<p>{}</p>", escape(&sentence(crash)))).collect();
    format!("<div class=\"scroll\"><table><tr><th>phase{head}</tr>{rows}</table></div><p>{MEANING}</p>{crashes}")
}

fn cells(phase: &WaitPhase) -> [String; 15] {
    let ms = |value: f64| if value < 10.0 { format!("{value:.1}") } else { format!("{value:.0}") };
    [
        format!("{:.1}", phase.seconds),
        phase.sections.to_string(),
        ms(phase.wait_p50),
        ms(phase.wait_p99),
        ms(phase.wait_max),
        ms(phase.hand_over_p50),
        ms(phase.hand_over_p99),
        ms(phase.hand_over_max),
        phase.to_other_processes.to_string(),
        phase.out_of_order.to_string(),
        phase.out_of_order_within.to_string(),
        ms(phase.furthest),
        phase.most_overtakes.to_string(),
        phase.fewest.to_string(),
        phase.most.to_string(),
    ]
}

fn sentence(crash: &Crash) -> String {
    let Crash { client, held, without_ms, disturbed, .. } = crash;
    let did = if crash.state == "down" { "was killed" } else { "was hung" };
    let told = match (held, without_ms) {
        (_, None) => "nobody got in".to_owned(),
        (true, Some(ms)) => format!("the next one got in {ms:.0} ms after it had taken the lock"),
        (false, Some(ms)) => format!("after that nobody held the lock for {ms:.0} ms at most"),
    };
    let state = if *held { "held" } else { "waited" };
    let note = if *disturbed { " (something else was broken meanwhile: not judged)" } else { "" };
    format!("{client} {did} while it {state}; {told}{note}.")
}
