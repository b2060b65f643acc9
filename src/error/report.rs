//! What each instance said, in an error.

use std::fmt;
use std::time::Duration;

use crate::instance::Cause;
use crate::instance::redis::RedisInstance;
use crate::protocol::{CurrentHolder, InstanceId, Refusal, Reply, Round, TimedReply};
use crate::runtime::Shared;

/// What one instance answered, for people and for logs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InstanceReport {
    /// The address without credentials.
    pub address: String,
    /// What it answered.
    pub answer: InstanceAnswer,
    /// How long after the start of the round; `None` if it had not answered at the verdict.
    pub after: Option<Duration>,
}

/// An instance that did not answer, and why.
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unanswered {
    /// The address without credentials.
    pub address: String,
    /// Why.
    #[cfg_attr(feature = "serde", serde(rename = "cause", serialize_with = "crate::serialized::text"))]
    pub cause: Cause,
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.address, self.cause)
    }
}

/// An instance that has not confirmed releases.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unreleased {
    /// The address without credentials.
    pub address: String,
    /// How many releases it has not confirmed.
    pub releases: usize,
    /// Why, as far as it is known.
    pub cause: Option<Cause>,
}

impl fmt::Display for Unreleased {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.releases, &self.cause) {
            (0, Some(cause)) => write!(f, "{}: {cause}", self.address), // they are another process's
            (releases, None) => write!(f, "{} has {releases} pending", self.address),
            (releases, Some(cause)) => write!(f, "{} has {releases} pending ({cause})", self.address),
        }
    }
}

/// The answer of one instance.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InstanceAnswer {
    /// It granted.
    Granted,
    /// It did not have the lock any more, or not yet, and has it again.
    Repaired,
    /// Another holder had the lock: who, as far as the stored value shows.
    Refused(Option<CurrentHolder>),
    /// It deleted the lock.
    Deleted,
    /// Nothing to release: the key was missing or another client's, or no request had been sent.
    Absent,
    /// It had stored a larger fencing token.
    StaleToken,
    /// It may have forgotten locks and does not vote, for this long as far as it is known.
    NotAdmitted(Option<Duration>),
    /// The same, after a flush of one of its databases.
    Flushed {
        /// How long ago that was.
        ago: Duration,
        /// How long it still grants no lock.
        remaining: Option<Duration>,
    },
    /// Nothing was sent to it, or what was sent had no effect.
    NotSent(Cause),
    /// The request may or may not have been carried out.
    Unknown(Cause),
    /// The verdict did not need its answer.
    Outstanding,
}

impl fmt::Display for InstanceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.address, Said(&self.answer, self.after))
    }
}

/// What an instance said, and when.
struct Said<'a>(&'a InstanceAnswer, Option<Duration>);

impl fmt::Display for Said<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(answer, after) = *self;
        match answer {
            InstanceAnswer::Granted => write!(f, "granted")?,
            InstanceAnswer::Repaired => write!(f, "had lost the lock and has it again")?,
            InstanceAnswer::Refused(Some(by)) => write!(f, "has the key of {by}")?,
            InstanceAnswer::Refused(None) => write!(f, "has nothing under the key that names a holder")?,
            InstanceAnswer::Deleted => write!(f, "deleted")?,
            InstanceAnswer::Absent => return write!(f, "nothing to release"),
            InstanceAnswer::StaleToken => write!(f, "had a larger fencing token")?,
            InstanceAnswer::NotAdmitted(Some(left)) => write!(f, "in quarantine, {left:.1?} left")?,
            InstanceAnswer::NotAdmitted(None) => {
                write!(f, "in quarantine, as it may have forgotten locks; for how long is not known yet")?;
            }
            InstanceAnswer::Flushed { ago, remaining } => {
                write!(f, "in quarantine, a database of it was flushed {ago:.1?} ago")?;
                if let Some(left) = remaining {
                    write!(f, ", {left:.1?} left")?;
                }
            }
            // It took no time, and the cause says enough.
            InstanceAnswer::NotSent(cause) => return write!(f, "{cause}"),
            InstanceAnswer::Unknown(cause) => write!(f, "{cause}")?,
            InstanceAnswer::Outstanding => return write!(f, "not waited for: the others had decided"),
        }
        match after {
            Some(after) => write!(f, " (after {after:.1?})"),
            None => Ok(()),
        }
    }
}

