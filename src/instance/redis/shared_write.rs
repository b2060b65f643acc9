//! What requests that waited together are sent as, and how each gets its reply: one script for all, or one write of
//! scripts and of plain acquires between them (P28).

use std::sync::Arc;

use redis::{Pipeline, RedisResult, Value};
use tokio::task::yield_now;
use tokio::time::timeout;

use super::classify::{classify_batch, classify_refusals, classify_shared_plain, is_of_the_instance, odd_answer};
use super::connection::{InstanceConnection, SendPermit};
use super::plain;
use super::scripts::Scripts;
use super::scripts::batch::{Leading, put_leading_first};
use super::send_queue::QueuedRequest;
use super::sent_command::{Form, SentCommand};
use super::votes::Observed;
use crate::instance::{Claim, Request};
use crate::protocol::{AttachedRecord, Cause, RawReply, Reply};

/// The commands for several requests of which so many come first: the releases, the plain acquires, and what is behind.
pub(crate) fn shared_commands(
    scripts: &Scripts,
    leading: Leading,
    requests: &[&Request],
    attached: &AttachedRecord,
) -> Pipeline {
    let [releases, acquires, behind] = split(leading, requests);
    let mut commands = Pipeline::with_capacity(plain::SHARED_COMMANDS + acquires.len() + 2);
    if !releases.is_empty() {
        commands.add_command(scripts.batch(releases, releases.len(), None));
    }
    plain::add_shared(&mut commands, &claims(acquires));
    if !behind.is_empty() {
        commands.add_command(scripts.batch(behind, 0, Some(attached)));
    }
    commands
}

/// What came of requests that shared a write.
#[derive(Debug)]
pub(crate) struct SharedAnswers {
    /// The refusal of a plain acquire does not tell yet by whom.
    pub(crate) replies: Vec<RawReply>,
    /// The instance's clock behind the plain acquires, in microseconds.
    pub(crate) ended_us: Option<u64>,
}

/// Classifies the answers to [`shared_commands`]: one reply for each request.
pub(crate) fn classify_shared(
    leading: Leading,
    requests: &[&Request],
    attached: &AttachedRecord,
    result: RedisResult<Value>,
) -> SharedAnswers {
    let [releases, acquires, behind] = split(leading, requests);
    let (first, last) = (usize::from(!releases.is_empty()), usize::from(!behind.is_empty()));
    let values = match result {
        Ok(Value::Array(values)) if values.len() == first + plain::SHARED_COMMANDS + acquires.len() + last => values,
        Ok(other) => return SharedAnswers { replies: vec![odd_answer(&other); requests.len()], ended_us: None },
        Err(error) => return SharedAnswers { replies: classify_batch(requests, Err(error)), ended_us: None },
    };
    let of_script = |of: &[&Request], answer: Option<&Value>| match answer {
        Some(answer) if !of.is_empty() => classify_batch(of, Ok(answer.clone())),
        _ => Vec::new(),
    };
    let plain = values.get(first..values.len() - last).unwrap_or_default();
    let plain = classify_shared_plain(&claims(acquires), attached, plain);
    let mut replies = of_script(releases, values.first());
    replies.extend(plain.replies);
    replies.extend(of_script(behind, values.last()));
    SharedAnswers { replies, ended_us: plain.ended_us }
}

fn split<'a, 'b>(leading: Leading, requests: &'a [&'b Request]) -> [&'a [&'b Request]; 3] {
    let (releases, others) = requests.split_at(leading.releases.min(requests.len()));
    let (acquires, behind) = others.split_at(leading.acquires.min(others.len()));
    [releases, acquires, behind]
}

fn claims<'a>(requests: &[&'a Request]) -> Vec<&'a Claim> {
    requests.iter().map(|request| &**request.claim()).collect()
}

/// Sending requests that waited.
impl InstanceConnection {
    /// Sends requests that waited together; their order may change.
    pub(super) fn send_together(&self, waiting: &mut Vec<QueuedRequest>) -> SentCommand {
        if let [one] = waiting.as_slice() {
            return self.send_one(&one.request);
        }
        let now = self.what_is_known();
        let may_be_plain = |request: &Request| self.may_be_plain(request, &now);
        let leading = put_leading_first(waiting, |waiting| &waiting.request, may_be_plain);
        let requests: Vec<&Request> = waiting.iter().map(|waiting| &waiting.request).collect();
        match now.attached.as_ref().filter(|_| leading.acquires > 0) {
            Some(attached) => {
                let commands = shared_commands(self.scripts(), leading, &requests, attached);
                self.send_plain(requests.len(), now, Form::Shared(leading), Arc::new(commands))
            }
            None => self.send(requests.len(), |attached| self.scripts().batch(&requests, leading.releases, attached)),
        }
    }

