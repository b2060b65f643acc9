//! What was measured, as it is kept beside the pages.

use std::fs;

use serde::Deserialize;

use crate::grouped::grouped;
use crate::ratio::ratio;
use crate::{Outcome, page};

pub(crate) const OURS: &str = "redquorum";
pub(crate) const FLOOR: &str = "raw";
pub(crate) const OTHER: &str = "rslock";

/// A workload, a subject and a metric.
pub(crate) type Figure = (&'static str, &'static str, &'static str);

#[derive(Deserialize)]
pub(crate) struct Measured {
    /// Where and how.
    pub(crate) about: String,
    results: Vec<Row>,
}

/// One metric of a subject in a workload.
#[derive(Deserialize)]
pub(crate) struct Row {
    workload: String,
    subject: String,
    metric: String,
    pub(crate) median: f64,
    /// Of all turns.
    pub(crate) low: f64,
    pub(crate) high: f64,
    /// One of every turn.
    values: Vec<f64>,
}

impl Measured {
    /// Of the file of this name in `docs/results`.
    pub(crate) fn read(name: &str) -> Outcome<Self> {
        let path = page::path("results").join(format!("{name}.json"));
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(serde_json::from_str(&text)?)
    }

    /// Each workload with each of its subjects, in the order in which they were measured.
    pub(crate) fn subjects(&self) -> Vec<(&str, &str)> {
        let mut subjects: Vec<_> = self.results.iter().map(|row| (&*row.workload, &*row.subject)).collect();
        subjects.dedup();
        subjects
    }

    pub(crate) fn row(&self, workload: &str, subject: &str, metric: &str) -> Option<&Row> {
        let wanted = |row: &&Row| (&*row.workload, &*row.subject, &*row.metric) == (workload, subject, metric);
        self.results.iter().find(wanted)
    }

    pub(crate) fn median(&self, workload: &str, subject: &str, metric: &str) -> Option<f64> {
        self.row(workload, subject, metric).map(|row| row.median)
    }

    /// The median of what one figure is, divided by another one of the same turn.
    pub(crate) fn ratio(&self, one: Figure, other: Figure) -> Option<f64> {
        let values = |(workload, subject, metric): Figure| Some(&self.row(workload, subject, metric)?.values);
        ratio(values(one)?, values(other)?)
    }
}

/// A whole number with its thousands apart, or few digits; a dash for what was not measured.
pub(crate) fn shown(value: Option<f64>) -> String {
    match value {
        None => "–".to_owned(),
        Some(value) if value.abs() < 9.95 && value != 0.0 => format!("{value:.1}"),
        Some(value) => grouped(&format!("{value:.0}")),
    }
}

#[test]
fn numbers_are_told_with_the_digits_that_say_something() {
    let told = [Some(0.0), Some(1.25), Some(9.96), Some(123.4), Some(9876.0), Some(22_945.4), Some(1_002_345.0), None];
    assert_eq!(told.map(shown), ["0", "1.2", "10", "123", "9876", "22 945", "1 002 345", "–"]);
}
