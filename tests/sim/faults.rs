//! Planned faults: when, what, to whom. A plan is what is shrunk and what is replayed.

use std::fmt;

use crate::plain::GAPS;
use crate::rng::Rng;
use crate::scenario::Kind;

/// When a fault strikes. Most strike where it hurts: next to a grant or to an expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trigger {
    /// At a part of the run.
    At,
    /// After the n-th grant of an instance.
    Grant,
    /// After the n-th won round.
    Win,
    /// Just before the n-th lease ends.
    BeforeExpiry,
    /// Just after the n-th lease ends.
    AfterExpiry,
    /// Some time after the n-th other fault.
    Fault,
    /// Between two commands of the n-th plain acquire that an instance carries out.
    Command,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    CrashEmpty,
    CrashFromDisk,
    Flush,
    Restore,
    Promote,
    Resync,
    Step,
    Pause,
    ClientCrash,
    Cancel,
    CutBoth,
    CutTo,
    CutFrom,
    Break,
    /// Somebody sets tokens by hand that no clock can have made.
    Poison,
    /// It claims to have such tokens, until faults end.
    Lie,
}

impl FaultKind {
    pub(crate) const ALL: [Self; 16] = [
        Self::CrashEmpty,
        Self::CrashFromDisk,
        Self::Flush,
        Self::Restore,
        Self::Promote,
        Self::Resync,
        Self::Step,
        Self::Pause,
        Self::ClientCrash,
        Self::Cancel,
        Self::CutBoth,
        Self::CutTo,
        Self::CutFrom,
        Self::Break,
        Self::Poison,
        Self::Lie,
    ];

    /// Whether an instance may have forgotten something afterwards.
    pub(crate) const fn loses_data(self) -> bool {
        matches!(
            self,
            Self::CrashEmpty | Self::CrashFromDisk | Self::Flush | Self::Restore | Self::Promote | Self::Resync
        )
    }
}

const TRIGGERS: [Trigger; 7] = [
    Trigger::At,
    Trigger::Grant,
    Trigger::Win,
    Trigger::BeforeExpiry,
    Trigger::AfterExpiry,
    Trigger::Fault,
    Trigger::Command,
];

/// The most faults that a seed plans.
pub(crate) const MOST_FAULTS: u64 = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) trigger: Trigger,
    /// Which grant, win or fault; for `At`, 256ths of the run.
    pub(crate) nth: u8,
    pub(crate) what: FaultKind,
    /// Even: the instance and the client concerned; odd: others.
    pub(crate) target: u8,
    /// How long or how far, and the exact moment.
    pub(crate) amount: u8,
}

impl Fault {
    pub(crate) fn plan(rng: &mut Rng, kind: Kind) -> Vec<Self> {
        if kind == Kind::RollingRestart {
            return Vec::new();
        }
        let count = rng.below(MOST_FAULTS + 1);
        // A run often has one favourite: rare faults meet each other only so.
        let favourite = rng.percent(30).then(|| rng.pick(&FaultKind::ALL));
        (0..count).map(|_| Self::draw(rng, favourite)).collect()
    }

    /// Sequences that are dangerous together and would hardly ever meet by chance.
    pub(crate) fn drill(rng: &mut Rng) -> Vec<Self> {
        let byte = |number: u64| u8::try_from(number).unwrap_or(u8::MAX);
        let first = rng.below(3);
        let second = (first + rng.between(1, 2)) % 3;
        let (one, other) = (byte(first) << 1 | 1, byte(second) << 1 | 1);
        let fault = |trigger, nth, what, target, amount| Self { trigger, nth, what, target, amount };
        if rng.percent(35) {
            // A connection is cut while it is being admitted, and a flush comes just before it heals.
            let long = byte(rng.between(60, 99));
            let cut = fault(Trigger::At, 0, FaultKind::CutTo, one, long);
            let apart = fault(Trigger::At, 0, FaultKind::CutBoth, other, u8::MAX);
            return vec![cut, apart, fault(Trigger::Fault, 0, FaultKind::Flush, one, long * 2)];
        }
        if rng.percent(25) {
            // While a lease rests on a bare quorum one of its instances is flushed in the middle of somebody's acquire.
            let apart = fault(Trigger::At, 0, FaultKind::CutBoth, other, u8::MAX);
            let (nth, gap) = (byte(rng.between(2, 9)), byte(rng.below(GAPS as u64) << 1));
            return vec![apart, fault(Trigger::Command, nth, FaultKind::Flush, one, gap)];
        }
        if rng.percent(25) {
            // The record of before a flush comes back, when what was granted since has long counted.
            let flushed = fault(Trigger::At, 0, FaultKind::Flush, one, 0);
            let apart = fault(Trigger::Win, byte(rng.below(3)), FaultKind::CutBoth, other, u8::MAX);
            return vec![flushed, apart, fault(Trigger::Win, byte(rng.between(0, 4)), FaultKind::Restore, one, 1)];
        }
        // A process that has just been started is flushed before its quarantine ends, while a
        // client that cannot reach another instance counts on it.
        let restart = rng.pick(&[FaultKind::CrashFromDisk, FaultKind::CrashEmpty, FaultKind::Promote]);
        let up = byte(if restart == FaultKind::Promote { rng.between(60, 90) } else { rng.below(8) });
        let win = byte(rng.below(3));
        let mut plan = vec![
            fault(Trigger::Win, win, FaultKind::CutBoth, one - 1, u8::MAX - 1),
            fault(Trigger::Win, win, restart, other, up),
        ];
        if restart != FaultKind::Promote {
            plan.push(fault(Trigger::Fault, 1, FaultKind::Flush, other, byte(rng.between(120, 198))));
        }
        plan
    }

    /// Behind which command it strikes, if that is its trigger.
    pub(crate) fn gap(self) -> usize {
        usize::from(self.amount >> 1) % GAPS
    }

    fn draw(rng: &mut Rng, favourite: Option<FaultKind>) -> Self {
        let bytes = rng.next().to_le_bytes();
        let mut fault = Self::from_bytes([bytes[0], bytes[1], bytes[2], bytes[3], bytes[4]]);
        if let Some(what) = favourite.filter(|_| rng.percent(60)) {
            fault.what = what;
        }
        fault
    }

    /// Any five bytes are a fault.
    pub(crate) fn from_bytes(bytes: [u8; 5]) -> Self {
        let [trigger, nth, what, target, amount] = bytes;
        let trigger = TRIGGERS[usize::from(trigger) % TRIGGERS.len()];
        let nth = if trigger == Trigger::At { nth } else { nth % 12 };
        Self { trigger, nth, what: FaultKind::ALL[usize::from(what) % FaultKind::ALL.len()], target, amount }
    }

    pub(crate) fn to_bytes(self) -> [u8; 5] {
        let at = |found: Option<usize>| u8::try_from(found.unwrap_or(0)).unwrap_or(0);
        let trigger = at(TRIGGERS.iter().position(|trigger| *trigger == self.trigger));
        let what = at(FaultKind::ALL.iter().position(|what| *what == self.what));
        [trigger, self.nth, what, self.target, self.amount]
    }

    /// Reads a plan as [`Fault`]s are displayed, joined by dots.
    pub(crate) fn parse_plan(text: &str) -> Option<Vec<Self>> {
        let parse = |part: &str| {
            let number = u64::from_str_radix(part, 16).ok().filter(|_| part.len() == 10)?;
            let [_, _, _, bytes @ ..] = number.to_be_bytes();
            Some(Self::from_bytes(bytes))
        };
        text.split('.').filter(|part| !part.is_empty()).map(parse).collect()
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
