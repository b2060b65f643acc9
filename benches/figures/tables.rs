//! The tables.

use crate::measured::{FLOOR, Measured, OTHER, OURS, Row, shown};
use crate::page::table;

const OFF: &str = "admission off";

/// Where it matters how long one waits.
const LATENCIES: [&str; 11] = [
    "sequential",
    "sequential, one thread",
    "3 instances",
    "7 instances",
    "9 instances",
    "links of 2 ms",
    "20 ms to two",
    "20 ms to three",
    "one dead",
    "one hung",
    "8 tasks",
];

/// Where it matters how much is done.
const RATES: [&str; 8] = [
    "sequential",
    "8 tasks",
    "64 tasks",
    "512 tasks",
    "64 tasks, one thread",
    "3 instances, 64 tasks",
    "7 instances, 64 tasks",
    "9 instances, 64 tasks",
];

pub(crate) fn latency(measured: &Measured) -> String {
    let rows = LATENCIES.map(|workload| {
        let ours = |metric| shown(measured.median(workload, OURS, metric));
        let by = |subject| measured.ratio((workload, OURS, "pair p50"), (workload, subject, "pair p50"));
        vec![
            workload.to_owned(),
            ours("acquire p50"),
            ours("release p50"),
            ranged(measured.row(workload, OURS, "pair p50")),
            ours("pair p99"),
            shown(measured.median(workload, FLOOR, "pair p50")),
            shown(measured.median(workload, OTHER, "pair p50")),
            ratio(by(FLOOR)),
            ratio(by(OTHER)),
        ]
    });
    let head = [
        "work",
        "acquire p50",
        "release p50",
        "pair p50",
        "pair p99",
        "floor: pair p50",
        "rslock: pair p50",
        "/ floor",
        "/ rslock",
    ];
    table(&head, &rows)
}

pub(crate) fn throughput(measured: &Measured) -> String {
    let rows = RATES.map(|workload| {
        let by = |subject| measured.ratio((workload, OURS, "pairs/s"), (workload, subject, "pairs/s"));
        vec![
            workload.to_owned(),
            ranged(measured.row(workload, OURS, "pairs/s")),
            shown(measured.median(workload, OFF, "pairs/s")),
            shown(measured.median(workload, FLOOR, "pairs/s")),
            shown(measured.median(workload, OTHER, "pairs/s")),
            ratio(by(FLOOR)),
            ratio(by(OTHER)),
        ]
    });
    table(&["work", "redquorum", OFF, "floor", "rslock", "/ floor", "/ rslock"], &rows)
}

pub(crate) fn cost(measured: &Measured) -> String {
    let metrics = ["client CPU", "servers CPU", "sent", "received", "allocations"];
    let subjects = [(OURS, OURS), (FLOOR, "floor"), (OTHER, OTHER)];
    let of_work = |workload: &'static str| {
        subjects.map(|(subject, called)| {
            let figures = metrics.map(|metric| shown(measured.median(workload, subject, metric)));
            [workload.to_owned(), called.to_owned()].into_iter().chain(figures).collect()
        })
    };
    let rows: Vec<Vec<String>> = RATES.into_iter().flat_map(of_work).collect();
    table(&["work", "by", "client, µs", "servers, µs", "bytes sent", "bytes received", "allocations"], &rows)
}

pub(crate) fn rest(measured: &Measured) -> String {
    let lines = [
        ("a new client until its first lock, p50, µs", "connect", "first lock p50"),
        ("three of five hung: the first error, µs", "three hung", "first error"),
        ("`lock_all` of 256 names, beside 8 tasks: acquire p50, µs", "8 beside 256 names", "big p50"),
        ("8 tasks beside a `lock_all` of 256 names: pair p99, µs", "8 beside 256 names", "pair p99"),
        ("64 tasks, one hung: memory grows over 20 000 pairs by, MiB", "memory", "memory growth"),
    ];
    let rows = lines.map(|(what, workload, metric)| {
        let cell = |subject| ranged(measured.row(workload, subject, metric));
        [what.to_owned()].into_iter().chain([OURS, FLOOR, OTHER].map(cell)).collect()
    });
    table(&["what", "redquorum", "floor", "rslock"], &rows)
}

/// The median, and between which it was in the turns.
fn ranged(row: Option<&Row>) -> String {
    let Some(row) = row else { return "–".to_owned() };
    let [median, low, high] = [row.median, row.low, row.high].map(|value| shown(Some(value)));
    if low == high { median } else { format!("{median} ({low}–{high})") }
}

fn ratio(ratio: Option<f64>) -> String {
    ratio.map_or("–".to_owned(), |ratio| if ratio < 0.1 { format!("{ratio:.4}") } else { format!("{ratio:.2}") })
}
