//! What is aimed at, as ratios: a machine's own speed takes no part in them.

use crate::measured::{FLOOR, Measured, OTHER, OURS};
use crate::page;

/// A metric of a workload and a subject.
type Figure = (&'static str, &'static str, &'static str);

enum Goal {
    AtMost(f64),
    AtLeast(f64),
}

use Goal::{AtLeast, AtMost};

const PAIR: &str = "pair p50";
const RATE: &str = "pairs/s";

/// What it is, the figure, that by which it is divided, and what is aimed at.
const AIMS: [(&str, Figure, Figure, Goal); 12] = [
    (
        "one task: acquire p50 / floor",
        ("sequential", OURS, "acquire p50"),
        ("sequential", FLOOR, "acquire p50"),
        AtMost(1.35),
    ),
    ("one task: pair p50 / floor", ("sequential", OURS, PAIR), ("sequential", FLOOR, PAIR), AtMost(1.25)),
    ("one task: pair p50 / rslock", ("sequential", OURS, PAIR), ("sequential", OTHER, PAIR), AtMost(1.0)),
    (
        "one task: servers' processor time / floor",
        ("sequential", OURS, "servers CPU"),
        ("sequential", FLOOR, "servers CPU"),
        AtMost(1.5),
    ),
    ("64 tasks: pairs a second / floor", ("64 tasks", OURS, RATE), ("64 tasks", FLOOR, RATE), AtLeast(1.0)),
    ("64 tasks: pairs a second / rslock", ("64 tasks", OURS, RATE), ("64 tasks", OTHER, RATE), AtLeast(1.0)),
    (
        "64 tasks, one thread: pairs a second / floor",
        ("64 tasks, one thread", OURS, RATE),
        ("64 tasks, one thread", FLOOR, RATE),
        AtLeast(1.0),
    ),
    (
        "64 tasks, one thread: pairs a second / rslock",
        ("64 tasks, one thread", OURS, RATE),
        ("64 tasks, one thread", OTHER, RATE),
        AtLeast(1.0),
    ),
    ("pairs a second of 512 tasks / of 64", ("512 tasks", OURS, RATE), ("64 tasks", OURS, RATE), AtLeast(0.9)),
    ("one hung: pair p50 / none hung", ("one hung", OURS, PAIR), ("sequential", OURS, PAIR), AtMost(1.25)),
    ("one hung: pair p99 / none hung", ("one hung", OURS, "pair p99"), ("sequential", OURS, "pair p99"), AtMost(1.5)),
    ("one dead: pair p50 / none dead", ("one dead", OURS, PAIR), ("sequential", OURS, PAIR), AtMost(1.25)),
];

pub(crate) fn table(measured: &Measured) -> String {
    let rows: Vec<Vec<String>> =
        AIMS.iter().map(|(what, figure, by, aim)| row(measured, what, *figure, *by, aim)).collect();
    page::table(&["ratio", "aim", "measured", "reached"], &rows)
}

fn row(measured: &Measured, what: &str, figure: Figure, by: Figure, aim: &Goal) -> Vec<String> {
    let median = |(workload, subject, metric): Figure| measured.median(workload, subject, metric);
    let ratio = median(figure).zip(median(by)).map(|(figure, by)| figure / by);
    let aimed = match aim {
        AtMost(most) => format!("≤ {most}"),
        AtLeast(least) => format!("≥ {least}"),
    };
    let reached = ratio.map_or("–", |ratio| if aim.is_met(ratio) { "yes" } else { "**no**" });
    vec![what.to_owned(), aimed, ratio.map_or("–".to_owned(), |ratio| format!("{ratio:.2}")), reached.to_owned()]
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
