//! How many want the lock, from how many processes, and what they do with it.

use std::fmt;
use std::time::Duration;

/// Tasks of worker processes that want the same locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workload {
    /// Each task works in a section, pauses, and asks again.
    Sections { processes: usize, tasks: usize, pauses: bool },
    /// Each task wants one key, once: all at the same moment.
    Requests,
}

/// What is done in a section.
pub(crate) const WORK: Duration = Duration::from_millis(2);

/// The longest pause after a section; drawn from zero on.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_millis(40);

/// How many requests there are for each key.
pub(crate) const REQUESTS_PER_KEY: usize = 10;

impl Workload {
    pub(crate) const ALL: [Self; 7] = [
        Self::Sections { processes: 1, tasks: 16, pauses: true },
        Self::Sections { processes: 1, tasks: 16, pauses: false },
        Self::Sections { processes: 16, tasks: 1, pauses: true },
        Self::Sections { processes: 16, tasks: 1, pauses: false },
        Self::Sections { processes: 4, tasks: 4, pauses: true },
        Self::Sections { processes: 4, tasks: 4, pauses: false },
        Self::Requests,
    ];

    /// As it is called in the results.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sections { processes: 1, pauses: true, .. } => "16 tasks",
            Self::Sections { processes: 1, pauses: false, .. } => "16 tasks without pause",
            Self::Sections { processes: 16, pauses: true, .. } => "16 processes",
            Self::Sections { processes: 16, pauses: false, .. } => "16 processes without pause",
            Self::Sections { pauses: true, .. } => "4 x 4",
            Self::Sections { pauses: false, .. } => "4 x 4 without pause",
            Self::Requests => "3000 requests",
        }
    }

    pub(crate) const fn processes(self) -> usize {
        match self {
            Self::Sections { processes, .. } => processes,
            Self::Requests => 3,
        }
    }

    /// The tasks of all processes together.
    pub(crate) const fn tasks(self, quick: bool) -> usize {
        match self {
            Self::Sections { processes, tasks, .. } => processes * tasks,
            Self::Requests => Self::keys(quick) * REQUESTS_PER_KEY,
        }
    }

    /// How many keys the requests are for.
    pub(crate) const fn keys(quick: bool) -> usize {
        if quick { 30 } else { 300 }
    }

    /// In which process a task is. The requests for each key come from all processes.
    pub(crate) const fn process_of(self, task: usize, quick: bool) -> usize {
        match self {
            Self::Sections { tasks, .. } => task / tasks,
            Self::Requests => task / Self::keys(quick) % self.processes(),
        }
    }

    /// For how long tasks ask again and again; requests end by themselves.
    pub(crate) const fn length(self, quick: bool) -> Duration {
        match self {
            Self::Requests => Duration::ZERO,
            Self::Sections { .. } => Duration::from_secs(if quick { 1 } else { 5 }),
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
