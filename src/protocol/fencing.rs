//! Fencing tokens, proposed by the client and confirmed by the instances in the round that grants
//! the lock (P12, P13).

use std::fmt;
use std::time::Duration;

use crate::protocol::quorum::{MAX_INSTANCES, Quorum};

/// Low bits of every token that are kept for hand-overs between waiters of one process (P24).
const HAND_OVER_BITS: u32 = 12;
const STEP: u64 = 1 << HAND_OVER_BITS;

/// 2025-01-01T00:00:00Z in microseconds since the Unix epoch: where tokens begin to count.
///
/// Counted from here, the 51 bits that remain above the hand-over bits last until the year 2096
/// (from 1970 they would end in 2041).
const EPOCH_US: u64 = 1_735_689_600_000_000;

/// How far a token may be ahead of an instance's clock, and a client's clock apart from the instances'
/// (P12). `acquire.lua` has the same number.
pub const MAX_AHEAD: Duration = Duration::from_secs(24 * 60 * 60);
const MAX_AHEAD_US: u64 = MAX_AHEAD.as_secs() * 1_000_000;

/// How much the clocks of a quorum may differ for all of them to grant the largest proposal, and how far the token of one
/// instance alone may be ahead for a client to go above it.
const MARGIN_US: u64 = 60 * 1_000_000;

/// A client whose clock is further from the one that the instances agree on proposes by theirs.
const LEEWAY_US: u64 = 1_000_000;

/// A number that is larger for every later holder of the same resource.
///
/// Store it with what the lock protects and refuse writes that carry a smaller one, as in
/// `UPDATE .. SET .., fence = $1 WHERE fence <= $1`: then a holder that was paused past its lease
/// can do no harm. Tokens are positive and fit a signed 64-bit column.
///
/// Tokens are compared per resource; across resources they say nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(u64);

impl FencingToken {
    /// The token with this number; `None` unless it is positive and fits a signed 64-bit column.
    #[must_use]
    pub const fn from_number(number: u64) -> Option<Self> {
        if number == 0 || number >= 1 << 63 { None } else { Some(Self(number)) }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The number as the signed type that most databases store.
    #[must_use]
    pub const fn as_i64(self) -> i64 {
        self.0.cast_signed()
    }
}

/// What the protocol does with tokens; users need none of it.
#[doc(hidden)]
impl FencingToken {
    /// The largest token, 2^63 - 4096: the last that still fits a signed 64-bit column.
    const MAX: u64 = (1 << 63) - STEP;

    /// What a client proposes: its wall clock, or the next number after the last that it saw.
    ///
    /// `wall_us` is in microseconds since the Unix epoch. P12: the low bits stay zero.
    pub fn propose(wall_us: u64, last_seen: Option<Self>) -> Self {
        let by_clock = wall_us.saturating_sub(EPOCH_US).max(1).saturating_mul(STEP).min(Self::MAX);
        let after_last = last_seen.map_or(0, |seen| seen.next_grant().0);
        Self(by_clock.max(after_last))
    }

    /// The largest token that a client believes an instance has stored, by the clock that it proposes by
    /// (P12). A quorum's clocks are about there, so a proposal above a larger one would be refused.
    pub fn most_believed(wall_us: u64) -> Self {
        Self::propose(wall_us.saturating_add(MAX_AHEAD_US - MARGIN_US), None)
    }

    /// The largest token that a client believes of one instance alone (P12): no clock that is about right has made a larger one.
    pub fn most_believed_alone(wall_us: u64) -> Self {
        Self::propose(wall_us.saturating_add(MARGIN_US), None)
    }

    /// Whether it is so far ahead of an instance's clock that no clock can have made it (P12).
    ///
    /// As `acquire.lua`: in whole milliseconds, and before 2025 everything is.
    pub const fn is_ahead_of(self, wall_us: u64) -> bool {
        let most_ms = (wall_us / 1000 + MAX_AHEAD_US / 1000).saturating_sub(EPOCH_US / 1000);
        self.0 > most_ms.saturating_mul(1000 * STEP)
    }

