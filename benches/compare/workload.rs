//! What the subjects do, and under which fault.

use std::fmt;

use redquorum_testkit::Fleet;

use crate::options::Options;
use crate::subject::Kind;
use crate::{INSTANCES, Outcome};

/// What is wrong with the last of the instances.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    None,
    /// It accepts and says nothing (SIGSTOP).
    Hung,
    /// It is killed: connections are refused.
    Dead,
}

impl Fault {
    /// How many instances, from the first, still answer.
    pub(crate) const fn reachable(self) -> usize {
        match self {
            Self::None => INSTANCES,
            Self::Hung | Self::Dead => INSTANCES - 1,
        }
    }

    pub(crate) fn bring_about(self, fleet: &Fleet) -> Outcome {
        let last = &fleet[INSTANCES - 1];
        match self {
            Self::None => Ok(()),
            Self::Hung => Ok(last.hang()?),
            Self::Dead => Ok(last.kill()?),
        }
    }
}

/// Tasks that acquire and release in turn, each on names of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Workload {
    pub(crate) fault: Fault,
    pub(crate) tasks: usize,
}

impl Workload {
    const MANY: usize = 64;

    /// Those that are measured under a fault.
    pub(crate) fn chosen(fault: Fault, options: &Options) -> Vec<Self> {
        let tasks: &[usize] = if matches!(fault, Fault::None) { &[1, Self::MANY] } else { &[1] };
        let all = tasks.iter().map(|&tasks| Self { fault, tasks });
        all.filter(|workload| options.has_workload(workload.name())).collect()
    }

    pub(crate) const fn many(fault: Fault) -> Self {
        Self { fault, tasks: Self::MANY }
    }

    /// As it is called in the results.
    pub(crate) const fn name(self) -> &'static str {
        match (self.fault, self.tasks) {
            (Fault::None, 1) => "sequential",
            (Fault::None, _) => "64 tasks",
            (Fault::Hung, _) => "one hung",
            (Fault::Dead, _) => "one dead",
        }
    }

    /// How many pairs of acquire and release each task does in a round.
    pub(crate) fn pairs(self, kind: Kind, options: &Options) -> usize {
        let (quick, full) = match (self.fault, self.tasks, kind) {
            (Fault::Hung, _, Kind::Rslock) => (1, 2), // half a second for every operation
            (Fault::None, 2.., _) => (20, 240),
            _ => (200, 1000),
        };
        if options.quick { quick } else { full }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
