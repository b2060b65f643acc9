//! What is known of each instance: by its client, and by the instance itself.

use redquorum::operator::{Examination, ServerDetails};
use redquorum::{AdmissionStatus, InstanceStatus, Redlock, ReplyKind};

use super::problems::{Problem, is_full, problems};
use crate::settings::Settings;

/// One instance at one moment.
pub(crate) struct Observed {
    pub(crate) seen: InstanceStatus,
    pub(crate) details: Option<ServerDetails>,
    pub(crate) problems: Vec<Problem>,
    /// Whether it would set a key now, as far as is known.
    pub(crate) takes_writes: bool,
    /// Whether an earlier address of the list leads to the same process.
    is_twin: bool,
}

impl Observed {
    /// Whether its vote would count now, and set the key.
    pub(crate) fn may_vote(&self) -> bool {
        self.is_admitted() && self.takes_writes
    }

    /// Whether its vote counts. Without admission its client would send requests to any server.
    pub(crate) fn is_admitted(&self) -> bool {
        let is_admitted = matches!(self.seen.admission, AdmissionStatus::Admitted | AdmissionStatus::Off);
        let is_of_its_own = !self.is_twin && self.is_master() != Some(false);
        self.seen.connected && is_admitted && self.seen.trouble.is_none() && is_of_its_own
    }

    /// A client without admission does not read it.
    pub(crate) fn is_master(&self) -> Option<bool> {
        self.seen.is_master.or(self.details.as_ref().map(|details| details.is_master))
    }
}

/// Reads the status of all instances, in their order.
pub(crate) async fn observe(redlock: &Redlock, settings: &Settings) -> Vec<Observed> {
    let asked = redlock.examine().await;
    let instances = redlock.instances().into_iter().zip(&asked).enumerate();
    let observed = instances.map(|(at, (seen, answer))| {
        let twin = answer.answer.as_ref().ok().and_then(|details| twin(&asked, at, details));
        let problems = problems(&seen, answer, twin, settings.instance_timeout);
        let (takes_writes, is_twin) = (takes_writes(answer), twin.is_some());
        Observed { seen, details: answer.answer.clone().ok(), problems, takes_writes, is_twin }
    });
    observed.collect()
}

/// It may vote without the right to `INFO`, where admission is off; what does not answer questions gives no vote either.
fn takes_writes(asked: &Examination) -> bool {
    match &asked.answer {
        Ok(details) => details.refuses_writes.is_none() && !is_full(details),
        Err(cause) => !matches!(cause.kind(), ReplyKind::TimedOut | ReplyKind::Silent | ReplyKind::Disconnected),
    }
}

/// The first of the addresses before this one that leads to the same process.
fn twin<'a>(asked: &'a [Examination], at: usize, details: &ServerDetails) -> Option<&'a str> {
    let before = asked.iter().take(at).filter(|_| !details.process.is_empty());
    let same = |it: &&Examination| it.answer.as_ref().is_ok_and(|other| other.process == details.process);
    before.filter(same).map(|it| it.address.as_str()).next()
}
