//! P4: a connection over which three requests were not answered in time is given up.

use std::time::Duration;

use crate::time::now;
use crate::world::World;

/// After so many.
const SILENT_AFTER: usize = 3;

/// What it takes to find out whether a clock was stepped, which is waited for.
const COMPARISON: Duration = Duration::from_millis(500);

impl World {
    pub(super) fn check_silent(&self) {
        // What is on its way when it is given up ends by its own deadline.
        let patience = self.scenario.instance_timeout * 4 + COMPARISON * 2;
        for (client, links) in self.links.iter().enumerate() {
            for (server, link) in links.iter().enumerate() {
                let Some(last) = link.unanswered(SILENT_AFTER - 1) else { continue };
                if last + patience <= now() && !self.machines[client].was_disturbed_since(last) {
                    self.violate(
                        "a silent connection is given up",
                        format!("client {client} to {server}, since {last:?}"),
                    );
                }
            }
        }
    }
}
