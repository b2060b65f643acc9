//! The advice that follows from the measured times.

use std::time::Duration;

use super::Measured;
use crate::output::time;
use crate::settings::Settings;

/// What a timeout is to be beyond what nearly all requests take: they are slower on a bad day.
const TIMES: u32 = 5;

/// A ttl has room for so many instance timeouts, so that a renewal which was not answered can be tried again.
const TIMEOUTS_IN_TTL: u32 = 5;

pub(super) fn advice(measured: &Measured, settings: &Settings) -> Vec<String> {
    let mut advice = Vec::new();
    let slowest = measured.slowest.iter().filter_map(|(address, took)| Some(((*took)?, address))).max();
    for (address, _) in measured.slowest.iter().filter(|(_, took)| took.is_none()) {
        advice.push(format!("{address} could not be used; `redquorum check` says why"));
    }
    let Some((slowest, address)) = slowest else { return advice };
    let needed = slowest.saturating_mul(TIMES);
    let (given, ttl) = (settings.instance_timeout, settings.ttl);
    advice.push(if given < needed {
        let wanted = time(round_up(needed));
        format!("instance timeout: {} is little for {address}; use at least {wanted}", time(given))
    } else {
        format!("instance timeout: {} is enough, the slowest ({address}) took {}", time(given), time(slowest))
    });
    let shortest = given.max(round_up(needed)).saturating_mul(TIMEOUTS_IN_TTL);
    advice.push(if ttl < shortest {
        format!("ttl: {} is short for such a timeout; use at least {}", time(ttl), time(shortest))
    } else {
        format!("ttl: {} is enough, down to {} with this timeout", time(ttl), time(shortest))
    });
    advice
}

/// To a number that people write into a file of settings.
fn round_up(time: Duration) -> Duration {
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX).saturating_add(1);
    Duration::from_millis(millis.div_ceil(10).saturating_mul(10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_rounded_up() {
        assert_eq!(round_up(Duration::from_micros(9_900)), Duration::from_millis(10));
        assert_eq!(round_up(Duration::from_millis(10)), Duration::from_millis(20));
    }
}
