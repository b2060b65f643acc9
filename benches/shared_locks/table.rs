//! Figures, and the tables that they stand in.

/// Prints a table in Markdown.
pub(crate) fn print(title: &str, head: &[&str], rows: &[Vec<String>]) {
    println!("\n{title}\n\n| {} |\n|{}", head.join(" | "), "---|".repeat(head.len()));
    for row in rows {
        println!("| {} |", row.join(" | "));
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
