//! Clocks that run at their own rate. Times are nanoseconds; `now` is always true time, which
//! nobody in the simulated world can read.

/// Two clocks whose rates differ by `ppm` at most: each may be off by this much.
///
/// `(1 + x) / (1 - x) <= 1 + p` holds for `x = p / (2 + p)`.
pub(crate) fn most_rate(drift_ppm: u32) -> i64 {
    i64::from(drift_ppm) * 1_000_000 / (2_000_000 + i64::from(drift_ppm))
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Clock {
    pub(crate) offset_ns: i64,
    pub(crate) rate_ppm: i64,
}

impl Clock {
    /// What the clock shows at `now`.
    pub(crate) fn at(self, now: u64) -> u64 {
        let true_ns = now.cast_signed();
        (true_ns + true_ns * self.rate_ppm / 1_000_000 + self.offset_ns).max(0).cast_unsigned()
    }

    /// The true time that passes while the clock advances by `local`, rounded up.
    pub(crate) fn true_span(self, local: u64) -> u64 {
        let span = local.cast_signed() * 1_000_000 / (1_000_000 + self.rate_ppm);
        span.max(0).cast_unsigned() + 1
    }
}
