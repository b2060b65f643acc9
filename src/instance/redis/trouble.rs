//! The cause of an instance that is connected and admitted and still refuses, kept until it votes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::instance::Trouble;
use crate::log_limit::LogLimit;
use crate::protocol::{Cause, Instant, Reply};

/// Why an instance refuses to vote at present, if it does.
#[derive(Debug, Default)]
pub(super) struct CurrentTrouble {
    /// Whether there is one: votes are many, and need look no further.
    has_one: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    present: Option<(Cause, Instant)>,
    /// When the vote was sent for that ended the last one. What was sent before may be answered after it.
    voted: Option<Instant>,
    warnings: LogLimit,
}

impl CurrentTrouble {
    /// Records a reply to a request for a vote (`may_vote`), or to a release. Warns when the cause changes.
    pub(super) fn note(&self, instance: &str, reply: &Reply, may_vote: bool, sent: Instant) {
        match reply {
            Reply::Unknown(cause) if is_its_own(cause) => self.begin(instance, cause, sent),
            Reply::Granted | Reply::Repaired | Reply::Kept { .. }
                if may_vote && self.has_one.load(Ordering::Relaxed) =>
            {
                self.end(sent)
            }
            _ => {}
        }
    }

    /// The present one, as of `now`.
    pub(super) fn present(&self, now: Instant) -> Option<Trouble> {
        let present = self.state().present.clone();
        present.map(|(cause, at)| Trouble { cause: cause.into(), age: now.saturating_since(at) })
    }

    pub(super) fn is(&self, cause: &Cause) -> bool {
        self.state().present.as_ref().is_some_and(|(present, _)| present == cause)
    }

    fn begin(&self, instance: &str, cause: &Cause, sent: Instant) {
        let mut state = self.state();
        if state.voted.is_some_and(|voted| sent <= voted) {
            return;
        }
        let was = state.present.replace((cause.clone(), sent));
        self.has_one.store(true, Ordering::Relaxed);
        if was.is_none_or(|(was, _)| was != *cause)
            && let Some(times) = state.warnings.note(sent)
        {
            drop(state);
            tracing::warn!(instance, %cause, times, "it refuses requests for a reason of its own");
        }
    }

    fn end(&self, sent: Instant) {
        let mut state = self.state();
        state.present = None;
        state.voted = Some(sent);
        self.has_one.store(false, Ordering::Relaxed);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether it is the instance that refuses, and not the way to it.
const fn is_its_own(cause: &Cause) -> bool {
    !matches!(
        cause,
        Cause::Connecting
            | Cause::NotConnected(_)
            | Cause::Tls(_)
            | Cause::Certificate(_)
            | Cause::ClientCertificate(_)
            | Cause::TlsSettings(_)
            | Cause::NoMaster(_)
            | Cause::NoCredentials(_)
            | Cause::OtherProtocol(_)
            | Cause::NoHello(_)
            | Cause::Silent
            | Cause::Overloaded
            | Cause::Withdrawn
            | Cause::ScriptMissing
            | Cause::Unrecorded
            | Cause::NoVote
            | Cause::TimedOut
            | Cause::Disconnected(_)
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_reason_of_its_own_stays_until_the_instance_votes_on_what_was_sent_later() {
        let trouble = CurrentTrouble::default();
        let at = |seconds| Instant::ZERO.saturating_add(Duration::from_secs(seconds));
        let note = |reply, may_vote, seconds| trouble.note("a", &reply, may_vote, at(seconds));
        note(Reply::Unknown(Cause::TimedOut), true, 1);
        assert_eq!(trouble.present(at(1)), None);
        note(Reply::Unknown(Cause::OutOfMemory), true, 2);
        note(Reply::Granted, false, 3); // a full instance still deletes
        let expected = Trouble { cause: Cause::OutOfMemory.into(), age: Duration::from_secs(3) };
        assert_eq!(trouble.present(at(5)), Some(expected));
        note(Reply::Granted, true, 6);
        assert_eq!(trouble.present(at(6)), None);
        note(Reply::Unknown(Cause::OutOfMemory), false, 4); // answered late
        assert_eq!(trouble.present(at(7)), None);
        note(Reply::Unknown(Cause::OutOfMemory), false, 7);
        assert!(trouble.present(at(7)).is_some());
    }
}
