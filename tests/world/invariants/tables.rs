//! What a client keeps in memory is bounded by what is asked of it, and gone in the end.

use redquorum::Redlock;
use redquorum::testing::simulation::{remembered, table_sizes};

use crate::world::World;

/// More than all users together can have under way.
const MOST: usize = 200;

impl World {
    pub(crate) fn check_tables_are_bounded(&self) {
        for (index, client) in (0..self.machines.len()).filter_map(|index| Some((index, self.client(index)?.0))) {
            self.check_tables("tables are bounded", index, &table_sizes(&client), MOST);
            self.check_tables("tables are bounded", index, &remembered(&client), MOST);
        }
    }

    /// After a shutdown.
    pub(crate) fn check_tables_are_empty(&self, index: usize, client: &Redlock) {
        self.check_tables("tables are empty in the end", index, &table_sizes(client), 0);
    }

    /// When nobody has waited for long.
    pub(crate) fn check_all_is_forgotten(&self) {
        for (index, client) in (0..self.machines.len()).filter_map(|index| Some((index, self.client(index)?.0))) {
            self.check_tables("nobody is remembered in the end", index, &remembered(&client), 0);
        }
    }

    fn check_tables(&self, invariant: &'static str, index: usize, sizes: &[(&str, usize)], most: usize) {
        if sizes.iter().any(|(_, size)| *size > most) {
            self.violate(invariant, format!("client {index}: {sizes:?}"));
        }
    }
}
