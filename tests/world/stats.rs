//! Counts of what happened, so that a run without violations can be told from one without events.

use crate::batch::Totals;
use crate::faults::FaultKind;

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
    /// Overlaps, and tokens out of order, that no rule promises to prevent.
    pub(crate) uncovered: u64,
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
        self.uncovered += other.uncovered;
        self.time_ms += other.time_ms;
        for (mine, theirs) in self.faults.iter_mut().zip(other.faults) {
            *mine += theirs;
        }
    }
}

impl Stats {
    pub(crate) fn print(&self) {
        println!(
            "runs {}, {} s of their time, events {}, commands {}",
            self.runs,
            self.time_ms / 1000,
            self.events,
            self.commands
        );
        println!(
            "locks asked for {}, given {}, futures dropped {}, extended {}, released {}, lost {}; clients {}",
            self.asked, self.given, self.abandoned, self.extended, self.released, self.lost, self.clients
        );
        print!("faults:");
        for (what, count) in FaultKind::ALL.iter().zip(self.faults) {
            print!(" {what:?} {count},");
        }
        println!();
        println!("overlaps and orders outside what is promised: {}", self.uncovered);
    }
}
