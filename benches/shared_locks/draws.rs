//! Pauses that are the same in every run: SplitMix64, whose state is a count.

use std::time::Duration;

pub(crate) struct Draws(u64);

impl Draws {
    pub(crate) const fn new(task: usize) -> Self {
        Self((task as u64) << 32)
    }

    /// Uniform, in whole microseconds.
    pub(crate) fn up_to(&mut self, longest: Duration) -> Duration {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        Duration::from_micros((mixed ^ mixed >> 31) % (longest.as_micros() as u64 + 1))
    }
}
