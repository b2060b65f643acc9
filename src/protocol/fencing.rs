//! Fencing tokens, proposed by the client and confirmed by the instances in the round that grants
//! the lock (P12, P13).

use std::fmt;

/// Low bits of every token that are kept for hand-overs between waiters of one process (P24).
const HAND_OVER_BITS: u32 = 12;
const STEP: u64 = 1 << HAND_OVER_BITS;

/// 2025-01-01T00:00:00Z in microseconds since the Unix epoch: where tokens begin to count.
///
/// Counted from here, the 51 bits that remain above the hand-over bits last until the year 2096
/// (from 1970 they would end in 2041).
const EPOCH_US: u64 = 1_735_689_600_000_000;

/// Digits of a token on the wire: all of them, so that text order is number order (P13).
const WIRE_DIGITS: usize = 19;

/// A number that is larger for every later holder of the same resource.
///
/// Store it with what the lock protects and refuse writes that carry a smaller one, as in
/// `UPDATE .. SET .., fence = $1 WHERE fence <= $1`: then a holder that was paused past its lease
/// can do no harm. Tokens are positive and fit a signed 64-bit column.
///
/// Tokens are compared per resource; across resources they say nothing. The order is kept by the
/// instances for `fence_retention` after the last grant, and by the clients' wall clocks past that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(u64);

impl FencingToken {
    /// The largest token, 2^63 - 4096: the last that still fits a signed 64-bit column.
    const MAX: u64 = (1 << 63) - STEP;

    /// What a client proposes: its wall clock, or the next number after the last that it saw.
    ///
    /// `wall_us` is in microseconds since the Unix epoch. P12: the low bits stay zero.
    #[must_use]
    pub fn propose(wall_us: u64, last_seen: Option<Self>) -> Self {
        let by_clock = wall_us.saturating_sub(EPOCH_US).max(1).saturating_mul(STEP).min(Self::MAX);
        let after_last = last_seen.map_or(0, |seen| seen.next_grant().0);
        Self(by_clock.max(after_last))
    }

    /// The smallest token that a grant may carry after this one, hand-overs included.
    #[must_use]
    pub const fn next_grant(self) -> Self {
        let next = (self.0 / STEP).saturating_add(1).saturating_mul(STEP);
        Self(if next > Self::MAX { Self::MAX } else { next })
    }

    /// The token for a hand-over inside the process, if there is one left below the closed mark.
    #[must_use]
    pub const fn hand_over(self) -> Option<Self> {
        if self.0 + 1 >= self.closed().0 { None } else { Some(Self(self.0 + 1)) }
    }

    /// What a release leaves behind: above every token of the lease, below every other grant's. An
    /// acquire of the same lease that arrives later finds its token used up, an extend sees that it
    /// must not repair (P6, P10).
    #[must_use]
    pub const fn closed(self) -> Self {
        Self(self.0 | (STEP - 1))
    }

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

    /// The token as instances store it: 19 digits, so that they can compare it as text. Numbers in
    /// Lua are doubles and would lose the low digits (P13).
    #[must_use]
    pub fn to_wire(self) -> String {
        format!("{:0width$}", self.0, width = WIRE_DIGITS)
    }

    /// Reads a token that an instance stored; anything that is not one is `None`.
    #[must_use]
    pub fn from_wire(wire: &[u8]) -> Option<Self> {
        let is_token = wire.len() == WIRE_DIGITS && wire.iter().all(u8::is_ascii_digit);
        let number = std::str::from_utf8(wire).ok().filter(|_| is_token)?.parse().ok()?;
        Self::from_number(number)
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
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
        assert!(token > FencingToken::propose(year_2096 - 1, None));
    }

    #[test]
    fn a_clock_before_the_epoch_still_gives_a_token() {
        let first = FencingToken::propose(0, None);
        assert_eq!(first.get(), STEP);
        assert_eq!(FencingToken::propose(0, Some(first)).get(), 2 * STEP);
    }

    #[test]
    fn text_that_is_not_a_token_is_none() {
        for wire in
            ["", "1", "-000000000000000001", "000000000000000000a", "0000000000000000000", "9223372036854775808"]
        {
            assert_eq!(FencingToken::from_wire(wire.as_bytes()), None, "{wire}");
        }
    }

    #[test]
    fn hand_overs_stay_below_the_next_grant() {
        let mut token = FencingToken::propose(EPOCH_US + 5, None);
        let next = token.next_grant();
        let mut count = 0;
        while let Some(handed) = token.hand_over() {
            assert!(handed > token && handed < next && handed.next_grant() == next);
            token = handed;
            count += 1;
        }
        assert_eq!(count, 4094);
        assert!(token < token.closed() && token.closed() < next && token.closed().next_grant() == next);
        assert_eq!(token.closed().hand_over(), None);
        assert_eq!(FencingToken(FencingToken::MAX).closed().as_i64(), i64::MAX);
    }

    proptest! {
        #[test]
        fn a_proposal_is_after_everything_seen_and_text_order_is_number_order(
            wall in any::<u64>(), a in 1u64..(1 << 62), b in 1u64..(1 << 62),
        ) {
            let (a, b) = (FencingToken(a), FencingToken(b));
            prop_assert!(FencingToken::propose(wall, Some(a)) > a);
            prop_assert_eq!(a.to_wire().cmp(&b.to_wire()), a.cmp(&b));
            prop_assert_eq!(FencingToken::from_wire(a.to_wire().as_bytes()), Some(a));
            prop_assert!(FencingToken::propose(wall, None).as_i64() > 0);
        }
    }
}
