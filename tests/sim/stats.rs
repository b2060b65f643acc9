//! Counts of what happened, so that a run without violations can be told from one without events.

use crate::batch::Totals;
use crate::faults::FaultKind;
use crate::world::PlainStats;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stats {
    pub(crate) runs: u64,
    pub(crate) events: u64,
    pub(crate) rounds: u64,
    pub(crate) wins: u64,
    pub(crate) extends: u64,
    pub(crate) releases: u64,
    pub(crate) losses: u64,
    pub(crate) stale_repeats: u64,
    pub(crate) repairs: u64,
    pub(crate) admissions: u64,
    pub(crate) quarantines: u64,
    pub(crate) faults: [u64; FaultKind::ALL.len()],
    pub(crate) plain: PlainStats,
    pub(crate) lost_messages: u64,
    pub(crate) duplicates: u64,
    /// Announcements, releases that named a successor, and reservations that it took up.
    pub(crate) messages: u64,
    pub(crate) passed_on: u64,
    pub(crate) taken_up: u64,
    /// Overlaps that no rule promises to prevent (see `invariants`).
    pub(crate) uncovered: u64,
}

impl Totals for Stats {
    fn add(&mut self, other: &Self) {
        self.runs += other.runs;
        self.events += other.events;
        self.rounds += other.rounds;
        self.wins += other.wins;
        self.extends += other.extends;
        self.releases += other.releases;
        self.losses += other.losses;
        self.stale_repeats += other.stale_repeats;
        self.repairs += other.repairs;
        self.admissions += other.admissions;
        self.quarantines += other.quarantines;
        self.plain.add(&other.plain);
        self.lost_messages += other.lost_messages;
        self.duplicates += other.duplicates;
        self.messages += other.messages;
        self.passed_on += other.passed_on;
        self.taken_up += other.taken_up;
        self.uncovered += other.uncovered;
        for (mine, theirs) in self.faults.iter_mut().zip(other.faults) {
            *mine += theirs;
        }
    }
}

impl Stats {
    pub(crate) fn print(&self) {
        println!("runs {}, events {}", self.runs, self.events);
        println!(
            "rounds {}, won {}, extended {}, released {}, lost {}, repeated as stale {}, repaired {}",
            self.rounds, self.wins, self.extends, self.releases, self.losses, self.stale_repeats, self.repairs
        );
        self.plain.print();
        println!("admissions {}, quarantines {}", self.admissions, self.quarantines);
        print!("faults:");
        for (what, count) in FaultKind::ALL.iter().zip(self.faults) {
            print!(" {what:?} {count},");
        }
        println!(" lost messages {}, duplicates {}", self.lost_messages, self.duplicates);
        println!(
            "announcements {}, passed on {}, taken up on an instance {}",
            self.messages, self.passed_on, self.taken_up
        );
        println!("overlaps outside what is promised: {}", self.uncovered);
    }
}
