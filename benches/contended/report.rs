//! The medians, as a table.

use crate::read::shown;
use crate::results::Results;
use crate::subject::Kind;
use crate::workload::Workload;

const COLUMNS: [&str; 14] = [
    "hand-off mean",
    "hand-off p99",
    "wait p50",
    "wait p99",
    "wait max",
    "p99/perfect",
    "sections/s",
    "commands",
    "questions",
    "tasks",
    "processes",
    "work",
    "all done",
    "failed",
];

const ABOUT: &str = "\
Medians over the rounds; failed sections are those of the worst round. Hand-offs in microseconds, from the
beginning of a release until the next holder runs, if that is another task and somebody waited. Waits, work
and the time until all was done in milliseconds; p99/perfect compares the waits with those in a line that
costs nothing. Commands are those for locks, and questions those about an instance and its clock, for each
section and over all instances, counted in runs of their own. Tasks and processes: the sections of the one
that got most for each of the one that got fewest.";

pub(crate) fn print(results: &Results) {
    println!("{ABOUT}");
    for workload in Workload::ALL.map(Workload::name) {
        let kinds: Vec<_> = Kind::ALL.into_iter().filter(|kind| results.has(workload, kind.name())).collect();
        if kinds.is_empty() {
            continue;
        }
        print!("\n{workload:<28}");
        COLUMNS.iter().for_each(|name| print!("{name:>width$}", width = width(name)));
        println!();
        for kind in kinds {
            print!("  {kind:<26}");
            for metric in COLUMNS {
                let value = results.median(workload, kind.name(), metric);
                let text = value.map_or("-".to_owned(), |value| in_words(metric, value));
                print!("{text:>width$}", width = width(metric));
            }
            println!();
        }
    }
    print_ratios(results);
}

/// Of a column, with what sets it apart from the one before.
fn width(name: &str) -> usize {
    name.len().max(7) + 2
}

fn print_ratios(results: &Results) {
    const METRICS: [&str; 4] = ["hand-off mean", "wait p99", "sections/s", "commands"];
    let ours = Kind::Ours.name();
    print!("\n{:<56}", "Ratios");
    METRICS.iter().for_each(|name| print!("{name:>14}"));
    println!();
    for workload in Workload::ALL.map(Workload::name) {
        for other in [Kind::Rslock, Kind::Rslock5].map(Kind::name) {
            if !results.has(workload, ours) || !results.has(workload, other) {
                continue;
            }
            print!("  {:<54}", format!("{workload}: {ours} / {other}"));
            for metric in METRICS {
                let ratio = results.ratio((workload, ours, metric), (workload, other, metric));
                print!("{:>14}", ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.3}")));
            }
            println!();
        }
    }
}

fn in_words(metric: &str, value: f64) -> String {
    if ["p99/perfect", "tasks", "processes", "work"].contains(&metric) { format!("{value:.2}") } else { shown(value) }
}
