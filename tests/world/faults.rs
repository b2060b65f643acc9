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
    /// While the n-th lock is held: up to a ttl after it was given.
    Held,
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
    /// A user deletes the keys of all locks on a server.
    Delete,
    /// The process loads an empty file in place of its data, which no figure of it tells.
    LoadNothing,
    /// A user stores a token that is far ahead of the clock.
    OddToken,
    /// Another database of a server is flushed: its own data stays, and nobody is told that.
    FlushAnotherDatabase,
    /// The memory of a server is full for a while.
    MemoryFull,
    /// The clients of a server lack the right to a command for a while.
    RightTaken,
    /// A client has a server forget tokens, by its clock.
    ForgetTokens,
}

impl FaultKind {
    pub(crate) const ALL: [Self; 28] = [
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
        Self::LoadNothing,
        Self::OddToken,
        Self::FlushAnotherDatabase,
        Self::MemoryFull,
        Self::RightTaken,
        Self::ForgetTokens,
    ];

    /// So many of them are drawn by chance; the others are of drills alone.
    pub(crate) const DRAWN: usize = 22;

    /// Those from here on are of moved leases alone.
    pub(crate) const FIRST_MOVED: usize = Self::MemoryFull as usize;
    /// And those of the mode in which tokens are forgotten.
    pub(crate) const FIRST_FORGETFUL: usize = Self::ForgetTokens as usize;
}

