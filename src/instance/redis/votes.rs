//! What the answer to a write counts for, and what it shows about the connection.

use std::sync::Arc;

use redis::{RedisResult, Value};

use super::connection::InstanceConnection;
use super::send_queue::{Asked, Write};
use super::wire::TakesAnswers;
use super::write::{Answers, classify};
use crate::instance::{Claim, Request};
use crate::protocol::{AttachedRecord, Instant, RawReply, Reply};

/// When a write was sent, with what record, and when it was answered.
struct Answered {
    sent: Instant,
    received: Instant,
    attached: Option<AttachedRecord>,
}

/// A reply of which the sample of the clock is taken in, and which is still to be judged.
struct Observed {
    raw: RawReply,
    /// Whether the instance's clock had stepped forward by then.
    stepped: bool,
}

impl Observed {
    /// What the instance's clock read.
    const fn instance_us(&self) -> Option<u64> {
        self.raw.instance_us
    }

    /// Whether the key was missing until then, or is still.
    fn was_missing(&self) -> bool {
        matches!(self.raw.reply, Reply::Repaired | Reply::Refused(_))
    }
}

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
        let answered = Answered { sent, received: self.now(), attached };
        let Answers { replies, has_failed } = classify(parts, &asked, answered.attached.as_ref(), answer);
        match answer {
            _ if asked.len() < 2 => {}
            Ok(_) if has_failed => self.send_queue.lock().batch_failed(),
            Ok(_) => self.send_queue.lock().batch_answered(),
            Err(_) => {}
        }
        // P17: before any vote counts, for the clock may have stepped behind what the first of them carry.
        let observe = |(asked, raw): (&Asked, RawReply)| self.observe(raw, asked.request.asks_for_a_vote(), &answered);
        let observed: Vec<Observed> = asked.iter().zip(replies).map(observe).collect();
        for (asked, observed) in asked.into_iter().zip(observed) {
            let reply = self.judge(observed, &asked.request, &answered);
            self.answer(asked, reply);
        }
    }

    /// Takes in what a reply shows about the connection and the instance's clock.
    fn observe(self: &Arc<Self>, raw: RawReply, may_vote: bool, answered: &Answered) -> Observed {
        self.note(&raw.reply, may_vote, answered.sent);
        let admission = self.admission().filter(|_| answered.attached.is_some());
        let stepped = admission.is_some_and(|shared| shared.observe_reply(&raw, answered.sent, answered.received));
        Observed { raw, stepped }
    }

    /// What the reply to a request counts for.
    fn judge(&self, observed: Observed, request: &Request, answered: &Answered) -> Reply {
        let asks = request.asks_for_a_vote();
        if asks && observed.was_missing() {
            self.note_missing(request.claim(), answered);
        }
        let instance_us = observed.instance_us();
        let reply = self.admit(observed, answered);
        if asks { self.count(reply, instance_us, request.claim(), answered) } else { reply }
    }

    /// What admission lets it count for (P14, P15, P17).
    fn admit(&self, observed: Observed, answered: &Answered) -> Reply {
        let Observed { raw, stepped } = observed;
        match (self.admission(), &answered.attached) {
            (Some(admission), Some(attached)) => admission.judge(raw, stepped, &attached.record, answered.received),
            _ => raw.reply,
        }
    }

    /// What it counts for by what the instance has voted before (P10), whose clock read this.
    fn count(&self, reply: Reply, instance_us: Option<u64>, claim: &Claim, answered: &Answered) -> Reply {
        match (self.admission(), &answered.attached) {
            (Some(admission), Some(attached)) => {
                let times = (answered.sent, answered.received);
                let request = admission.vote_request(claim.ttl, &attached.record, times, instance_us);
                claim.votes.lock().count(reply, &request)
            }
            _ => reply,
        }
    }

    /// The key was missing when the instance carried out what was sent then: nothing of an earlier vote is kept.
    fn note_missing(&self, claim: &Claim, answered: &Answered) {
        if let Some(admission) = self.admission() {
            claim.votes.lock().forget(admission.config.id, answered.sent);
        }
    }
}
