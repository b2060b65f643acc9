//! Counts of what happened, so that a run without violations can be told from one without events.

use crate::batch::Totals;
use crate::deeds::Deed;
use crate::faults::FaultKind;
use crate::invariants::promises::Excuse;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stats {
    pub(crate) runs: u64,
    pub(crate) events: u64,
    pub(crate) commands: u64,
    pub(crate) asked: u64,
    pub(crate) given: u64,
    pub(crate) abandoned: u64,
    pub(crate) extended: u64,
    pub(crate) released: u64,
    pub(crate) lost: u64,
    pub(crate) clients: u64,
    pub(crate) faults: [u64; FaultKind::ALL.len()],
    pub(crate) deeds: [u64; Deed::ALL.len()],
    /// Overlaps, and tokens out of order, that no rule promises to prevent.
    pub(crate) excused: [u64; Excuse::ALL.len()],
    /// Virtual time, in ms.
    pub(crate) time_ms: u64,
}

impl Totals for Stats {
    fn add(&mut self, other: &Self) {
        self.runs += other.runs;
        self.events += other.events;
        self.commands += other.commands;
        self.asked += other.asked;
        self.given += other.given;
        self.abandoned += other.abandoned;
        self.extended += other.extended;
        self.released += other.released;
        self.lost += other.lost;
        self.clients += other.clients;
        self.time_ms += other.time_ms;
        for (mine, theirs) in self.faults.iter_mut().zip(other.faults) {
            *mine += theirs;
        }
        for (mine, theirs) in self.deeds.iter_mut().zip(other.deeds) {
            *mine += theirs;
        }
        for (mine, theirs) in self.excused.iter_mut().zip(other.excused) {
            *mine += theirs;
        }
    }
}

impl Stats {
    pub(crate) fn print(&self) {
        self.lines().iter().for_each(|line| println!("{line}"));
    }

    pub(crate) fn lines(&self) -> [String; 5] {
        let Self { runs, events, commands, asked, given, abandoned, extended, released, lost, clients, .. } = self;
        let seconds = self.time_ms / 1000;
        [
            format!("runs {runs}, {seconds} s of their time, events {events}, commands {commands}"),
            format!(
                "locks asked for {asked}, given {given}, futures dropped {abandoned}, extended {extended}, released {released}, lost {lost}; clients {clients}"
            ),
            counts("users and runs", &Deed::ALL, &self.deeds),
            counts("faults", &FaultKind::ALL, &self.faults),
            counts("overlaps and orders outside what is promised", &Excuse::ALL, &self.excused),
        ]
    }

    pub(crate) const fn did(&mut self, deed: Deed) {
        self.add_deeds(deed, 1);
    }

    pub(crate) const fn add_deeds(&mut self, deed: Deed, count: u64) {
        self.deeds[deed as usize] += count;
    }

    /// What never came up: in the narrow mode, of the faults that are drawn there alone.
    pub(crate) fn missing(&self, is_narrow: bool) -> Vec<String> {
        let deeds = Deed::ALL.iter().zip(self.deeds).map(|(what, count)| (format!("{what:?}"), count));
        let faults = FaultKind::ALL.iter().zip(self.faults).map(|(what, count)| (format!("{what:?}"), count));
        let expected: Vec<_> = if is_narrow {
            faults.skip(FaultKind::DRAWN).collect()
        } else {
            deeds.chain(faults.take(FaultKind::DRAWN)).collect()
        };
        expected.into_iter().filter(|(_, count)| *count == 0).map(|(what, _)| what).collect()
    }
}

fn counts<T: std::fmt::Debug>(title: &str, kinds: &[T], counts: &[u64]) -> String {
    let counts: Vec<String> = kinds.iter().zip(counts).map(|(what, count)| format!("{what:?} {count}")).collect();
    format!("{title}: {}", counts.join(", "))
}
