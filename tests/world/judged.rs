//! What the fixed set has judged, as one table: printed at its end, and put into the page about tests by `--page`.

use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::batch::Totals;
use crate::grouped::grouped;
use crate::marks::between_marks;
use crate::stats::Stats;

/// The totals of each mode.
#[derive(Default)]
pub(crate) struct Judged(Vec<(&'static str, Stats)>);

impl Judged {
    /// Whether all is well so far.
    pub(crate) fn note(&mut self, mode: &'static str, (stats, is_well): (Stats, bool)) -> bool {
        self.0.push((mode, stats));
        is_well
    }

    pub(crate) fn report(&self) -> bool {
        let table = self.table();
        println!("\n{table}");
        let written = file().and_then(|file| fs::write(file, table));
        written.is_ok()
    }

    fn table(&self) -> String {
        let mut all = Stats::default();
        self.0.iter().for_each(|(_, stats)| all.add(stats));
        let all = [("all", all)];
        let rows = self.0.iter().chain(&all).map(|(mode, stats)| {
            let Stats { runs, commands, given, lost, .. } = *stats;
            let (faults, excused) = (stats.faults.iter().sum(), stats.excused.iter().sum());
            let figures =
                [runs, commands, faults, given, lost, excused].map(|figure: u64| grouped(&figure.to_string()));
            format!("| {mode} | {} |\n", figures.join(" | "))
        });
        let head =
            "| mode | runs | commands | faults | locks given | `run` lost | excused |\n|---|---|---|---|---|---|---|\n";
        head.to_owned() + &rows.collect::<String>()
    }
}

/// Puts the table of the last fixed set into the page, if there was one.
pub(crate) fn write_page() -> io::Result<()> {
    let Ok(table) = fs::read_to_string(file()?) else { return Ok(()) };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/testing.md");
    let page = between_marks(&fs::read_to_string(&path)?, "judged", &table);
    fs::write(path, page.ok_or_else(|| io::Error::other("the page has no marks"))?)
}

/// Beside the program, which is below `target/`.
fn file() -> io::Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name("judged.md"))
}
