//! The medians, as a table.

use crate::results::{Results, shown};
use crate::subject::Kind;

pub(crate) const WORKLOADS: [&str; 4] = ["sequential", "64 tasks", "one hung", "one dead"];

const COLUMNS: [(&str, &str); 9] = [
    ("acquire p50", "us"),
    ("acquire p99", "us"),
    ("release p50", "us"),
    ("release p99", "us"),
    ("pair p50", "us"),
    ("pair p99", "us"),
    ("pairs/s", ""),
    ("keys left", ""),
    ("failed", ""),
];

pub(crate) fn print(results: &Results) {
    println!(
        "Medians over the rounds; keys left and failed pairs are those of the worst round.\nTimes in microseconds; a pair is an acquire and its release."
    );
    for workload in
        WORKLOADS.into_iter().filter(|workload| Kind::ALL.iter().any(|kind| results.has(workload, kind.name())))
    {
        print!("\n{workload:<16}");
        COLUMNS.iter().for_each(|(name, unit)| print!("{name:>13}{}", if unit.is_empty() { "" } else { " " }));
        println!();
        for kind in Kind::ALL.into_iter().filter(|kind| results.has(workload, kind.name())) {
            print!("  {kind:<14}");
            for (metric, unit) in COLUMNS {
                let value = results.median(workload, kind.name(), metric);
                print!("{:>13}{}", value.map_or("-".to_owned(), shown), if unit.is_empty() { "" } else { " " });
            }
            println!();
        }
    }
    print_ratios(results);
    print_memory(results);
}

fn print_ratios(results: &Results) {
    println!("\nRatios of the median pair                p50      p99   pairs/s");
    for workload in WORKLOADS {
        for ours in [Kind::Ours, Kind::Off] {
            for other in [Kind::Raw, Kind::Rslock] {
                print_ratio(results, &format!("{workload}: {ours} / {other}"), (workload, ours), (workload, other));
            }
        }
    }
    print_ratio(results, "redquorum: one hung / healthy", ("one hung", Kind::Ours), ("sequential", Kind::Ours));
    print_ratio(results, "redquorum: one dead / healthy", ("one dead", Kind::Ours), ("sequential", Kind::Ours));
}

fn print_ratio(results: &Results, title: &str, (workload, ours): (&str, Kind), (other_workload, other): (&str, Kind)) {
    if !results.has(workload, ours.name()) || !results.has(other_workload, other.name()) {
        return;
    }
    print!("  {title:<36}");
    for metric in ["pair p50", "pair p99", "pairs/s"] {
        let value = results.median(workload, ours.name(), metric);
        let ratio = value.zip(results.median(other_workload, other.name(), metric)).map(|(a, b)| a / b);
        print!("{:>9}", ratio.map_or("-".to_owned(), shown_ratio));
    }
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
