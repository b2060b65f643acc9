//! Times that were measured.

use std::time::Duration;

/// Times, in any order.
#[derive(Clone, Debug, Default)]
pub(super) struct Samples(Vec<Duration>);

impl Samples {
    pub(super) fn add(&mut self, time: Duration) {
        self.0.push(time);
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// The least that so many of a hundred did not exceed; nothing of nothing.
    pub(super) fn percentile(&self, part: u32) -> Option<Duration> {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * part as usize).div_ceil(100);
        sorted.get(rank.saturating_sub(1)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples_themselves() {
        let mut samples = Samples::default();
        assert_eq!(samples.percentile(50), None);
        (1..=200).rev().for_each(|millis| samples.add(Duration::from_millis(millis)));
        let of = |part| samples.percentile(part).unwrap().as_millis();
        assert_eq!([of(0), of(50), of(99), of(100)], [1, 100, 198, 200]);
    }
}
