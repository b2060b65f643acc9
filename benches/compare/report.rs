//! The medians, as a table.

use crate::read::shown;
use crate::results::Results;
use crate::subject::Kind;
use crate::workload::WORKLOADS;

/// A metric and its unit, which is shown in the table's head.
type Column = (&'static str, &'static str);

const PAIRS: [Column; 8] = [
    ("acquire p50", "us"),
    ("acquire p99", "us"),
    ("acquire p99.9", "us"),
    ("release p50", "us"),
    ("release p99", "us"),
    ("pair p50", "us"),
    ("pair p99", "us"),
    ("pairs/s", ""),
];

/// For each pair, but for the last two.
const COSTS: [Column; 7] = [
    ("client CPU", "us"),
    ("servers CPU", "us"),
    ("sent", "bytes"),
    ("received", "bytes"),
    ("allocations", ""),
    ("keys left", ""),
    ("failed", ""),
];

const OTHERS: [Column; 6] = [
    ("big p50", "us"),
    ("first error", "us"),
    ("later errors p50", "us"),
    ("later errors p99", "us"),
    ("first lock p50", "us"),
    ("first lock p99", "us"),
];

pub(crate) fn print(results: &Results) {
    println!(
        "Medians over the turns; keys left, failed pairs and first errors are the worst of them.\nTimes in microseconds; a pair is an acquire and its release, and processor time, bytes and allocations are those of a pair."
    );
    for workload in WORKLOADS {
        println!("\n{workload}");
        table(results, workload.name, &PAIRS);
        table(results, workload.name, &COSTS);
        table(results, workload.name, &OTHERS);
    }
    print_ratios(results);
    print_memory(results);
}

/// Nothing where nothing of it was measured.
fn table(results: &Results, workload: &str, columns: &[Column]) {
    let has = |kind: Kind, column: &Column| results.median(workload, kind.name(), column.0).is_some();
    let columns: Vec<&Column> =
        columns.iter().filter(|column| Kind::ALL.iter().any(|kind| has(*kind, column))).collect();
    if columns.is_empty() {
        return;
    }
    print!("{:<16}", "");
    columns.iter().for_each(|(name, _)| print!("{name:>17}"));
    println!();
    for kind in Kind::ALL.into_iter().filter(|kind| columns.iter().any(|column| has(*kind, column))) {
        print!("  {kind:<14}");
        for (metric, _) in &columns {
            let value = results.median(workload, kind.name(), metric);
            print!("{:>17}", value.map_or("-".to_owned(), shown));
        }
        println!();
    }
}

const RATIOS: [&str; 6] = ["acquire p50", "release p50", "pair p99", "pairs/s", "client CPU", "servers CPU"];

fn print_ratios(results: &Results) {
    print!("\n{:<52}", "Ratios");
    RATIOS.iter().for_each(|metric| print!("{metric:>13}"));
    println!();
    for workload in WORKLOADS.map(|workload| workload.name) {
        for ours in [Kind::Ours, Kind::Off] {
            for other in [Kind::Raw, Kind::Rslock] {
                print_ratio(results, &format!("{workload}: {ours} / {other}"), (workload, ours), (workload, other));
            }
        }
    }
    for (workload, healthy) in [
        ("one hung", "sequential"),
        ("one dead", "sequential"),
        ("20 ms to two", "sequential"),
        ("8 beside 2 names", "8 tasks"),
        ("8 beside 16 names", "8 tasks"),
        ("8 beside 256 names", "8 tasks"),
        ("512 tasks", "64 tasks"),
    ] {
        print_ratio(
            results,
            &format!("redquorum: {workload} / {healthy}"),
            (workload, Kind::Ours),
            (healthy, Kind::Ours),
        );
    }
}

fn print_ratio(results: &Results, title: &str, (workload, ours): (&str, Kind), (other_workload, other): (&str, Kind)) {
    let ratio = |metric: &&str| results.ratio((workload, ours.name(), metric), (other_workload, other.name(), metric));
    let ratios = RATIOS.each_ref().map(ratio);
    if ratios.iter().all(Option::is_none) {
        return;
    }
    print!("  {title:<50}");
    ratios.iter().for_each(|ratio| print!("{:>13}", ratio.map_or("-".to_owned(), shown_ratio)));
    println!();
}

fn print_memory(results: &Results) {
    if !Kind::ALL.iter().any(|kind| results.has("memory", kind.name())) {
        return;
    }
    println!("\nGrowth of resident memory over the pairs of 64 tasks with one instance hung, MiB");
    for kind in Kind::ALL {
        let grown = results.median("memory", kind.name(), "memory growth");
        println!("  {kind:<14}{:>9}", grown.map_or("-".to_owned(), |mib| format!("{mib:.1}")));
    }
}

fn shown_ratio(ratio: f64) -> String {
    let digits = match ratio {
        100.0.. => 0,
        0.1..100.0 => 2,
        _ => 5,
    };
    format!("{ratio:.digits$}")
}
