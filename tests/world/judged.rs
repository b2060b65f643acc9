//! What the fixed set has judged, and by what: printed at its end, and put into the page about tests by `--page`.

use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::batch::Totals;
use crate::grouped::grouped;
use crate::marks::between_marks;
use crate::planted::{self, SCENE};
use crate::stats::Stats;

const JUDGED: &str = "judged.md";

/// The totals of each mode.
#[derive(Default)]
pub(crate) struct Judged(Vec<(&'static str, Stats)>);

impl Judged {
    /// Whether all is well so far.
    pub(crate) fn note(&mut self, mode: &'static str, (stats, is_well): (Stats, bool)) -> bool {
        self.0.push((mode, stats));
        is_well
    }

    /// Prints what was judged, by what; whether that is known.
    pub(crate) fn report(&self) -> bool {
        let written = self.whole().and_then(|(table, broken_by)| {
            println!("\n{table}\n{broken_by}");
            fs::write(file(JUDGED)?, table)
        });
        written.inspect_err(|error| println!("what was judged: {error}")).is_ok()
    }

    /// The table of the page, and what breaks each invariant.
    fn whole(&self) -> io::Result<(String, String)> {
        let invariants = planted::by_invariant()?;
        let by_scenes = invariants.iter().filter(|(_, broken_by)| broken_by == SCENE).count();
        let mut table = self.table();
        table += &format!(
            "\nInvariants: {}, each broken by a planted bug that it sees first, or (of {by_scenes}) by a scene.",
            invariants.len()
        );
        if let Some((worlds, states)) = searched()? {
            table += &format!(" States of the model: {} in {worlds} worlds.", grouped(&states.to_string()));
        }
        let rows = invariants.iter().map(|(invariant, broken_by)| format!("| {invariant} | {broken_by} |\n"));
        Ok((table + "\n", format!("| invariant | broken by |\n|---|---|\n{}", rows.collect::<String>())))
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
    let Ok(table) = fs::read_to_string(file(JUDGED)?) else { return Ok(()) };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/testing.md");
    let page = between_marks(&fs::read_to_string(&path)?, "judged", &table);
    fs::write(path, page.ok_or_else(|| io::Error::other("the page has no marks"))?)
}

/// In how many worlds the model has searched how many states, if it was run.
fn searched() -> io::Result<Option<(usize, u64)>> {
    let Ok(worlds) = fs::read_dir(file("searched")?) else { return Ok(None) };
    let states = worlds.map(|world| fs::read_to_string(world?.path())?.parse().map_err(io::Error::other));
    let states = states.collect::<io::Result<Vec<u64>>>()?;
    Ok(Some((states.len(), states.iter().sum())))
}

/// Beside the program, and that of the model, which are below `target/`.
fn file(name: &str) -> io::Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name(name))
}
