//! What must hold in every run, one file each.

pub(crate) mod bounds;
mod calm;
mod ended;
mod exclusion;
mod given;
pub(crate) mod kept;
mod leftovers;
pub(crate) mod line;
mod loss;
mod order;
mod progress;
pub(crate) mod promises;
pub(crate) mod released;
mod tables;
pub(crate) mod taken;
mod unpolled;
mod validity;

use crate::world::World;

impl World {
    /// After each lock that was given.
    pub(crate) fn check_given(&self, number: usize) {
        self.check_order(number);
        self.check_exclusion(number);
        self.check_marks(number);
        self.check_least_left(number);
        self.check_not_shut_down(number);
    }
}