const TRIGGERS: [Trigger; 4] = [Trigger::At, Trigger::Grant, Trigger::Expiry, Trigger::Held];
const DRAWN_TRIGGERS: u8 = 3;

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
        let favourite = rng.percent(30).then(|| rng.pick(&FaultKind::ALL[..FaultKind::DRAWN]));
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
            // A client stands still where it matters.
            5 => some(rng, &[Suspend, StandStill, Block, HoldUpReplies], &[grant, expiry], 3),
            // Keys go.
            _ => some(rng, &[Delete, Delete, Flush], &[grant], 4),
        }
    }

    /// The links of one client are cut one after the other, each for longer than a ttl, and one where another is whole again.
    pub(crate) fn cuts(rng: &mut Rng) -> Vec<Self> {
        let byte = |number: u64| u8::try_from(number).unwrap_or(u8::MAX);
        // In 256ths of a run of eight ttls; an amount of 170 is one.
        let (first, pause, server) = (rng.between(4, 12), rng.between(18, 23), rng.below(3));
        let cut = |nth: u64| {
            let amount = byte(2 * pause * 170 / 32 - rng.below(16));
            let (at, target) = (byte(first + pause * nth), byte((server + nth) % 3));
            Self { trigger: Trigger::At, nth: at, what: FaultKind::HoldUpBoth, target, amount }
        };
        (0..10).map(cut).collect()
    }

    /// Servers are full, or deny rights, one or more at a time.
    pub(crate) fn denials(rng: &mut Rng) -> Vec<Self> {
        let what = rng.pick(&[FaultKind::MemoryFull, FaultKind::RightTaken]);
        let one = |rng: &mut Rng| {
            let [nth, target, amount, ..] = rng.next().to_le_bytes();
            let trigger = rng.pick(&[Trigger::At, Trigger::Grant, Trigger::Held]);
            Self { trigger, nth: if trigger == Trigger::At { nth } else { nth % 5 }, what, target, amount }
        };
        (0..rng.between(1, 6)).map(|_| one(rng)).collect()
    }

    /// All servers are full, from a while after the beginning to the end.
    pub(crate) fn full(rng: &mut Rng) -> Vec<Self> {
        let nth = u8::try_from(rng.between(24, 64)).unwrap_or(u8::MAX);
        let full =
            |target, nth| Self { trigger: Trigger::At, nth, what: FaultKind::MemoryFull, target, amount: u8::MAX };
        (0..3).flat_map(|server| [0, 100].map(|later| full(server, nth + later))).collect()
    }

    /// A server has no part in the first locks, and one of the two that have loses its data.
    pub(crate) fn lost_token(rng: &mut Rng) -> Vec<Self> {
        let byte = |number: u64| u8::try_from(number).unwrap_or(u8::MAX);
        let (away, loses) = (rng.below(3), rng.between(1, 2));
        let fault = |trigger, nth, what, server: u64, amount| Self {
            trigger,
            nth,
            what,
            target: byte(server % 3),
            amount: byte(amount),
        };
        let what = rng.pick(&[FaultKind::RestartEmpty, FaultKind::Flush, FaultKind::FailOver]);
        let (nth, amount) = (byte(rng.below(4)), rng.below(16));
        vec![
            fault(Trigger::At, 0, FaultKind::Kill, away, rng.between(4, 24)),
            fault(Trigger::Grant, nth, what, away + loses, amount),
        ]
    }

    /// Servers forget tokens, some at one moment and some alone, by the clock of any client.
    pub(crate) fn forgets(rng: &mut Rng) -> Vec<Self> {
        let byte = |number: u64| u8::try_from(number).unwrap_or(u8::MAX);
        let mut plan = Vec::new();
        for _ in 0..rng.between(4, 10) {
            let (trigger, nth) = match rng.pick(&[Trigger::At, Trigger::Held, Trigger::Grant]) {
                Trigger::At => (Trigger::At, byte(rng.below(256))),
                trigger => (trigger, byte(rng.below(10))),
            };
            let (first, count, client, amount) = (rng.below(3), rng.pick(&[1, 2, 3, 3]), rng.below(3), rng.below(256));
            plan.extend((first..first + count).map(|server| {
                let target = byte(24 * client + server % 3);
                Self { trigger, nth, what: FaultKind::ForgetTokens, target, amount: byte(amount) }
            }));
        }
        plan
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

    /// What no drill of `narrow` puts together.
    pub(crate) fn further_drill(rng: &mut Rng) -> Vec<Self> {
        use FaultKind::{Break, BreakCommand, BreakReply, Delete, HoldUpBoth, HoldUpReplies, LoadNothing, OddToken};
        let [client, at, ..] = rng.next().to_le_bytes();
        let fault = |trigger, nth, what, target: u8, amount| Self { trigger, nth, what, target, amount };
        let byte = |number: u64| u8::try_from(number).unwrap_or(u8::MAX);
        // Of client and server, as `chaos` reads it: the servers one after the other.
        let target = |server: u64| byte(u64::from(client % 3) * 24 + server);
        let mut plan = Vec::new();
        match rng.below(5) {
            // Keys go on one server after the other while a lock is held, and one of them is silent for a while.
            0 | 1 => {
                for nth in 0..3 {
                    let first = rng.below(3);
                    for server in 0..2 + rng.below(2) {
                        let server = target((first + server) % 3);
                        plan.push(fault(Trigger::Held, nth, Delete, server, byte(rng.below(200))));
                    }
                    let (what, silent) = (rng.pick(&[HoldUpBoth, HoldUpReplies]), target(rng.below(3)));
                    plan.push(fault(Trigger::Held, nth, what, silent, byte(rng.below(120))));
                }
            }
            // What is forgotten shows in no figure.
            2 => {
                let (apart, forgets) = (target(at.into()), target(u64::from(at) + 1));
                plan.extend((0..3).map(|nth| fault(Trigger::Grant, nth, HoldUpBoth, apart, u8::MAX)));
                plan.extend((0..4).map(|nth| fault(Trigger::Grant, nth, LoadNothing, forgets, byte(rng.below(40)))));
            }
            // A user has stored tokens that are far ahead: on one server, or on all.
            3 => {
                let amount = byte(rng.below(256));
                plan.extend(
                    (0..rng.between(1, 3)).map(|server| fault(Trigger::At, at / 2, OddToken, target(server), amount)),
                );
            }
            // One connection breaks right behind the other.
            _ => {
                for round in 0..4 {
                    let (server, nth) = (target(at.into()), at.wrapping_add(byte(40 * round)));
                    let what = rng.pick(&[BreakCommand, BreakReply, Break]);
                    plan.push(fault(Trigger::At, nth, what, server, byte(rng.below(256))));
                    plan.push(fault(
                        Trigger::At,
                        nth.wrapping_add(byte(rng.between(1, 6))),
                        Break,
                        server,
                        byte(rng.below(256)),
                    ));
                }
            }
        }
        plan
    }

    /// Those of [`flushes_elsewhere`](Self::flushes_elsewhere) in so many of a hundred runs.
    pub(crate) fn flushes_elsewhere_in(percent: u64, rng: &mut Rng) -> Vec<Self> {
        if rng.percent(percent) { Self::flushes_elsewhere(rng) } else { Vec::new() }
    }

    /// Other databases are flushed while locks are held, one server after the other or all at once, and one of the servers
    /// forgets something in its quarantine, or is out of reach.
    pub(crate) fn flushes_elsewhere(rng: &mut Rng) -> Vec<Self> {
        use FaultKind::{
            Delete, FailOver, Flush, FlushAnotherDatabase, HoldUpBoth, Kill, RestartOld, Restore, Resynchronise,
            StepForward,
        };
        let byte = |number: u64| u8::try_from(number).unwrap_or(u8::MAX);
        let target = |server: u64| byte(24 * (server / 3 % 3) + server % 3);
        let mut plan = Vec::new();
        let (first, at_once) = (rng.below(9), rng.percent(40));
        for nth in 0..rng.between(1, 4) {
            let held = |what, target, amount| Self { trigger: Trigger::Held, nth: byte(nth), what, target, amount };
            let at = rng.below(160);
            for server in 0..rng.between(1, 3) {
                let at = if at_once { at } else { rng.below(220) };
                plan.push(held(FlushAnotherDatabase, target(first + server), byte(at)));
            }
            if rng.percent(60) {
                let what = rng.pick(&[Flush, RestartOld, Kill, FailOver, Resynchronise, Restore, StepForward, Delete]);
                plan.push(held(what, target(first), byte(at + rng.below(96))));
                plan.push(held(HoldUpBoth, target(rng.below(9)), byte(rng.below(256))));
            }
        }
        plan
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
        let what = u8::try_from(usize::from(what) % FaultKind::DRAWN).unwrap_or(0);
        let mut fault = Self::from_bytes([trigger % DRAWN_TRIGGERS, nth, what, target, amount]);
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