    /// Delivers the replies to requests that were sent together.
    pub(super) fn deliver_replies(
        self: &Arc<Self>,
        permit: SendPermit,
        waiting: Vec<QueuedRequest>,
        sent: SentCommand,
    ) {
        let connection = Arc::clone(self);
        let permit = TaskPermit(Some(permit));
        self.runtime().spawn(async move {
            let form = sent.form;
            let Some(replies) = connection.replies_to(&waiting, sent).await else {
                for waiting in waiting {
                    let _ = waiting.reply.send(Reply::Unknown(Cause::TimedOut)); // P5
                }
                permit.give_up();
                return;
            };
            let mut refused = Vec::new();
            for (at, (waiting, reply)) in waiting.into_iter().zip(replies).enumerate() {
                match reply {
                    Reply::Refused(_) if form.shares_plain(at) => refused.push(waiting),
                    reply => {
                        // Whoever gave up waiting has counted it as unknown.
                        let _ = waiting.reply.send(reply);
                    }
                }
            }
            yield_now().await; // what those who were answered ask next goes with what waits
            permit.give_up();
            connection.tell_by_whom(refused).await;
        });
    }

    /// A reply for each; `None` if there was no answer in time.
    async fn replies_to(self: &Arc<Self>, waiting: &[QueuedRequest], sent: SentCommand) -> Option<Vec<Reply>> {
        if let [one] = waiting {
            return Some(vec![self.reply(&one.request, sent).await?]);
        }
        let (result, answered) = self.answer(sent).await?;
        match &result {
            Ok(answer) if has_failed(answer) => self.send_queue.batch_failed(),
            Ok(Value::Array(_)) => self.send_queue.batch_answered(),
            _ => {}
        }
        let requests: Vec<&Request> = waiting.iter().map(|waiting| &waiting.request).collect();
        let (raws, ended_us) = match (answered.form, answered.attached.as_ref()) {
            (Form::Shared(leading), Some(attached)) => {
                let SharedAnswers { replies, ended_us } = classify_shared(leading, &requests, attached, result);
                (replies, ended_us)
            }
            _ => (classify_batch(&requests, result), None),
        };
        let observe = |(request, raw): (&&Request, RawReply)| self.observe(raw, request.asks_for_a_vote(), &answered);
        let observed: Vec<Observed> = requests.iter().zip(raws).map(observe).collect();
        // P17: in their order, or the first reading would look like a step behind the second; and before any vote counts, for
        // the clock may have stepped behind what the votes carry.
        self.observe_clock(answered.sent, ended_us);
        Some(observed.into_iter().map(|observed| self.judge(observed, &answered)).collect())
    }

    /// Answers those whose plain acquires were refused with what stands in their way. They were carried out and set
    /// nothing, whatever comes of this.
    async fn tell_by_whom(&self, refused: Vec<QueuedRequest>) {
        if refused.is_empty() {
            return;
        }
        let claims: Vec<&Claim> = refused.iter().map(|refused| &**refused.request.claim()).collect();
        let (commands, mut connection) = (plain::what_is_there(&claims), self.multiplexed());
        let asked = async move { connection.send_packed_commands(&commands, 0, commands.len()).await };
        // Whoever asked waits no longer than that, and is to hear of the refusal at least.
        let queued = refused.iter().map(|refused| refused.queued).min().unwrap_or_else(|| self.now());
        let patience = (self.deadline() * 9 / 10).saturating_sub(self.now().saturating_since(queued));
        let answers = timeout(patience, asked).await.map_or_else(|_| Vec::new(), Result::unwrap_or_default);
        let refusals = classify_refusals(refused.len(), &answers);
        for (refused, refusal) in refused.into_iter().zip(refusals) {
            let _ = refused.reply.send(Reply::Refused(refusal));
        }
    }
}

/// Whether a script failed, perhaps by the fault of one of its requests.
fn has_failed(answer: &Value) -> bool {
    match answer {
        Value::ServerError(error) => !is_of_the_instance(error),
        Value::Array(answers) => {
            answers.iter().any(|answer| matches!(answer, Value::ServerError(error) if !is_of_the_instance(error)))
        }
        _ => false,
    }
}

/// A permit that is held by a task. If the task is dropped, by the end of the runtime or by a panic, nobody follows those
/// who wait, each of whom would be sent by the end of the one before: then the connection is given up.
struct TaskPermit(Option<SendPermit>);

impl TaskPermit {
    fn give_up(mut self) {
        drop(self.0.take());
    }
}

impl Drop for TaskPermit {
    fn drop(&mut self) {
        if let Some(permit) = &self.0 {
            permit.lose();
        }
    }
}