    /// The least and the most of the floor of an instance that waits for so long, as it may have forgotten tokens (P13): they were proposed
    /// by a clock that shows `proposing_us` by now, or somewhat more. Not much more, for its clock may be the one that is ahead. In whole
    /// milliseconds, as its quarantine is: else it would vote shortly before its floor is past.
    pub fn floor_after(proposing_us: u64, wait_ms: u64) -> (u64, u64) {
        let least = (proposing_us / 1_000).saturating_add(wait_ms).saturating_mul(1_000).saturating_sub(EPOCH_US);
        (least, least.saturating_add(MARGIN_US))
    }

    /// What a clock that shows `wall_us` reads in the unit of stored tokens: below zero before 2025.
    pub const fn since_epoch_us(wall_us: u64) -> i64 {
        wall_us.cast_signed().saturating_sub_unsigned(EPOCH_US)
    }

    /// What the clock read that proposed it, in microseconds since the Unix epoch.
    pub const fn clock_us(self) -> u64 {
        self.0 / STEP + EPOCH_US
    }

    /// The smallest token that a grant may carry after this one, hand-overs included.
    pub const fn next_grant(self) -> Self {
        let next = (self.0 / STEP).saturating_add(1).saturating_mul(STEP);
        Self(if next > Self::MAX { Self::MAX } else { next })
    }

    /// That of the grant by which a lease was won that has this token, perhaps after hand-overs (P24).
    pub const fn of_grant(self) -> Self {
        Self(self.0 / STEP * STEP)
    }

    /// The token for a hand-over inside the process, if there is one left below the next grant's.
    pub const fn next_in_lease(self) -> Option<Self> {
        if (self.0 + 1).is_multiple_of(STEP) { None } else { Some(Self(self.0 + 1)) }
    }

    /// What requests carry: the microseconds since 2025 at which the lease's token was proposed. Hand-overs
    /// do not change it.
    pub const fn proposed_us(self) -> u64 {
        self.0 / STEP
    }

    /// The token as an instance stores it, as the score of a sorted set (P13): microseconds since 2025, below 2^51, so that a
    /// double holds them exactly.
    #[expect(clippy::cast_precision_loss, reason = "it is below 2^51")]
    pub const fn to_score(self) -> f64 {
        self.proposed_us() as f64
    }

    /// Reads a token that an instance stored; anything that is not one is `None`.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it was compared with the bounds")]
    pub fn from_score(score: f64) -> Option<Self> {
        // NaN is within no bounds.
        if !(1.0..Self(Self::MAX).to_score() + 1.0).contains(&score) {
            return None;
        }
        Self::from_number(score as u64 * STEP)
    }

    /// The same as text.
    pub fn to_wire(self) -> String {
        self.to_score().to_string()
    }

