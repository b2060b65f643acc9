//! What a scenario is made of. The scenarios themselves are in `table.rs`.

mod mixture;
mod table;

pub(crate) use mixture::mixture;
pub(crate) use table::SCENARIOS;

use crate::client::strike::{Blow, Moment};
use crate::client::{LockLibrary, Role};

/// Instances and clients are counted from 1, as people do.
pub(crate) type Number = usize;

pub(crate) const INSTANCES: usize = 5;

/// A set of faults, a few lines in the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// What happens, in a sentence.
    pub(crate) about: &'static str,
    /// What each client does; the roles of one client share its connections.
    pub(crate) clients: &'static [&'static [Role]],
    /// What is unusual about the instances.
    pub(crate) setup: Setup,
    /// What is done before the clients work.
    pub(crate) prepare: &'static [Action],
    /// What is done, and after how many seconds of work. The first is the fault, the last heals it.
    pub(crate) steps: &'static [(f64, Action)],
    /// How long the clients work, in seconds.
    pub(crate) seconds: f64,
    /// With whom it must find a violation, or the checker is broken.
    pub(crate) violated_by: &'static [LockLibrary],
    /// With whom it runs beside, to show a difference.
    pub(crate) beside: &'static [LockLibrary],
    /// What else is to be seen with guards on.
    pub(crate) shows: Expectation,
    /// Whether the short run has it.
    pub(crate) quick: bool,
}

/// What is unusual about the instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setup {
    Plain,
    /// Instance 3 has a replica that is a stale copy: it was made before the locks.
    Replica,
    /// The same, and clients need four votes.
    ReplicaSuperquorum,
    /// The way to these instances leads through proxies that can be slow.
    Proxies,
    /// Instance 4 wants a password that clients do not know, instance 5 is taken for one with TLS, or has it.
    WrongAccess,
}

/// What is to be seen with guards on, besides that nothing is violated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expectation {
    /// Locks are granted while the fault is there.
    Available,
    /// Nothing is granted then, tries fail fast and name the causes, and it recovers.
    FailsFast,
    /// The referee refuses a write.
    RefusedWrite,
    /// The one who holds the lock never loses it.
    KeepsHolding,
    /// Everybody who waits gets in again, and every strike hit its moment.
    WaitersGetIn,
    /// Nothing in particular; nothing is granted on the one resource meanwhile, say.
    Safety,
}

/// What a drill can do. Lists are numbers of instances or clients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Action {
    /// SIGKILL.
    Kill(&'static [Number]),
    /// Started again, with an empty memory.
    Start(&'static [Number]),
    /// SIGKILL and start at once.
    Restart(&'static [Number]),
    /// Hung, by the freezer of the kernel.
    Pause(&'static [Number]),
    Resume(&'static [Number]),
    Flush(&'static [Number]),
    /// The wall clock of an instance is now this many seconds off.
    Clock(&'static [Number], i64),
    /// Full: every write that needs memory is refused.
    Fill(&'static [Number]),
    Drain(&'static [Number]),
    /// The links from clients to instances.
    Cut(&'static [Number], &'static [Number], CutKind),
    /// All that the packet filters of these clients do ends.
    Mend(&'static [Number]),
    /// Replies of these instances, through their proxies, take so many milliseconds longer, each way.
    Slow(&'static [Number], u32),
    /// The replica stops replicating: from now on it is stale.
    Stale,
    /// The replica becomes a master at the address of instance 3, for these clients.
    Promote(&'static [Number]),
    PauseClient(Number),
    ResumeClient(Number),
    KillClient(Number),
    /// Killed, and another one in its place.
    RestartClient(Number),
    /// Killed or hung, as soon as it is at this moment.
    Strike(Number, Blow, Moment),
    /// One that was hung at its moment goes on.
    ContinueClient(Number),
    /// Nothing; where a fault ends by itself.
    Heal,
}

/// How a link is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CutKind {
    /// Every packet is lost.
    Lost,
    /// Connections are refused at once.
    Refused,
    /// What the client sends is lost.
    Requests,
    /// What the instance answers is lost: it acts, and the client never knows.
    Replies,
    /// One packet of five is lost.
    Lossy,
}

impl Action {
    /// One line for the timeline.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Kill(who) => format!("kill -9 {}", instances(who)),
            Self::Start(who) => format!("start {} empty", instances(who)),
            Self::Restart(who) => format!("kill -9 and start {} empty", instances(who)),
            Self::Pause(who) => format!("hang {}", instances(who)),
            Self::Resume(who) => format!("resume {}", instances(who)),
            Self::Flush(who) => format!("FLUSHALL on {}", instances(who)),
            Self::Clock(who, by) => format!("clock of {} at {by:+} s", instances(who)),
            Self::Fill(who) => format!("fill the memory of {}", instances(who)),
            Self::Drain(who) => format!("free the memory of {}", instances(who)),
            Self::Cut(clients, who, way) => format!("cut {} from {}, {way:?}", names('c', clients), instances(who)),
            Self::Mend(clients) => format!("mend the links of {}", names('c', clients)),
            Self::Slow(who, 0) => format!("links to {} fast again", instances(who)),
            Self::Slow(who, millis) => format!("links to {} take {millis} ms each way", instances(who)),
            Self::Stale => "the replica loses its master".to_owned(),
            Self::Promote(clients) => format!("replica is promoted, i3 for {}", names('c', clients)),
            Self::PauseClient(client) => format!("hang c{client}"),
            Self::ResumeClient(client) => format!("resume c{client}"),
            Self::KillClient(client) => format!("kill -9 c{client}"),
            Self::RestartClient(client) => format!("kill -9 and start c{client}"),
            Self::Strike(client, blow, moment) => {
                let blow = if *blow == Blow::Kill { "kill -9" } else { "hang" };
                let moment = match moment {
                    Moment::Waiting => "while it waits",
                    Moment::Holding => "while it holds",
                    Moment::Named => "when it is next",
                };
                format!("{blow} c{client} {moment}")
            }
            Self::ContinueClient(client) => format!("c{client} goes on"),
            Self::Heal => "over".to_owned(),
        }
    }
}

fn instances(who: &[Number]) -> String {
    names('i', who)
}

fn names(kind: char, who: &[Number]) -> String {
    let names: Vec<String> = who.iter().map(|number| format!("{kind}{number}")).collect();
    names.join(" ")
}