/// What each instance answered, with its address, apart from those that did not answer.
pub(crate) fn answered<T, E: Into<Cause>>(
    shared: &Shared,
    answers: Vec<Result<T, E>>,
) -> (Vec<(String, T)>, Vec<Unanswered>) {
    let (mut answered, mut unanswered) = (Vec::new(), Vec::new());
    for (instance, answer) in shared.instances.iter().zip(answers) {
        let address = instance.address().to_owned();
        match answer {
            Ok(answer) => answered.push((address, answer)),
            Err(cause) => unanswered.push(Unanswered { address, cause: cause.into() }),
        }
    }
    (answered, unanswered)
}

/// Reports on one line; equal answers of several instances are written once.
pub(super) struct Reports<'a>(pub(super) &'a [InstanceReport]);

impl fmt::Display for Reports<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown: Vec<&InstanceAnswer> = Vec::new();
        for report in self.0 {
            if shown.contains(&&report.answer) {
                continue;
            }
            write!(f, "{}", if shown.is_empty() { "" } else { "; " })?;
            shown.push(&report.answer);
            let alike = || self.0.iter().filter(|other| other.answer == report.answer);
            let addresses: Vec<&str> = alike().map(|other| other.address.as_str()).collect();
            let latest = alike().filter_map(|other| other.after).max();
            write!(f, "{}: {}", addresses.join(", "), Said(&report.answer, latest))?;
        }
        Ok(())
    }
}

/// What every instance answered to a round.
pub(super) fn of_round(shared: &Shared, round: &Round) -> Vec<InstanceReport> {
    let answers = round.replies().iter();
    let report = |(id, answer): (InstanceId, &Option<TimedReply>)| InstanceReport {
        address: address(shared, id),
        answer: answer.as_ref().map_or(InstanceAnswer::Outstanding, |answer| said(shared, id, &answer.reply)),
        after: answer.as_ref().map(|answer| answer.after),
    };
    InstanceId::all(round.replies().len()).zip(answers).map(report).collect()
}

/// What every instance answered to a release.
pub(super) fn of_release(shared: &Shared, round: &Round) -> Vec<InstanceReport> {
    let mut reports = of_round(shared, round);
    for report in &mut reports {
        match report.answer {
            InstanceAnswer::Granted => report.answer = InstanceAnswer::Deleted,
            InstanceAnswer::Refused(_) => report.answer = InstanceAnswer::Absent,
            _ => {}
        }
    }
    reports
}

/// What keeps each instance that is not connected from being it.
pub(super) fn of_obstacles(shared: &Shared) -> Vec<InstanceReport> {
    let report = |instance: &RedisInstance| {
        let cause = shared.obstacle(instance).or_else(|| instance.refusal())?;
        let address = instance.address().to_owned();
        Some(InstanceReport { address, answer: InstanceAnswer::NotSent(cause.into()), after: None })
    };
    shared.instances.iter().filter_map(report).collect()
}

pub(super) fn address(shared: &Shared, id: InstanceId) -> String {
    shared.instances.get(id.index()).map(|instance| instance.address().to_owned()).unwrap_or_default()
}

/// How long ago it was flushed, if it waits for that.
fn flushed_ago(shared: &Shared, id: InstanceId) -> Option<Duration> {
    shared.instances.get(id.index())?.status().flushed_ago
}

fn said(shared: &Shared, id: InstanceId, reply: &Reply) -> InstanceAnswer {
    match reply {
        Reply::Granted => InstanceAnswer::Granted,
        Reply::Repaired => InstanceAnswer::Repaired,
        Reply::Refused(Refusal { value, .. }) => {
            InstanceAnswer::Refused(value.as_deref().map(CurrentHolder::from_value))
        }
        Reply::Stale { .. } => InstanceAnswer::StaleToken,
        Reply::NotAdmitted { remaining } => match flushed_ago(shared, id) {
            Some(ago) => InstanceAnswer::Flushed { ago, remaining: *remaining },
            None => InstanceAnswer::NotAdmitted(*remaining),
        },
        Reply::Kept { remaining } => InstanceAnswer::NotAdmitted(Some(*remaining)),
        Reply::NotSent(cause) => InstanceAnswer::NotSent(cause.clone().into()),
        Reply::Unknown(cause) => InstanceAnswer::Unknown(cause.clone().into()),
    }
}
