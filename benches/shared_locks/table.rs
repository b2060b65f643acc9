//! Figures, and the tables that they stand in.

use crate::results::Results;

/// Figures of some subjects; the first cell of a row is its subject, the first of the head empty.
pub(crate) struct Table {
    pub(crate) title: String,
    pub(crate) head: Vec<&'static str>,
    pub(crate) rows: Vec<Vec<String>>,
}

impl Table {
    /// In Markdown.
    pub(crate) fn print(&self) {
        println!("\n{}\n\n| {} |\n|{}", self.title, self.head.join(" | "), "---|".repeat(self.head.len()));
        for row in &self.rows {
            println!("| {} |", row.join(" | "));
        }
    }

    /// What has a number.
    pub(crate) fn add_to(&self, results: &mut Results, part: &str) {
        for row in &self.rows {
            let cells = self.head.iter().zip(row).skip(1);
            let figures: Vec<_> = cells.filter_map(|(head, cell)| Some((*head, cell.parse().ok()?, ""))).collect();
            results.add(part, &row[0], &figures);
        }
    }
}

/// Of times in nanoseconds.
pub(crate) fn percentile(times: &[u64], percent: usize) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(at).map_or(f64::NAN, |time| *time as f64)
}

pub(crate) fn us(nanos: f64) -> String {
    format!("{:.0}", nanos / 1e3)
}

pub(crate) fn ms(nanos: f64) -> String {
    format!("{:.1}", nanos / 1e6)
}
