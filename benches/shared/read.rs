//! Reads what was measured, for the one who waits for it.

use crate::ratio::ratio;
use crate::results::{Results, Series};

impl Results {
    pub(crate) fn median(&self, workload: &str, subject: &str, metric: &str) -> Option<f64> {
        self.series(workload, subject, metric).map(Series::median)
    }

    /// The median of what one figure is, divided by another one of the same turn.
    pub(crate) fn ratio(&self, one: (&str, &str, &str), other: (&str, &str, &str)) -> Option<f64> {
        let values = |(workload, subject, metric)| Some(&self.series(workload, subject, metric)?.values);
        ratio(values(one)?, values(other)?)
    }

    fn series(&self, workload: &str, subject: &str, metric: &str) -> Option<&Series> {
        self.0.iter().find(|series| series.is(workload, subject) && series.metric == metric)
    }

    pub(crate) fn has(&self, workload: &str, subject: &str) -> bool {
        self.0.iter().any(|series| series.is(workload, subject))
    }
}

/// With as many digits as say something.
pub(crate) fn shown(value: f64) -> String {
    if value == 0.0 || value >= 100.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}
