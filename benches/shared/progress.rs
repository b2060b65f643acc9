//! How far it is.

use std::fmt::Display;
use std::time::Instant;

pub(crate) struct Progress {
    steps: usize,
    begun: usize,
    since: Instant,
}

impl Progress {
    pub(crate) fn new(steps: usize) -> Self {
        Self { steps, begun: 0, since: now() }
    }

    /// Says what begins now, and how long all that is left will take if it takes as long as what is done.
    pub(crate) fn step(&mut self, what: impl Display) {
        let done = u32::try_from(self.begun).unwrap_or(u32::MAX);
        let left = u32::try_from(self.steps.saturating_sub(self.begun)).unwrap_or(u32::MAX);
        let left = self.since.elapsed().checked_div(done).map_or_else(String::new, |each| {
            let seconds = (each * left).as_secs();
            format!(", about {}:{:02} left", seconds / 60, seconds % 60)
        });
        self.begun += 1;
        eprintln!("[{} of {}{left}] {what}", self.begun, self.steps);
    }
}

#[expect(clippy::disallowed_methods, reason = "it tells people how long something takes")]
fn now() -> Instant {
    Instant::now()
}
