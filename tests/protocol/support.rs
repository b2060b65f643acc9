//! What the tests share: the kinds of replies, and a round with known times.

use std::time::Duration;

use redquorum::testing::protocol::Cause;
use redquorum::testing::protocol::{FencingToken, InstanceId, Instant, LeaseTerms, Quorum, Refusal, Reply, Round};

/// The kinds of replies; `NoneYet` is the lack of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Granted,
    Refused,
    NotAdmitted,
    Stale,
    NotSent,
    Unknown,
    NoneYet,
}

pub(crate) const ALL: [Kind; 7] =
    [Kind::Granted, Kind::Refused, Kind::NotAdmitted, Kind::Stale, Kind::NotSent, Kind::Unknown, Kind::NoneYet];

impl Kind {
    pub(crate) fn reply(self) -> Option<Reply> {
        Some(match self {
            Self::Granted => Reply::Granted,
            Self::Refused => Reply::Refused(Refusal { value: Some(b"foreign".to_vec()), ..Refusal::default() }),
            Self::NotAdmitted => Reply::NotAdmitted { remaining: Some(Duration::from_secs(3)) },
            Self::Stale => Reply::Stale { stored: FencingToken::from_number(1 << 40).unwrap() },
            Self::NotSent => Reply::NotSent(Cause::Silent),
            Self::Unknown => Reply::Unknown(Cause::TimedOut),
            Self::NoneYet => return None,
        })
    }
}

/// One second: drift 12 ms, valid for 988 ms, won within 788 ms or not at all.
pub(crate) fn terms() -> LeaseTerms {
    LeaseTerms::new(Duration::from_secs(1), 10_000).unwrap()
}

pub(crate) const START: Instant = Instant::from_millis(5_000);

pub(crate) const fn at(millis: u64) -> Instant {
    Instant::from_millis(5_000 + millis)
}

/// The last nanosecond before `at(millis)`.
pub(crate) const fn just_before(millis: u64) -> Instant {
    Instant::from_nanos((5_000 + millis) * 1_000_000 - 1)
}

pub(crate) fn feed(round: &mut Round, kinds: &[Kind], now: Instant) {
    for (index, kind) in kinds.iter().enumerate() {
        if let Some(reply) = kind.reply() {
            round.on_reply(InstanceId::new(index), reply, now);
        }
    }
}

/// An acquire round with these replies, all at once.
pub(crate) fn acquired(kinds: &[Kind]) -> Round {
    let mut round = Round::acquire(Quorum::majority(kinds.len()).unwrap(), terms(), START);
    feed(&mut round, kinds, at(1));
    round
}

/// Calls `check` with every word of `length` letters.
pub(crate) fn every_word(alphabet: &[Kind], length: usize, mut check: impl FnMut(&[Kind])) {
    let mut word = vec![alphabet[0]; length];
    for number in 0..alphabet.len().pow(u32::try_from(length).unwrap()) {
        let mut rest = number;
        for letter in &mut word {
            *letter = alphabet[rest % alphabet.len()];
            rest /= alphabet.len();
        }
        check(&word);
    }
}
