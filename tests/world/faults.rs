//! Planned faults: when, what, to whom. A plan is what is shrunk and what is replayed.

use std::fmt;

use crate::rng::Rng;

/// When a fault strikes. Most strike where it hurts: next to a grant or to an expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trigger {
    /// At a part of the run.
    At,
    /// Just after the n-th lock was given.
    Grant,
    /// Just before the validity ends that the n-th lock was given with.
    Expiry,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    RestartEmpty,
    RestartOld,
    Kill,
    Flush,
    FailOver,
    Resynchronise,
    Restore,
    StepForward,
    StepBack,
    Hang,
    Break,
    BreakCommand,
    BreakReply,
    HoldUpCommands,
    HoldUpReplies,
    HoldUpBoth,
    /// A client's machine is suspended, and its clock counts that.
    Suspend,
    /// The same, and its clock does not.
    StandStill,
    /// Time passes for everybody while nobody does anything.
    Block,
    /// Time passes for a client with a runtime of its own while it does nothing, and the others go on.
    BlockApart,
    /// That runtime ends, and another begins in its place.
    EndRuntime,
    /// Somebody deletes the keys of all locks on a server.
    Delete,
}

impl FaultKind {
    pub(crate) const ALL: [Self; 22] = [
        Self::RestartEmpty,
        Self::RestartOld,
        Self::Kill,
        Self::Flush,
        Self::FailOver,
        Self::Resynchronise,
        Self::Restore,
        Self::StepForward,
        Self::StepBack,
        Self::Hang,
        Self::Break,
        Self::BreakCommand,
        Self::BreakReply,
        Self::HoldUpCommands,
        Self::HoldUpReplies,
        Self::HoldUpBoth,
        Self::Suspend,
        Self::StandStill,
        Self::Block,
        Self::BlockApart,
        Self::EndRuntime,
        Self::Delete,
    ];
}

const TRIGGERS: [Trigger; 3] = [Trigger::At, Trigger::Grant, Trigger::Expiry];

/// The most faults that a seed plans.
const MOST_FAULTS: u64 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) trigger: Trigger,
    /// Which lock; for `At`, 256ths of the run.
    pub(crate) nth: u8,
    pub(crate) what: FaultKind,
    /// Which server and which client.
    pub(crate) target: u8,
    /// How long or how far, and the exact moment.
    pub(crate) amount: u8,
}

impl Fault {
    pub(crate) fn plan(rng: &mut Rng) -> Vec<Self> {
        let count = rng.below(MOST_FAULTS + 1);
        // A run often has one favourite: rare faults meet each other only so.
        let favourite = rng.percent(30).then(|| rng.pick(&FaultKind::ALL));
        (0..count).map(|_| Self::draw(rng, favourite)).collect()
    }

    /// What is dangerous together and would hardly ever meet by chance: a client cannot reach one of three
    /// servers, and one of the two on which its locks rest forgets them.
    pub(crate) fn drill(rng: &mut Rng) -> Vec<Self> {
        let byte = |number: u64| u8::try_from(number).unwrap_or(u8::MAX);
        let (apart, client) = (rng.below(3), rng.below(4));
        let forgets = (apart + rng.between(1, 2)) % 3;
        let fault =
            |nth, what, target, amount| Self { trigger: Trigger::Grant, nth, what, target: byte(target), amount };
        let how = rng.pick(&[
            FaultKind::RestartEmpty,
            FaultKind::RestartOld,
            FaultKind::Flush,
            FaultKind::FailOver,
            FaultKind::Resynchronise,
            FaultKind::Restore,
        ]);
        let cut = fault(0, FaultKind::HoldUpBoth, 24 * client + apart, u8::MAX);
        let cuts = (0..3).map(|nth| Self { nth, ..cut });
        // A little while later, while the lock is held.
        let forget = (0..4).map(|nth| fault(nth, how, forgets, byte(rng.below(40))));
        cuts.chain(forget.collect::<Vec<_>>()).collect()
    }