    /// The same from a server's text.
    pub fn from_wire(wire: &[u8]) -> Option<Self> {
        Self::from_score(std::str::from_utf8(wire).ok()?.parse().ok()?)
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The clock by which a client proposes tokens (P12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProposingClock {
    /// What it shows, in microseconds since the Unix epoch.
    pub us: u64,
    /// Whether it agrees with what is known of the instances' clocks; false where nothing is.
    pub is_of_instances: bool,
}

impl ProposingClock {
    /// What a client proposes by it, above the last that it proposed. Not above one that is far ahead of the instances: that was
    /// proposed by the client's own clock, before any of theirs was known, or by one that was set back since.
    pub fn propose(self, last: Option<FencingToken>) -> FencingToken {
        let is_near =
            |last: &FencingToken| !self.is_of_instances || *last <= FencingToken::most_believed_alone(self.us);
        FencingToken::propose(self.us, last.filter(is_near))
    }
}

/// The wall clocks of a client and of its instances are further apart than [`MAX_AHEAD`]. Which of them
/// is wrong cannot be known, so the client proposes nothing (P12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClocksApart {
    /// The client's, in microseconds since the Unix epoch.
    pub own_us: u64,
    /// What the instances agree on.
    pub instances_us: u64,
}

/// What the clock shows by which a client proposes tokens (P12): its own, unless that is more than a
/// second off the one that the instances agree on; then theirs. A client that is behind need not ask
/// twice for each lock, and one that is ahead does not make all others do so.
///
/// `readings` are the instances' clocks, one for each, as far as they are known. Of a plain majority of an
/// odd number the instances agree on the one in the middle: no reading of a minority moves
/// it past the others.
///
/// # Errors
/// When both are too far apart.
pub fn proposing_clock(
    own_us: u64,
    readings: impl Iterator<Item = Option<u64>>,
    quorum: Quorum,
) -> Result<ProposingClock, ClocksApart> {
    let by = |us, is_of_instances| Ok(ProposingClock { us, is_of_instances });
    let mut all = [0; MAX_INSTANCES];
    all.iter_mut().zip(readings).for_each(|(place, reading)| *place = reading.unwrap_or(0));
    let known = all.get_mut(..quorum.instances()).unwrap_or_default();
    known.sort_unstable();
    let agreed = known.get(quorum.votes().saturating_sub(1)).copied().unwrap_or(0);
    if agreed == 0 {
        // Those that store the proposal must not have one ahead of all others for it.
        let latest = known.last().copied().filter(|latest| *latest > 0);
        return by(latest.map_or(own_us, |latest| own_us.min(latest)), latest.is_some());
    }
    if own_us.abs_diff(agreed) > MAX_AHEAD_US {
        return Err(ClocksApart { own_us, instances_us: agreed });
    }
    by(if own_us.abs_diff(agreed) > LEEWAY_US { agreed } else { own_us }, true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_clock_lasts_until_2096() {
        let year_2096 = 3_976_214_400_000_000;
        let token = FencingToken::propose(year_2096, None);
        assert!(token.get() < FencingToken::MAX);
        assert_eq!(FencingToken(FencingToken::MAX).next_grant().get(), FencingToken::MAX, "and stops there");
        assert!(token > FencingToken::propose(year_2096 - 1, None));
    }

    #[test]
    fn a_clock_before_the_epoch_still_gives_a_token() {
        let first = FencingToken::propose(0, None);
        assert_eq!(first.get(), STEP);
        assert_eq!(FencingToken::propose(0, Some(first)).get(), 2 * STEP);
    }

    #[test]
    fn a_token_is_ahead_when_no_clock_within_a_day_can_have_made_it() {
        let now = 1_750_000_000_123_456;
        let made_at = |us| FencingToken::propose(us, None);
        assert!(!made_at(now).is_ahead_of(now));
        assert!(!made_at(now - now % 1000 + MAX_AHEAD_US).is_ahead_of(now));
        assert!(made_at(now - now % 1000 + MAX_AHEAD_US + 1).is_ahead_of(now));
        assert!(made_at(now).is_ahead_of(0), "an instance whose clock was never set");
        assert!(FencingToken(FencingToken::MAX).is_ahead_of(now));
        assert!(!FencingToken(1).is_ahead_of(u64::MAX / 2));
        assert_eq!(made_at(now).clock_us(), now);
        let most = FencingToken::most_believed(now);
        assert!(most > made_at(now + MAX_AHEAD_US - MARGIN_US - 1));
        assert!(!most.next_grant().is_ahead_of(now - MARGIN_US + 1000), "all of a quorum grant it");
    }

    #[test]
    fn a_minority_of_the_instances_does_not_move_the_clock_that_they_agree_on() {
        const NOW: u64 = 1_750_000_000_000_000;
        const HOUR: u64 = 3_600_000_000;
        let by = |own, readings: [Option<u64>; 5]| {
            let clock = proposing_clock(own, readings.into_iter(), Quorum::majority(5).unwrap());
            clock.inspect(|clock| assert_eq!(clock.is_of_instances, readings != [None; 5])).map(|clock| clock.us)
        };
        let now = Some(NOW);
        assert_eq!(by(NOW, [None; 5]), Ok(NOW));
        assert_eq!(by(u64::MAX, [now, now, None, None, None]), Ok(NOW), "too few are known");
        assert_eq!(by(NOW - HOUR, [now, now, None, None, None]), Ok(NOW - HOUR));
        for (lie, other) in [(Some(u64::MAX), Some(1)), (Some(1), Some(1)), (Some(u64::MAX), Some(u64::MAX))] {
            assert_eq!(by(NOW, [lie, now, other, now, now]), Ok(NOW));
            assert_eq!(by(NOW - HOUR, [now, lie, now, now, other]), Ok(NOW), "behind");
            assert_eq!(by(NOW + HOUR, [now, lie, now, other, now]), Ok(NOW), "ahead");
            for own in [NOW + 5, NOW - 5, NOW + LEEWAY_US, NOW - LEEWAY_US] {
                assert_eq!(by(own, [lie, other, now, now, now]), Ok(own));
            }
            for own in [u64::MAX, NOW + 25 * HOUR, NOW - 25 * HOUR, 0] {
                let apart = ClocksApart { own_us: own, instances_us: NOW };
                assert_eq!(by(own, [lie, now, now, other, now]), Err(apart));
            }
        }
    }

    /// A client whose clock is ahead proposed before any instance was connected: all its later tokens were ahead by as much.
    #[test]
    fn a_proposal_by_a_clock_that_was_ahead_takes_no_later_ones_along() {
        const NOW: u64 = 1_750_000_000_000_000;
        let clock = |is_of_instances| ProposingClock { us: NOW, is_of_instances };
        let [near, far] = [50_000_000, 90_000_000].map(|ahead| FencingToken::propose(NOW + ahead, None));
        assert_eq!(clock(true).propose(Some(near)), near.next_grant());
        assert_eq!(clock(true).propose(Some(far)), FencingToken::propose(NOW, None));
        assert_eq!(clock(false).propose(Some(far)), far.next_grant());
    }

    #[test]
    fn text_that_is_not_a_token_is_none() {
        for wire in ["", "0", "-1", "-inf", "inf", "nan", "1x", "2251799813685248", "9223372036854775808"] {
            assert_eq!(FencingToken::from_wire(wire.as_bytes()), None, "{wire}");
        }
    }

    #[test]
    fn hand_overs_stay_below_the_next_grant() {
        let mut token = FencingToken::propose(EPOCH_US + 5, None);
        let next = token.next_grant();
        let mut count = 0;
        while let Some(handed) = token.next_in_lease() {
            assert!(handed > token && handed < next && handed.next_grant() == next);
            token = handed;
            count += 1;
        }
        assert_eq!(count, 4095);
        assert_eq!(token.as_i64() + 1, next.as_i64());
    }

    proptest! {
        #[test]
        fn a_proposal_is_after_everything_seen_and_the_order_of_scores_is_that_of_tokens(
            wall in any::<u64>(), a in 1u64..(1 << 62), b in 1u64..(1 << 62),
        ) {
            let (a, b) = (FencingToken(a), FencingToken(b));
            prop_assert!(FencingToken::propose(wall, Some(a)) > a);
            let [a, b] = [a, b].map(FencingToken::next_grant);
            prop_assert_eq!(a.to_score().partial_cmp(&b.to_score()), Some(a.cmp(&b)));
            prop_assert_eq!(FencingToken::from_wire(a.to_wire().as_bytes()), Some(a));
            prop_assert!(FencingToken::propose(wall, None).as_i64() > 0);
        }
    }
}
