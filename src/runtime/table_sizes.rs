//! How much a client keeps in memory, for tests: nothing of it may stay when nothing is under way or held.

use super::shared::Shared;
use super::succession::Succession;

impl Shared {
    /// The entries of each table, by what they are about.
    pub(crate) fn table_sizes(&self) -> Vec<(&'static str, usize)> {
        let (scheduled, watched) = self.keep_alive.table_sizes();
        vec![
            ("leases that are kept alive", scheduled),
            ("keys that are watched", watched),
            ("tries under way", self.attempts.under_way()),
            ("locks with tries under way", self.limiter.locks()),
            ("locks that somebody has or waits for", self.lines.count()),
            ("holders with a lease or a try", self.reentry_table.in_use()),
            ("keys that are waited for", self.succession.as_ref().map_or(0, Succession::waited_for)),
            ("pending releases", self.releaser.pending().iter().sum()),
        ]
    }
}