    /// The dangerous ones of a narrow run, together: one drill, or two at once, and sometimes something besides.
    pub(crate) fn narrow(rng: &mut Rng) -> Vec<Self> {
        let mut plan = Self::narrow_drill(rng);
        if rng.percent(40) {
            plan.extend(Self::narrow_drill(rng));
        }
        plan.extend((0..rng.below(3)).map(|_| Self::draw(rng, None)));
        plan
    }

    fn narrow_drill(rng: &mut Rng) -> Vec<Self> {
        use FaultKind::{
            Block, Break, BreakCommand, BreakReply, Delete, Flush, HoldUpBoth, HoldUpCommands, HoldUpReplies,
            RestartOld, Restore, Resynchronise, StandStill, StepBack, StepForward, Suspend,
        };
        let some = |rng: &mut Rng, kinds: &[FaultKind], triggers: &[Trigger], count: u64| {
            let one = |rng: &mut Rng| {
                let [nth, target, amount, ..] = rng.next().to_le_bytes();
                let trigger = rng.pick(triggers);
                let nth = if trigger == Trigger::At { nth } else { nth % 5 };
                Self { trigger, nth, what: rng.pick(kinds), target, amount }
            };
            (0..count).map(|_| one(rng)).collect::<Vec<_>>()
        };
        let (grant, expiry) = (Trigger::Grant, Trigger::Expiry);
        match rng.below(7) {
            // A server is forgotten under a bare majority.
            0 | 1 => Self::drill(rng),
            // Old copies come back, and clocks go back.
            2 => some(rng, &[RestartOld, Restore, Resynchronise, Restore, StepBack], &[Trigger::At, grant, expiry], 4),
            // A clock is put forward while a lock is held.
            3 => {
                [some(rng, &[StepForward], &[grant], 1), some(rng, &[HoldUpBoth, HoldUpReplies], &[grant], 3)].concat()
            }
            // Copies come late over broken connections.
            4 => some(rng, &[Break, BreakCommand, BreakReply, HoldUpCommands], &[Trigger::At, grant, expiry], 6),
            // Somebody stands still where it matters.
            5 => some(rng, &[Suspend, StandStill, Block, HoldUpReplies], &[grant, expiry], 3),
            // Keys go.
            _ => some(rng, &[Delete, Delete, Flush], &[grant], 4),
        }
    }

    /// One connection after the other breaks between a client and a server, and what they carried comes late.
    pub(crate) fn breaks(rng: &mut Rng) -> Vec<Self> {
        let [target, nth, ..] = rng.next().to_le_bytes();
        let at = |step: u8, amount: u8| Self {
            trigger: Trigger::At,
            nth: nth.wrapping_add(step),
            what: FaultKind::BreakCommand,
            target,
            amount,
        };
        (0..6).map(|step| at(4 * step, 100 + u8::try_from(rng.below(150)).unwrap_or(0))).collect()
    }

    /// What befalls a client with a runtime of its own.
    pub(crate) fn plan_apart(rng: &mut Rng) -> Vec<Self> {
        let draw = |rng: &mut Rng| {
            let what = rng.pick(&[FaultKind::BlockApart, FaultKind::BlockApart, FaultKind::EndRuntime]);
            Self { what, ..Self::draw(rng, None) }
        };
        (0..rng.between(1, 3)).map(|_| draw(rng)).collect()
    }

    fn draw(rng: &mut Rng, favourite: Option<FaultKind>) -> Self {
        let [trigger, nth, what, target, amount, ..] = rng.next().to_le_bytes();
        let mut fault = Self::from_bytes([trigger, nth, what, target, amount]);
        if let Some(what) = favourite.filter(|_| rng.percent(60)) {
            fault.what = what;
        }
        fault
    }

    /// Any five bytes are a fault.
    fn from_bytes(bytes: [u8; 5]) -> Self {
        let [trigger, nth, what, target, amount] = bytes;
        let trigger = TRIGGERS[usize::from(trigger) % TRIGGERS.len()];
        let nth = if trigger == Trigger::At { nth } else { nth % 10 };
        Self { trigger, nth, what: FaultKind::ALL[usize::from(what) % FaultKind::ALL.len()], target, amount }
    }

    fn to_bytes(self) -> [u8; 5] {
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
