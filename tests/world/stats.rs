//! Counts of what happened, so that a run without violations can be told from one without events.

use crate::batch::Totals;
use crate::deeds::Deed;
use crate::faults::FaultKind;
use crate::invariants::promises::Excuse;
use crate::scenario::{CUT, FORGETFUL, MOVED, NARROW, TOGETHER};

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
    pub(crate) deeds: Deeds,
    /// Overlaps, and tokens out of order, that no rule promises to prevent.
    pub(crate) excused: [u64; Excuse::ALL.len()],
    /// Virtual time, in ms.
    pub(crate) time_ms: u64,
}

/// How often each was done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deeds([u64; Deed::ALL.len()]);

impl Default for Deeds {
    fn default() -> Self {
        Self([0; Deed::ALL.len()])
    }
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
        for (mine, theirs) in self.deeds.0.iter_mut().zip(other.deeds.0) {
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
            counts("users and runs", &Deed::ALL, &self.deeds.0),
            counts("faults", &FaultKind::ALL, &self.faults),
            counts("overlaps and orders outside what is promised", &Excuse::ALL, &self.excused),
        ]
    }

    pub(crate) const fn did(&mut self, deed: Deed) {
        self.add_deeds(deed, 1);
    }

    pub(crate) const fn add_deeds(&mut self, deed: Deed, count: u64) {
        self.deeds.0[deed as usize] += count;
    }

    /// The excuses that are used so often that the invariants say little. Of few locks chance decides.
    pub(crate) fn too_often_excused(&self) -> Vec<Excuse> {
        const LEAST: u64 = 10;
        let is_too_often = |(excuse, count): &(Excuse, u64)| {
            let most = self.given * excuse.most_permille() / 1_000;
            *count > most.max(LEAST)
        };
        Excuse::ALL.into_iter().zip(self.excused).filter(is_too_often).map(|(excuse, _)| excuse).collect()
    }

    /// What never came up in a mode, by its first seed: of the faults and deeds that are drawn there alone.
    pub(crate) fn missing(&self, mode: u64) -> Vec<String> {
        let deeds = Deed::ALL.iter().zip(self.deeds.0).map(|(what, count)| (format!("{what:?}"), count));
        let faults = FaultKind::ALL.iter().zip(self.faults).map(|(what, count)| (format!("{what:?}"), count));
        let expected: Vec<_> = match mode {
            FORGETFUL.. => faults.skip(FaultKind::FIRST_FORGETFUL).collect(),
            CUT.. => Vec::new(),
            MOVED.. => {
                let faults = faults.take(FaultKind::FIRST_FORGETFUL).skip(FaultKind::FIRST_MOVED);
                deeds.skip(Deed::FIRST_MOVED).chain(faults).collect()
            }
            TOGETHER.. => deeds.take(Deed::FIRST_MOVED).skip(Deed::FIRST_TOGETHER).collect(),
            NARROW.. => faults.take(FaultKind::FIRST_MOVED).skip(FaultKind::DRAWN).collect(),
            _ => deeds.take(Deed::FIRST_TOGETHER).chain(faults.take(FaultKind::DRAWN)).collect(),
        };
        let missing = expected.into_iter().filter(|(_, count)| *count == 0);
        missing.map(|(what, _)| what).collect()
    }
}

fn counts<T: std::fmt::Debug>(title: &str, kinds: &[T], counts: &[u64]) -> String {
    let counts: Vec<String> = kinds.iter().zip(counts).map(|(what, count)| format!("{what:?} {count}")).collect();
    format!("{title}: {}", counts.join(", "))
}
