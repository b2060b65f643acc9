//! What is aimed at, as ratios: a machine's own speed takes no part in them.

use crate::measured::{FLOOR, Figure, Measured, OTHER, OURS};
use crate::page;

/// What a figure is divided by.
enum By {
    Figure(Figure),
    /// A setting, in the figure's unit.
    Number(f64),
}

enum Goal {
    AtMost(f64),
    AtLeast(f64),
}

use By::Number;
use Goal::{AtLeast, AtMost};

const ACQUIRE: &str = "acquire p50";
const RELEASE: &str = "release p50";
const P99: &str = "pair p99";
const RATE: &str = "pairs/s";
const CLIENT: &str = "client CPU";
const SERVERS: &str = "servers CPU";

/// The default deadline of an instance, in microseconds.
const INSTANCE_TIMEOUT: By = Number(200_000.0);

const fn ours(workload: &'static str, metric: &'static str) -> Figure {
    (workload, OURS, metric)
}

const fn beside(subject: &'static str, (workload, _, metric): Figure) -> By {
    By::Figure((workload, subject, metric))
}

const fn healthy(metric: &'static str) -> By {
    By::Figure(ours("sequential", metric))
}

/// What it is, the figure, that by which it is divided, and what is aimed at.
const AIMS: [(&str, Figure, By, Goal); 24] = [
    against("one task: acquire p50 / floor", FLOOR, ours("sequential", ACQUIRE), AtMost(1.25)),
    against("one task: acquire p50 / rslock", OTHER, ours("sequential", ACQUIRE), AtMost(1.0)),
    against("one task: release p50 / floor", FLOOR, ours("sequential", RELEASE), AtMost(1.25)),
    against("one task: client's processor time / floor", FLOOR, ours("sequential", CLIENT), AtMost(1.15)),
    against("one task: servers' processor time / floor", FLOOR, ours("sequential", SERVERS), AtMost(1.2)),
    against("one task, one thread: acquire p50 / floor", FLOOR, ours("sequential, one thread", ACQUIRE), AtMost(1.15)),
    against("8 tasks: pairs a second / floor", FLOOR, ours("8 tasks", RATE), AtLeast(0.95)),
    against("64 tasks: pairs a second / floor", FLOOR, ours("64 tasks", RATE), AtLeast(1.4)),
    against("64 tasks: pairs a second / rslock", OTHER, ours("64 tasks", RATE), AtLeast(1.6)),
    against("64 tasks: servers' processor time / floor", FLOOR, ours("64 tasks", SERVERS), AtMost(1.0)),
    against("64 tasks, one thread: pairs a second / floor", FLOOR, ours("64 tasks, one thread", RATE), AtLeast(1.2)),
    against("64 tasks, one thread: pairs a second / rslock", OTHER, ours("64 tasks, one thread", RATE), AtLeast(1.6)),
    against("512 tasks: pairs a second / floor", FLOOR, ours("512 tasks", RATE), AtLeast(2.2)),
    ("one hung: pair p99 / none hung", ours("one hung", P99), healthy(P99), AtMost(1.5)),
    ("one dead: pair p99 / none dead", ours("one dead", P99), healthy(P99), AtMost(1.5)),
    ("three hung: first error / instance timeout", ours("three hung", "first error"), INSTANCE_TIMEOUT, AtMost(1.1)),
    ("three hung: later errors, ms", ours("three hung", "later errors p50"), Number(1_000.0), AtMost(1.0)),
    against("links of 2 ms: acquire p50 / floor", FLOOR, ours("links of 2 ms", ACQUIRE), AtMost(1.02)),
    against("20 ms to three: acquire p50 / floor", FLOOR, ours("20 ms to three", ACQUIRE), AtMost(1.02)),
    ("20 ms to two: acquire p50 / none delayed", ours("20 ms to two", ACQUIRE), healthy(ACQUIRE), AtMost(1.1)),
    ("9 instances / 3: client's processor time", ours("9 instances", CLIENT), BY_THREE, AtMost(3.0)),
    ("9 instances / 3: servers' processor time", ours("9 instances", SERVERS), SERVERS_BY_THREE, AtMost(3.0)),
    ("pairs a second of 512 tasks / of 64", ours("512 tasks", RATE), By::Figure(ours("64 tasks", RATE)), AtLeast(0.9)),
    (
        "8 tasks: pair p99 beside a `lock_all` of 256 names / alone",
        ours("8 beside 256 names", P99),
        EIGHT_ALONE,
        AtMost(2.0),
    ),
];

const BY_THREE: By = By::Figure(ours("3 instances", CLIENT));
const SERVERS_BY_THREE: By = By::Figure(ours("3 instances", SERVERS));
const EIGHT_ALONE: By = By::Figure(ours("8 tasks", P99));

/// The same metric of another subject.
const fn against(
    what: &'static str,
    subject: &'static str,
    figure: Figure,
    goal: Goal,
) -> (&'static str, Figure, By, Goal) {
    (what, figure, beside(subject, figure), goal)
}

pub(crate) fn table(measured: &Measured) -> String {
    let rows: Vec<Vec<String>> =
        AIMS.iter().map(|(what, figure, by, aim)| row(measured, what, *figure, by, aim)).collect();
    page::table(&["ratio", "aim", "measured"], &rows)
}

fn row(measured: &Measured, what: &str, figure: Figure, by: &By, aim: &Goal) -> Vec<String> {
    let (workload, subject, metric) = figure;
    let ratio = match by {
        By::Figure(by) => measured.ratio(figure, *by),
        Number(number) => measured.median(workload, subject, metric).map(|figure| figure / number),
    };
    let aimed = match aim {
        AtMost(most) => format!("≤ {most}"),
        AtLeast(least) => format!("≥ {least}"),
    };
    let told = |ratio| if aim.is_met(ratio) { format!("{ratio:.2}") } else { format!("**{ratio:.2}**") };
    vec![what.to_owned(), aimed, ratio.map_or("–".to_owned(), told)]
}

impl Goal {
    const fn is_met(&self, ratio: f64) -> bool {
        match *self {
            AtMost(most) => ratio <= most,
            AtLeast(least) => ratio >= least,
        }
    }
}

#[test]
fn a_ratio_on_the_wrong_side_is_not_reached() {
    assert!(AtMost(1.0).is_met(0.9) && !AtMost(1.0).is_met(1.1));
    assert!(AtLeast(1.0).is_met(1.1) && !AtLeast(1.0).is_met(0.9));
}
