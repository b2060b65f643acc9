//! The medians, as a table and as a file.

use std::fs;
use std::path::PathBuf;

use crate::Outcome;
use crate::measure::Metric;
use crate::subject::Kind;

/// The values of one metric, one of every round.
struct Series {
    workload: &'static str,
    subject: Kind,
    metric: &'static str,
    unit: &'static str,
    values: Vec<f64>,
}

#[derive(Default)]
pub(crate) struct Results(Vec<Series>);

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

impl Results {
    pub(crate) fn add(&mut self, workload: &'static str, subject: Kind, metrics: &[Metric]) {
        for &(metric, value, unit) in metrics {
            let same =
                |series: &&mut Series| (series.workload, series.subject, series.metric) == (workload, subject, metric);
            match self.0.iter_mut().find(same) {
                Some(series) => series.values.push(value),
                None => self.0.push(Series { workload, subject, metric, unit, values: vec![value] }),
            }
        }
    }

    fn median(&self, workload: &str, subject: Kind, metric: &str) -> Option<f64> {
        let wanted = |series: &&Series| (series.workload, series.subject, series.metric) == (workload, subject, metric);
        self.0.iter().find(wanted).map(Series::median)
    }

    fn has(&self, workload: &str, subject: Kind) -> bool {
        self.0.iter().any(|series| series.workload == workload && series.subject == subject)
    }

    pub(crate) fn print(&self) {
        println!(
            "Medians over the rounds; keys left and failed pairs are those of the worst round.\nTimes in microseconds; a pair is an acquire and its release."
        );
        for workload in WORKLOADS.into_iter().filter(|workload| Kind::ALL.iter().any(|kind| self.has(workload, *kind)))
        {
            print!("\n{workload:<16}");
            COLUMNS.iter().for_each(|(name, unit)| print!("{name:>13}{}", if unit.is_empty() { "" } else { " " }));
            println!();
            for kind in Kind::ALL.into_iter().filter(|kind| self.has(workload, *kind)) {
                print!("  {kind:<14}");
                for (metric, unit) in COLUMNS {
                    let value = self.median(workload, kind, metric);
                    print!("{:>13}{}", value.map_or("-".to_owned(), shown), if unit.is_empty() { "" } else { " " });
                }
                println!();
            }
        }
        self.print_ratios();
        self.print_memory();
    }

    fn print_ratios(&self) {
        println!("\nRatios of the median pair                p50      p99   pairs/s");
        for workload in WORKLOADS {
            for ours in [Kind::Ours, Kind::Off] {
                for other in [Kind::Raw, Kind::Rslock] {
                    self.print_ratio(&format!("{workload}: {ours} / {other}"), (workload, ours), (workload, other));
                }
            }
        }
        self.print_ratio("redquorum: one hung / healthy", ("one hung", Kind::Ours), ("sequential", Kind::Ours));
        self.print_ratio("redquorum: one dead / healthy", ("one dead", Kind::Ours), ("sequential", Kind::Ours));
    }

    fn print_ratio(&self, title: &str, (workload, ours): (&str, Kind), (other_workload, other): (&str, Kind)) {
        if !self.has(workload, ours) || !self.has(other_workload, other) {
            return;
        }
        print!("  {title:<36}");
        for metric in ["pair p50", "pair p99", "pairs/s"] {
            let value = self.median(workload, ours, metric);
            let ratio = value.zip(self.median(other_workload, other, metric)).map(|(a, b)| a / b);
            print!("{:>9}", ratio.map_or("-".to_owned(), shown_ratio));
        }
        println!();
    }

    fn print_memory(&self) {
        if !Kind::ALL.iter().any(|kind| self.has("memory", *kind)) {
            return;
        }
        println!("\nGrowth of resident memory over the pairs of 64 tasks with one instance hung, MiB");
        for kind in Kind::ALL {
            let grown = self.median("memory", kind, "memory growth");
            println!("  {kind:<14}{:>9}", grown.map_or("-".to_owned(), |mib| format!("{mib:.1}")));
        }
    }

    /// Writes `target/bench/results.json`.
    pub(crate) fn write(&self) -> Outcome<PathBuf> {
        let rows: Vec<String> = self.0.iter().filter_map(Series::json).collect();
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
        let path = target.join("bench/results.json");
        fs::create_dir_all(target.join("bench"))?;
        fs::write(&path, format!("[\n{}\n]\n", rows.join(",\n")))?;
        Ok(path)
    }
}

impl Series {
    fn median(&self) -> f64 {
        let mut values = self.values.clone();
        values.sort_by(f64::total_cmp);
        if self.unit == "keys" || self.unit == "pairs" {
            return values[values.len() - 1]; // of what must not be, the worst round counts
        }
        let (low, high) = ((values.len() - 1) / 2, values.len() / 2);
        f64::midpoint(values[low], values[high])
    }

    /// Nothing for what has no number. All names are plain words.
    fn json(&self) -> Option<String> {
        let Self { workload, subject, metric, unit, .. } = self;
        let median = Some(self.median()).filter(|median| median.is_finite())?;
        Some(format!(
            r#"  {{"workload": "{workload}", "subject": "{subject}", "metric": "{metric}", "median": {median:.3}, "unit": "{unit}"}}"#
        ))
    }
}

/// With as many digits as say something.
fn shown(value: f64) -> String {
    if value == 0.0 || value >= 100.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

fn shown_ratio(ratio: f64) -> String {
    let digits = match ratio {
        100.0.. => 0,
        0.1..100.0 => 2,
        _ => 5,
    };
    format!("{ratio:.digits$}")
}
