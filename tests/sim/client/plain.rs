//! What a client makes of the answers to plain commands (P28), and what it asks for beside.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use redquorum::protocol::{
    AdmissionRecord, Cause, FencingToken, InstanceId, InstanceSet, LeaseTerms, PlainAnswers, PlainOutcome, RawReply,
    Refusal, Reply, TokenAnswer,
};

use super::{RoundInFlight, Ticket};
use crate::admission::is_known;
use crate::instance::{Companion, Request, Script};
use crate::mutants::Mutant;
use crate::plain::PlainSeen;
use crate::world::World;

impl World {
    /// By production's rule, from what the commands answered.
    pub(super) fn read_plain(
        &self,
        (c, i): (usize, usize),
        in_flight: &RoundInFlight,
        named: Option<&Arc<AdmissionRecord>>,
        seen: &PlainSeen,
    ) -> RawReply {
        let now = self.client_now(c);
        let offset_ns = self.link(c, i).standing.as_ref().map_or(0, |standing| standing.watch().offset_ns());
        let about_us = u64::try_from((i128::from(now.as_nanos()) + offset_ns) / 1_000).unwrap_or(0);
        let ttl_ms = u64::try_from(in_flight.terms.ttl().as_millis()).unwrap_or(0);
        // Of several it is not known which were raised.
        let is_raised = match self.scenario.mutant {
            Some(Mutant::TokenAnswerIgnored) => true,
            Some(Mutant::CountIsAll) => seen.raised > 0,
            _ => seen.raised == seen.claims,
        };
        let looks = !self.is(Mutant::SetNotLookedAt);
        let answers = PlainAnswers {
            is_set: seen.is_set || !looks,
            token: if is_raised { TokenAnswer::Raised } else { TokenAnswer::NotRaised(seen.stored) },
            is_own: seen.value.as_deref() == Some(&*in_flight.ticket.value) || !looks,
            instance_us: seen.end_ms.map(|end_ms| end_ms.saturating_sub(ttl_ms) * 1000),
            is_known_record: named.is_some_and(|named| is_known(seen.record.as_ref(), named, self.scenario.mutant)),
        };
        let not_granted = |reply| RawReply { reply, instance_us: None, unit_us: 1 };
        match answers.outcome(in_flight.token, about_us) {
            PlainOutcome::Granted { instance_us } => {
                let instance_us = Some(instance_us).filter(|_| !self.is(Mutant::PlainClockIgnored));
                RawReply { reply: Reply::Granted, instance_us, unit_us: 1_000 }
            }
            PlainOutcome::Refused => not_granted(Reply::Refused(Refusal {
                resource: 0,
                value: seen.value.as_ref().map(|value| value.as_bytes().to_vec()),
                expires_in: seen
                    .end_ms
                    .map(|end_ms| std::time::Duration::from_millis(end_ms.saturating_sub(about_us / 1000))),
                token: None,
            })),
            PlainOutcome::Stale { stored } => not_granted(Reply::Stale { stored }),
            PlainOutcome::NotAdmitted if self.is(Mutant::PlainNotReleased) => {
                not_granted(Reply::NotSent(Cause::Silent))
            }
            PlainOutcome::NotAdmitted => not_granted(Reply::NotAdmitted { remaining: None }),
            PlainOutcome::Odd => not_granted(Reply::Unknown(Cause::OddReply(String::new()))),
        }
    }

    /// What another task of the client asks for in the same writes: another lock, by a future that is dropped at once.
    pub(super) fn draw_companion(&mut self, c: usize, keys: u8, terms: LeaseTerms) -> Option<Companion> {
        let others = ((1 << self.scenario.resources) - 1) & !keys;
        let is_alone = keys.count_ones() != 1 || self.scenario.holder_of(c).is_some() || self.probing.is_some();
        if is_alone || others == 0 || !self.rng.percent(30) {
            return None;
        }
        let lowest = others & others.wrapping_neg();
        let keys = if self.rng.percent(50) { lowest } else { 1 << (7 - others.leading_zeros()) };
        let wall_us = self.proposing_clock(c).ok()?;
        let token = FencingToken::propose(wall_us, self.clients[c].last_token);
        self.clients[c].last_token = Some(token);
        let id = self.fresh_id();
        let ticket = Rc::new(Ticket {
            id,
            value: self.draw_value(c, id),
            keys,
            late_extend: Cell::new(false),
            resent: Cell::new(false),
            is_plain: Cell::new(false),
            released: Cell::new(false),
        });
        let (value, ttl_ms) = (ticket.value.clone(), u64::try_from(terms.ttl().as_millis()).unwrap_or(0));
        let request = Request { script: Script::Acquire, keys, value, token, ttl_ms, ..Request::clone(&self.blank) };
        Some(Companion { request: Rc::new(request), ticket })
    }

    /// Its future is gone: what it may have set is released.
    pub(super) fn drop_companion(&mut self, c: usize, companion: &Companion, terms: LeaseTerms) {
        let Companion { request, ticket } = companion;
        self.clients[c].over.push(ticket.clone());
        let all: InstanceSet = InstanceId::all(self.servers.len()).collect();
        self.give_back_in_background(c, ticket, request.token, all, terms);
    }

    /// The round under way that a planted bug takes an answer for.
    pub(super) fn mistaken_round(&self, c: usize) -> Option<u32> {
        let is_open = |in_flight: &&RoundInFlight| !in_flight.decided && in_flight.purpose != super::Purpose::Extend;
        self.clients[c].rounds_in_flight.iter().find(is_open).map(|in_flight| in_flight.id)
    }
}
