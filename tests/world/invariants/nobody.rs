//! P19, P22: nothing is renewed for somebody who never had it, is gone, or wanted it for a shorter time.

use std::time::Duration;

use redquorum::testing::simulation::{Step, StepKind};

use crate::judge::Judge;

/// What a task may take to hear of it.
const AT_ONCE: Duration = Duration::from_millis(30);

impl Judge {
    pub(crate) fn is_for_nobody(&self, step: &Step, timeout: Duration) -> Option<(&'static str, String)> {
        // A holder's lease has several guards, and what users do has three keys: all else is of a scene.
        if !matches!(step.kind, StepKind::Extend | StepKind::ExtendMany) || step.value.first() != Some(&b':') {
            return None;
        }
        if !matches!(&*step.key, b"a" | b"b" | b"space:c") {
            return None;
        }
        // It may have been on its way to be sent before, to wait there for a connection.
        let at_once = AT_ONCE + timeout;
        let (rounds, connected) = (self.rounds.get(&step.value)?, self.connections.get(step.connection as usize)?);
        let sent = connected.sent(step.begins)?;
        let what = || {
            let value = String::from_utf8_lossy(&step.value);
            format!("{:?} of {value} at {:?}: {}", step.kind, sent.at, self.told(&step.value))
        };
        if rounds.given == 0 {
            return Some(("nothing is renewed for nobody", what()));
        }
        if rounds.let_go.is_some_and(|let_go| sent.at > let_go + at_once) {
            return Some(("nothing is renewed for who is gone", what()));
        }
        let is_over = |end: Duration| sent.reading > end + at_once;
        if step.kind == StepKind::ExtendMany && rounds.not_after.is_some_and(is_over) {
            return Some(("nothing is renewed past its time", what()));
        }
        None
    }
}
