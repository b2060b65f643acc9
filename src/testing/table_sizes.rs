//! How much a client keeps in memory, for tests: nothing of it may stay when nothing is under way or held.

use crate::runtime::Shared;
use crate::runtime::order::Order;

impl Shared {
    /// What the client knows of others that wait, and of wake-ups that may come late: it goes when it is too old (P25).
    pub(crate) fn remembered(&self) -> Vec<(&'static str, usize)> {
        let [_, waiters, won] = self.order.as_ref().map_or([0; 3], Order::table_sizes);
        vec![
            ("clients that are known to wait, or to have been woken", waiters),
            ("keys for which a wake-up may come late", won),
        ]
    }

    /// The entries of each other table, by what they are about.
    pub(crate) fn table_sizes(&self) -> Vec<(&'static str, usize)> {
        let (scheduled, watched) = self.keep_alive.table_sizes();
        let [waited_for, ..] = self.order.as_ref().map_or([0; 3], Order::table_sizes);
        let longest_queue = self.instances.iter().map(|instance| instance.outstanding()).max();
        vec![
            ("leases that are kept alive", scheduled),
            ("keys that are watched", watched),
            ("tries under way", self.attempts.under_way()),
            ("locks with a holder or waiters", self.slots.count()),
            ("keys that are waited for", waited_for),
            ("requests that one connection has yet to answer", longest_queue.unwrap_or(0)),
            ("pending releases", self.releaser.pending().iter().sum()),
        ]
    }
}
