//! What the answer to a write counts for, and what it shows about the connection.

use std::mem::replace;
use std::sync::Arc;

use redis::{RedisResult, Value};

use super::admission::shared::SharedAdmission;
use super::connection::InstanceConnection;
use super::send_queue::{Asked, Write};
use super::wire::TakesAnswers;
use super::write::{Answers, classify};
use crate::instance::Claim;
use crate::protocol::{AdmissionRecord, Instant, RawReply, Reply};

impl TakesAnswers for InstanceConnection {
    fn answered(self: Arc<Self>, number: u64, answer: RedisResult<Value>) {
        let Some(write) = self.send_queue.lock().take_answered(number, self.now()) else { return };
        self.take_in(write, &answer);
    }

    fn gathers(&self) -> bool {
        self.send_queue.lock().gathers()
    }

    fn send_gathered(&self) {
        self.send_waiting();
    }
}

impl InstanceConnection {
    /// Gives each request of a write its reply.
    fn take_in(self: &Arc<Self>, write: Write, answer: &RedisResult<Value>) {
        let Write { at: sent, attached, parts, requests: asked, .. } = write;
        let received = self.now();
        let Answers { mut replies, has_failed } = classify(parts, &asked, attached.as_ref(), answer);
        match answer {
            _ if asked.len() < 2 => {}
            Ok(_) if has_failed => self.send_queue.lock().batch_failed(),
            Ok(_) => self.send_queue.lock().batch_answered(),
            Err(_) => {}
        }
        for (asked, raw) in asked.iter().zip(&replies) {
            self.note(&raw.reply, asked.request.asks_for_a_vote(), sent);
        }
        if let (Some(admission), Some(attached)) = (self.admission(), &attached) {
            admission.judge(&asked, &mut replies, &attached.record, (sent, received));
        }
        for (asked, raw) in asked.into_iter().zip(replies) {
            self.answer(asked, raw.reply);
        }
    }
}

impl SharedAdmission {
    /// What the replies to a write with `record` count for, which was sent and answered at these times.
    fn judge(
        &self,
        asked: &[Asked],
        replies: &mut [RawReply],
        record: &Arc<AdmissionRecord>,
        (sent, received): (Instant, Instant),
    ) {
        // P17: before any vote counts, for the clock may have stepped behind what the first of them carry.
        let stepped = self.observe_replies(replies, sent, received);
        for (claim, _) in votes(asked, replies).filter(|(_, raw)| was_missing(&raw.reply)) {
            claim.votes.lock().forget(self.config.id, sent); // nothing of an earlier vote is kept
        }
        self.admit(replies, stepped, record, received); // P14, P15, P17
        for (claim, raw) in votes(asked, replies) {
            let request = self.vote_request(claim.ttl, record, (sent, received), raw.instance_us);
            let reply = replace(&mut raw.reply, Reply::Granted);
            raw.reply = claim.votes.lock().count(reply, &request); // P10
        }
    }
}

/// The replies to what asks for a vote.
fn votes<'a>(asked: &'a [Asked], replies: &'a mut [RawReply]) -> impl Iterator<Item = (&'a Claim, &'a mut RawReply)> {
    let asks = |(asked, _): &(&Asked, _)| asked.request.asks_for_a_vote();
    asked.iter().zip(replies).filter(asks).map(|(asked, raw)| (asked.as_ref(), raw))
}

/// Whether the key was missing until then, or is still.
const fn was_missing(reply: &Reply) -> bool {
    matches!(reply, Reply::Repaired | Reply::Refused(_))
}
