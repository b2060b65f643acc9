//! What must hold in every run, one file each.

mod absence;
mod behind;
pub(crate) mod bounds;
mod calm;
mod certified;
mod ended;
mod exclusion;
mod given;
mod grants;
mod instances;
pub(crate) mod kept;
mod leftovers;
mod let_go;
pub(crate) mod line;
mod loss;
pub(crate) mod nobody;
mod order;
mod progress;
pub(crate) mod promises;
mod readers;
pub(crate) mod released;
pub(crate) mod rivals;
pub(crate) mod scenes;
pub(crate) mod silent;
mod tables;
pub(crate) mod taken;
mod together;
pub(crate) mod told;
mod unpolled;
mod validity;
mod votes;

use std::time::Duration;

use crate::history::Hold;
use crate::world::World;

impl World {
    /// After each lock that was given.
    pub(crate) fn check_given(&self, number: usize) {
        self.check_order(number);
        self.check_exclusion(number);
        self.check_together(number);
        self.check_marks(number);
        self.check_least_left(number);
        self.check_not_shut_down(number);
        self.absorb();
        self.check_certified(number);
        self.check_votes(number);
        self.check_grants(number);
    }

    /// Now and then, while a user has locks.
    pub(crate) fn check_held(&self) {
        self.absorb();
        let held = |(number, hold): (usize, &Hold)| hold.is_valid().then_some(number);
        let held: Vec<usize> = self.history().holds.iter().enumerate().filter_map(held).collect();
        for number in held {
            self.check_certified(number);
            self.check_votes(number);
            self.check_absences(number);
        }
        self.check_told_of_losses();
        self.check_silent();
        self.check_let_go();
    }

    /// What is under the keys of a lock, which client has it, and until when it may be relied on by the clock of its machine.
    fn relied_on(&self, number: usize) -> Option<(Vec<u8>, (usize, u64), Duration)> {
        let history = self.history();
        let hold = history.holds.get(number)?;
        let remaining = hold.lease.as_ref()?.remaining();
        let reading = self.machines[hold.client].clock.reading();
        (!remaining.is_zero()).then(|| (hold.value.clone(), (hold.client, hold.life), reading + remaining))
    }
}
