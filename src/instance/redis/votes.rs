//! What the answer to a command counts for, and what it shows about the connection.

use std::iter::once;
use std::sync::Arc;
use std::time::Duration;

use redis::{RedisResult, Value};
use tokio::time::timeout;

use super::classify::{classify, classify_plain};
use super::connection::InstanceConnection;
use super::sent_command::{Form, SentCommand};
use crate::instance::Request;
use crate::protocol::{AttachedRecord, Instant, RawReply, Reply};

/// When a command was sent, with what record, and when it was answered.
pub(super) struct Answered {
    pub(super) sent: Instant,
    pub(super) received: Instant,
    pub(super) attached: Option<AttachedRecord>,
    pub(super) form: Form,
    /// Until when its requests may take.
    ends: Instant,
}

/// A reply of which the sample of the clock is taken in, and which is still to be judged.
pub(super) struct Observed {
    raw: RawReply,
    /// Whether the instance's clock had stepped forward by then.
    stepped: bool,
    /// How many flushes had been pushed by then.
    flushes: u32,
}

impl InstanceConnection {
    /// The answer to a command; `None` if there was none in time.
    pub(super) async fn answer(&self, command: SentCommand) -> Option<(RedisResult<Value>, Answered)> {
        let SentCommand { at: sent, attached, result, form } = command;
        let Ok(result) = timeout(self.deadline(), result).await else {
            self.note_silence();
            return None;
        };
        let ends = sent.saturating_add(self.deadline());
        Some((result, Answered { sent, received: self.now(), attached, form, ends }))
    }

    /// How much longer its requests may take.
    fn left(&self, answered: &Answered) -> Duration {
        answered.ends.saturating_since(self.now())
    }

    /// The reply to a request that was alone in its write; `None` if there was none in time.
    pub(super) async fn observed_reply(
        self: &Arc<Self>,
        request: &Request,
        command: SentCommand,
    ) -> Option<(Observed, Answered)> {
        let (result, answered) = self.answer(command).await?;
        let raw = match answered.attached.as_ref().filter(|_| answered.form == Form::Plain) {
            Some(attached) => {
                let wall_us = self.admission().map_or(0, |admission| admission.about_us(answered.received));
                classify_plain(request.claim(), attached, wall_us, result)
            }
            None => classify(request, result),
        };
        Some((self.observe(raw, request.asks_for_a_vote(), &answered), answered))
    }

    /// Takes in what a reply shows about the connection and the instance's clock. At once: held back, an old sample would
    /// look like a step behind those that came after it.
    pub(super) fn observe(self: &Arc<Self>, raw: RawReply, may_vote: bool, answered: &Answered) -> Observed {
        self.note(&raw.reply, may_vote, answered.sent);
        let admission = self.admission().filter(|_| answered.attached.is_some());
        let stepped = admission.is_some_and(|shared| shared.observe_reply(&raw, answered.sent, answered.received));
        let flushes = admission.map_or(0, |shared| shared.flushes.count().count());
        Observed { raw, stepped, flushes }
    }

    /// Whether it may only be judged once it is settled what was flushed before it came (P15).
    pub(super) fn is_held(&self, Observed { raw, flushes, .. }: &Observed) -> bool {
        let counts = matches!(raw.reply, Reply::Granted | Reply::Repaired);
        counts && self.admission().is_some_and(|admission| !admission.flushes.are_settled(*flushes))
    }

    /// Waits until these need not be held any more, for as long as their requests may take.
    pub(super) async fn flushes_settled(&self, held: impl Iterator<Item = &Observed>, answered: &Answered) {
        let last = held.filter(|observed| self.is_held(observed)).map(|observed| observed.flushes).max();
        if let (Some(admission), Some(last)) = (self.admission(), last) {
            // If it is late, they count for nothing.
            let _ = timeout(self.left(answered), admission.flushes.settled_up_to(last)).await;
        }
    }

    /// What a reply counts for (P14, P17).
    pub(super) fn judge(&self, observed: Observed, answered: &Answered) -> Reply {
        let Observed { raw, stepped, flushes } = observed;
        match (self.admission(), &answered.attached) {
            (Some(admission), Some(attached)) => {
                admission.judge(raw, stepped, flushes, &attached.record, answered.received)
            }
            _ => raw.reply,
        }
    }

    pub(super) async fn judge_when_settled(&self, observed: Observed, answered: &Answered) -> Reply {
        self.flushes_settled(once(&observed), answered).await;
        self.judge(observed, answered)
    }
}
