//! The program in the clients' containers: takes locks in a loop, writes with the token, logs all of it.

mod last_first;
mod named;
mod roles;
pub(crate) mod strike;
mod subject;
mod usage;

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use crate::Outcome;
use crate::clock::now;
use crate::event::{EventKind, log_now};
use crate::referee::Referee;
use named::WhenNamed;
pub(crate) use roles::{Role, Share};
use strike::Tasks;
use subject::Subject;

/// Whose lock it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LockLibrary {
    /// This library.
    WithAdmission,
    /// This library without admission: classic Redlock with tokens and repair.
    WithoutAdmission,
    /// This library without order between clients: those who wait ask again and again.
    WithoutOrder,
    /// The crate rslock.
    Rslock,
    /// This library behind a planted bug: of a process's tasks, the one that came last is let in first.
    LastFirst,
}

impl LockLibrary {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::WithAdmission => "guards on",
            Self::WithoutAdmission => "guards off",
            Self::WithoutOrder => "order off",
            Self::Rslock => "rslock",
            Self::LastFirst => "last first",
        }
    }
}

/// What one client is to do, given to it as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) peer: LockLibrary,
    pub(crate) instances: Vec<String>,
    pub(crate) quorum: Option<usize>,
    pub(crate) ttl_ms: u64,
    pub(crate) referee: String,
    pub(crate) roles: Vec<Role>,
}

impl Job {
    pub(crate) const fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms)
    }
}

/// Runs until it is killed.
pub(crate) async fn run(job: Job) -> Outcome {
    let job = Arc::new(job);
    let subject = Subject::start(&job)?;
    let referee = Referee::new(&job.referee);
    let tasks = Arc::new(Tasks::start(&job.name)?);
    tracing::subscriber::set_global_default(WhenNamed::new(job.name.clone()))?;
    tokio::spawn(watch(Arc::clone(&job), subject.clone()));
    tokio::spawn(look(Arc::clone(&job), Arc::clone(&tasks)));
    tokio::spawn(usage::watch(job.name.clone()));
    let roles = job.roles.iter().enumerate().map(|(number, role)| {
        // Unlike those of the process that ran here before, and of the other roles.
        let first_lease = now().saturating_add(u64::try_from(number).unwrap_or(0) << 32);
        let subject = subject.clone();
        roles::play(Arc::clone(&job), *role, subject, referee.clone(), Arc::clone(&tasks), first_lease)
    });
    futures_util::future::join_all(roles).await;
    Ok(())
}

/// Logs how this client sees each instance, whenever that changes.
async fn watch(job: Arc<Job>, subject: Subject) {
    let mut last: Vec<&str> = Vec::new();
    loop {
        let seen = subject.sees();
        for (instance, state) in seen.iter().enumerate() {
            if last.get(instance) != Some(state) {
                log_now(&job.name, EventKind::Seen { instance, state: (*state).to_owned() });
            }
        }
        last = seen;
        sleep(Duration::from_millis(20)).await;
    }
}

/// Sees to strikes at a process that waits.
async fn look(job: Arc<Job>, tasks: Arc<Tasks>) {
    loop {
        tasks.look(&job.name);
        sleep(Duration::from_millis(5)).await;
    }
}
