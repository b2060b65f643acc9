//! What the answer to a command counts for, and what it shows about the connection.

use std::sync::Arc;

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
}

/// A reply of which the sample of the clock is taken in, and which is still to be judged.
pub(super) struct Observed {
    raw: RawReply,
    /// Whether the instance's clock had stepped forward by then.
    stepped: bool,
}

impl InstanceConnection {
    /// The answer to a command; `None` if there was none in time.
    pub(super) async fn answer(&self, command: SentCommand) -> Option<(RedisResult<Value>, Answered)> {
        let SentCommand { at: sent, attached, result, form } = command;
        let Ok(result) = timeout(self.deadline(), result).await else {
            self.note_silence();
            return None;
        };
        Some((result, Answered { sent, received: self.now(), attached, form }))
    }

    /// The reply to a request that was alone in its write; `None` if there was none in time.
    pub(super) async fn reply(self: &Arc<Self>, request: &Request, command: SentCommand) -> Option<Reply> {
        let (result, answered) = self.answer(command).await?;
        let raw = match answered.attached.as_ref().filter(|_| answered.form == Form::Plain) {
            Some(attached) => {
                let wall_us = self.admission().map_or(0, |admission| admission.about_us(answered.received));
                classify_plain(request.claim(), attached, wall_us, result)
            }
            None => classify(request, result),
        };
        Some(self.judge(self.observe(raw, request.asks_for_a_vote(), &answered), &answered))
    }

    /// Takes in what a reply shows about the connection and the instance's clock.
    pub(super) fn observe(self: &Arc<Self>, raw: RawReply, may_vote: bool, answered: &Answered) -> Observed {
        self.note(&raw.reply, may_vote, answered.sent);
        let admission = self.admission().filter(|_| answered.attached.is_some());
        let stepped = admission.is_some_and(|shared| shared.observe_reply(&raw, answered.sent, answered.received));
        Observed { raw, stepped }
    }

    /// What a reply counts for (P14, P15, P17).
    pub(super) fn judge(&self, observed: Observed, answered: &Answered) -> Reply {
        let Observed { raw, stepped } = observed;
        match (self.admission(), &answered.attached) {
            (Some(admission), Some(attached)) => admission.judge(raw, stepped, &attached.record, answered.received),
            _ => raw.reply,
        }
    }
}
