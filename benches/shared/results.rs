//! What was measured: the median over the rounds of each metric.

use std::fs;
use std::path::PathBuf;

use crate::Outcome;

/// A name, a value and its unit.
pub(crate) type Metric = (&'static str, f64, &'static str);

/// The values of one metric, one of every round.
struct Series {
    workload: &'static str,
    subject: &'static str,
    metric: &'static str,
    unit: &'static str,
    values: Vec<f64>,
}

#[derive(Default)]
pub(crate) struct Results(Vec<Series>);

impl Results {
    pub(crate) fn add(&mut self, workload: &'static str, subject: &'static str, metrics: &[Metric]) {
        for &(metric, value, unit) in metrics {
            let same =
                |series: &&mut Series| (series.workload, series.subject, series.metric) == (workload, subject, metric);
            match self.0.iter_mut().find(same) {
                Some(series) => series.values.push(value),
                None => self.0.push(Series { workload, subject, metric, unit, values: vec![value] }),
            }
        }
    }

    pub(crate) fn median(&self, workload: &str, subject: &str, metric: &str) -> Option<f64> {
        let wanted = |series: &&Series| (series.workload, series.subject, series.metric) == (workload, subject, metric);
        self.0.iter().find(wanted).map(Series::median)
    }

    pub(crate) fn has(&self, workload: &str, subject: &str) -> bool {
        self.0.iter().any(|series| series.workload == workload && series.subject == subject)
    }

    /// Writes a file in `target/bench`.
    pub(crate) fn write(&self, name: &str) -> Outcome<PathBuf> {
        let rows: Vec<String> = self.0.iter().filter_map(Series::json).collect();
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
        let path = target.join("bench").join(name);
        fs::create_dir_all(target.join("bench"))?;
        fs::write(&path, format!("[\n{}\n]\n", rows.join(",\n")))?;
        Ok(path)
    }
}

impl Series {
    fn median(&self) -> f64 {
        let mut values = self.values.clone();
        values.sort_by(f64::total_cmp);
        if ["keys", "pairs", "sections"].contains(&self.unit) {
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
pub(crate) fn shown(value: f64) -> String {
    if value == 0.0 || value >= 100.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}
