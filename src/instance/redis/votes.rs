//! What the answer to a command counts for, and what it shows about the connection.

use std::slice::from_ref;
use std::sync::Arc;
use std::time::Duration;

use redis::{RedisResult, Value};
use tokio::time::timeout;

use super::classify::{classify, classify_plain};
use super::connection::{Form, InstanceConnection, SentCommand};
use crate::instance::Request;
use crate::protocol::{AttachedRecord, Cause, Instant, RawReply, Reply};

/// When a command was sent, with what record, and when it was answered.
pub(super) struct Answered {
    pub(super) sent: Instant,
    pub(super) received: Instant,
    pub(super) attached: Option<AttachedRecord>,
    pub(super) form: Form,
    /// Until when its requests may take.
    ends: Instant,
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
    pub(super) fn left(&self, answered: &Answered) -> Duration {
        answered.ends.saturating_since(self.now())
    }

    pub(super) async fn reply_to(self: &Arc<Self>, request: &Request, command: SentCommand) -> Reply {
        let Some((result, answered)) = self.answer(command).await else { return Reply::Unknown(Cause::TimedOut) }; // P5
        let Some(result) = self.or_by_script(request, result, &answered).await else {
            return Reply::Unknown(Cause::TimedOut);
        };
        let raw = match answered.attached.as_ref().filter(|_| answered.form == Form::Plain) {
            Some(attached) => {
                let wall_us = self.admission().map_or(0, |admission| admission.about_us(answered.received));
                classify_plain(request.claim(), attached, wall_us, result)
            }
            None => classify(request, result),
        };
        self.flushes_settled(from_ref(&raw), &answered).await;
        self.check_vote(raw, request.asks_for_a_vote(), &answered)
    }

    /// Holds votes among these replies until it is settled what was flushed, for as long as their requests may take (P15).
    pub(super) async fn flushes_settled(&self, replies: &[RawReply], answered: &Answered) {
        let Some(admission) = self.admission() else { return };
        let has_vote = replies.iter().any(|raw| matches!(raw.reply, Reply::Granted | Reply::Repaired));
        if has_vote && admission.flushes.unsettled().is_some() {
            // If it is late, they count for nothing.
            let _ = timeout(self.left(answered), admission.flushes.all_settled()).await;
        }
    }

    /// What a reply counts for (P14, P17), and what it shows about the connection.
    pub(super) fn check_vote(self: &Arc<Self>, raw: RawReply, may_vote: bool, answered: &Answered) -> Reply {
        self.note(&raw.reply, may_vote, answered.sent);
        match (self.admission(), &answered.attached) {
            (Some(admission), Some(attached)) => {
                admission.check_vote(raw, &attached.record, answered.sent, answered.received)
            }
            _ => raw.reply,
        }
    }
}
