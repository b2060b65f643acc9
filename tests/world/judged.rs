//! What the fixed set has judged, as one table: printed at its end, and put into the page about tests by `--page`.

use std::path::PathBuf;
use std::{fs, io};

use crate::batch::Totals;
use crate::scenario::{CUT, FORGETFUL, MOVED, NARROW, TOGETHER};
use crate::stats::Stats;

const BEGIN: &str = "<!-- judged: begin -->";
const END: &str = "<!-- judged: end -->";

/// The totals of each mode.
#[derive(Default)]
pub(crate) struct Judged(Vec<(&'static str, Stats)>);

impl Judged {
    /// Whether all is well so far.
    pub(crate) fn note(&mut self, mode: u64, (stats, is_well): (Stats, bool)) -> bool {
        let modes = [
            (NARROW, "narrow"),
            (TOGETHER, "readers, permits and leaders"),
            (MOVED, "moved leases"),
            (CUT, "cut links"),
            (FORGETFUL, "forgotten tokens"),
        ];
        let name = modes.iter().find(|(base, _)| *base == mode).map_or("rich", |(_, name)| name);
        self.0.push((name, stats));
        is_well
    }

    pub(crate) fn report(&self) -> bool {
        let table = self.table();
        println!("\n{table}");
        let written = file().and_then(|file| fs::write(file, table));
        written.is_ok() || cfg!(debug_assertions)
    }

    fn table(&self) -> String {
        let mut all = Stats::default();
        self.0.iter().for_each(|(_, stats)| all.add(stats));
        let all = [("all", all)];
        let rows = self.0.iter().chain(&all).map(|(mode, stats)| {
            let Stats { runs, commands, given, lost, .. } = *stats;
            let (faults, excused) = (stats.faults.iter().sum(), stats.excused.iter().sum());
            let figures = [runs, commands, faults, given, lost, excused].map(grouped);
            format!("| {mode} | {} |\n", figures.join(" | "))
        });
        let head =
            "| mode | runs | commands | faults | locks given | lost | excused |\n|---|---|---|---|---|---|---|\n";
        head.to_owned() + &rows.collect::<String>()
    }
}

/// The page with the table of the last fixed set; none if there was none.
pub(crate) fn write_into(page: &str) -> io::Result<Option<String>> {
    let Ok(table) = fs::read_to_string(file()?) else { return Ok(None) };
    let (before, rest) = page.split_once(BEGIN).ok_or_else(|| io::Error::other("the page has no mark"))?;
    let (_, after) = rest.split_once(END).ok_or_else(|| io::Error::other("the page has no end mark"))?;
    Ok(Some(format!("{before}{BEGIN}\n\n{}\n\n{END}{after}", table.trim())))
}

/// Beside the program, which is below `target/`.
fn file() -> io::Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name("judged.md"))
}

/// With thousands apart.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) && digits.len() > 4 {
            grouped.push(' ');
        }
        grouped.push(digit);
    }
    grouped
}
