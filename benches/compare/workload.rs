//! What the subjects do, on which instances, and under which fault.

use std::fmt;

use redquorum_testkit::Fleet;

use crate::Outcome;
use crate::options::Options;
use crate::subject::Kind;

/// What is wrong with the last of the instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// So many accept and say nothing (SIGSTOP).
    Hung(usize),
    /// One is killed: connections are refused.
    Dead,
}

/// So many instances, from the last, are behind links that take so long there and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Links {
    pub(crate) of: usize,
    pub(crate) round_trip_ms: u64,
}

/// Instances that several workloads share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stage {
    pub(crate) instances: usize,
    pub(crate) fault: Fault,
    pub(crate) links: Links,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Tasks that acquire and release in turn, a new name each time.
    Pairs { tasks: usize },
    /// The same, while one more task locks so many names together, the same ones again and again.
    Beside { tasks: usize, names: usize },
    /// One task tries one name, though there is no quorum: the first error, and those that follow.
    Errors,
    /// A new client each time, until it has its first lock, of a new name.
    Connect,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Workload {
    /// As it is called in the results.
    pub(crate) name: &'static str,
    pub(crate) stage: Stage,
    pub(crate) work: Work,
    /// On a runtime with one thread, the one that calls.
    pub(crate) one_thread: bool,
    /// How often each task does it in a quick turn, and in a whole one.
    times: (usize, usize),
}

const NEAR: Links = Links { of: 0, round_trip_ms: 0 };
const FIVE: Stage = Stage { instances: 5, fault: Fault::None, links: NEAR };

const fn on(instances: usize) -> Stage {
    Stage { instances, ..FIVE }
}

const fn far(of: usize, round_trip_ms: u64) -> Stage {
    Stage { links: Links { of, round_trip_ms }, ..FIVE }
}

const fn pairs(name: &'static str, stage: Stage, tasks: usize, times: (usize, usize)) -> Workload {
    Workload { name, stage, work: Work::Pairs { tasks }, one_thread: false, times }
}

const fn of(name: &'static str, stage: Stage, work: Work, times: (usize, usize)) -> Workload {
    Workload { name, stage, work, one_thread: false, times }
}

/// Those that share a stage stand together.
pub(crate) const WORKLOADS: [Workload; 22] = [
    pairs("sequential", FIVE, 1, (200, 1000)),
    Workload { one_thread: true, ..pairs("sequential, one thread", FIVE, 1, (200, 1000)) },
    pairs("8 tasks", FIVE, 8, (100, 600)),
    pairs("64 tasks", FIVE, 64, (20, 120)),
    Workload { one_thread: true, ..pairs("64 tasks, one thread", FIVE, 64, (20, 120)) },
    pairs("512 tasks", FIVE, 512, (4, 20)),
    of("8 beside 2 names", FIVE, Work::Beside { tasks: 8, names: 2 }, (100, 600)),
    of("8 beside 16 names", FIVE, Work::Beside { tasks: 8, names: 16 }, (100, 600)),
    of("8 beside 256 names", FIVE, Work::Beside { tasks: 8, names: 256 }, (100, 600)),
    of("connect", FIVE, Work::Connect, (5, 30)),
    pairs("3 instances", on(3), 1, (200, 1000)),
    pairs("3 instances, 64 tasks", on(3), 64, (20, 120)),
    pairs("7 instances", on(7), 1, (200, 1000)),
    pairs("7 instances, 64 tasks", on(7), 64, (20, 120)),
    pairs("9 instances", on(9), 1, (200, 1000)),
    pairs("9 instances, 64 tasks", on(9), 64, (20, 120)),
    pairs("links of 2 ms", far(5, 2), 1, (50, 300)),
    pairs("20 ms to two", far(2, 20), 1, (50, 300)),
    pairs("20 ms to three", far(3, 20), 1, (20, 60)),
    pairs("one hung", Stage { fault: Fault::Hung(1), ..FIVE }, 1, (200, 1000)),
    pairs("one dead", Stage { fault: Fault::Dead, ..FIVE }, 1, (200, 1000)),
    of("three hung", Stage { fault: Fault::Hung(3), ..FIVE }, Work::Errors, (5, 20)),
];

impl Stage {
    /// How many instances, from the first, still answer.
    pub(crate) const fn reachable(self) -> usize {
        match self.fault {
            Fault::None => self.instances,
            Fault::Hung(count) => self.instances - count,
            Fault::Dead => self.instances - 1,
        }
    }

    pub(crate) fn bring_about(self, fleet: &Fleet) -> Outcome {
        for last in &fleet[self.reachable()..] {
            match self.fault {
                Fault::None => {}
                Fault::Hung(_) => last.hang()?,
                Fault::Dead => last.kill()?,
            }
        }
        Ok(())
    }
}

impl Workload {
    /// Those that are to be measured, by what they share.
    pub(crate) fn chosen(options: &Options) -> Vec<Vec<Self>> {
        let chosen: Vec<Self> = WORKLOADS.into_iter().filter(|workload| options.has_workload(workload.name)).collect();
        chosen.chunk_by(|one, next| one.stage == next.stage).map(<[Self]>::to_vec).collect()
    }

    /// Whether this subject can do it, in a time that can be waited for.
    pub(crate) fn suits(&self, kind: Kind) -> bool {
        match self.work {
            Work::Pairs { .. } | Work::Connect => true,
            Work::Beside { .. } => matches!(kind, Kind::Ours | Kind::Off),
            Work::Errors => matches!(kind, Kind::Ours | Kind::Off | Kind::Rslock), // raw waits for ever
        }
    }

    /// How many turns each subject has in a round: more where they are short, for what else the machine does changes
    /// within seconds.
    pub(crate) const fn turns(&self, options: &Options) -> usize {
        let is_short = self.stage.links.of == 0
            && matches!(self.stage.fault, Fault::None)
            && matches!(self.work, Work::Pairs { .. } | Work::Beside { .. });
        if is_short && !options.quick { 3 } else { 1 }
    }

    /// How often each task does it in a turn.
    pub(crate) const fn times(&self, kind: Kind, options: &Options) -> usize {
        let (quick, full) = match (self.stage.fault, kind) {
            (Fault::Hung(_), Kind::Rslock) => (1, 2), // seconds for every operation
            _ => self.times,
        };
        if options.quick { quick } else { full }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
