//! What was measured: each metric in each turn, their median, the lowest and the highest.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::{Outcome, median};

/// A name, a value and its unit.
pub(crate) type Metric = (&'static str, f64, &'static str);

/// The values of one metric, one of every turn.
pub(crate) struct Series {
    workload: String,
    subject: String,
    pub(crate) metric: &'static str,
    unit: &'static str,
    pub(crate) values: Vec<f64>,
}

#[derive(Default)]
pub(crate) struct Results(pub(crate) Vec<Series>);

impl Results {
    pub(crate) fn add(&mut self, workload: &str, subject: &str, metrics: &[Metric]) {
        for &(metric, value, unit) in metrics {
            match self.0.iter_mut().find(|series| series.is(workload, subject) && series.metric == metric) {
                Some(series) => series.values.push(value),
                None => {
                    let (workload, subject) = (workload.to_owned(), subject.to_owned());
                    self.0.push(Series { workload, subject, metric, unit, values: vec![value] });
                }
            }
        }
    }

    /// Writes a file in `target/bench`; `about` says where and how it was measured.
    pub(crate) fn write(&self, name: &str, about: &str) -> Outcome<PathBuf> {
        let rows: Vec<Value> = self.0.iter().filter_map(Series::json).collect();
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
        let path = target.join("bench").join(name);
        fs::create_dir_all(target.join("bench"))?;
        let rows: Vec<String> = rows.iter().map(Value::to_string).collect();
        // A line for each, so that two measurements can be compared.
        let text = format!("{{\"about\": {},\n\"results\": [\n{}\n]}}\n", Value::from(about), rows.join(",\n"));
        fs::write(&path, text)?;
        Ok(path)
    }
}

impl Series {
    pub(crate) fn is(&self, workload: &str, subject: &str) -> bool {
        self.workload == workload && self.subject == subject
    }

    pub(crate) fn median(&self) -> f64 {
        let values = median::sorted(self.values.iter().copied());
        let must_not_be = ["keys", "pairs", "sections"].contains(&self.unit);
        if must_not_be || self.metric == "first error" {
            return values[values.len() - 1]; // the worst counts; who was told of the fault once has no first error again
        }
        median::middle(&values)
    }

    /// Nothing for what has no number.
    fn json(&self) -> Option<Value> {
        let Self { workload, subject, metric, unit, .. } = self;
        let median = rounded(Some(self.median()).filter(|median| median.is_finite())?);
        let values: Vec<f64> = self.values.iter().copied().map(rounded).collect();
        let sorted = median::sorted(values.iter().copied());
        Some(json!({
            "workload": workload, "subject": subject, "metric": metric, "unit": unit,
            "median": median, "low": sorted.first(), "high": sorted.last(), "values": values,
        }))
    }
}

/// To four digits, more than one machine repeats.
fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}
