//! Connections: in order while they last; what is in flight when one breaks may still arrive,
//! behind what is sent over the next one.

use std::rc::Rc;
use std::sync::Arc;

use redquorum::protocol::{
    AdmissionRecord, AdmissionState, Cause, InstanceId, Message, ProcessFacts, Reply, SeenRecords,
};

use super::{Call, Event, Sender, World, tell};
use crate::client::Ticket;
use crate::instance::{Request, Script};
use crate::mutants::Mutant;
use crate::scenario::{MS, Net};

/// The connection of one client to one instance.
#[derive(Clone, Debug, Default)]
pub(crate) struct Link {
    pub(crate) up: bool,
    /// Counts the connections.
    pub(crate) epoch: u32,
    /// Those of this life of the client to this process that are not known to be ended, and those that are.
    pub(super) former: Vec<u32>,
    pub(super) ended: Vec<u32>,
    pub(super) incarnation: u32,
    /// Deadlines in a row that passed without any answer.
    pub(crate) silent: u32,
    /// Nothing more arrives in this direction over this connection.
    to_is_dead: bool,
    from_is_dead: bool,
    pub(super) last_to: u64,
    last_from: u64,
    /// Until when nothing gets through, in true time.
    pub(super) cut_to: u64,
    pub(super) cut_from: u64,
    pub(crate) connecting: bool,
    pub(crate) standing: Option<AdmissionState>,
    /// What the instance said of itself in the admission under way, and when that was begun.
    pub(crate) facts: Option<ProcessFacts>,
    pub(crate) asked_at: Option<u64>,
    /// The records of this process that were seen, also over former connections.
    pub(crate) seen: SeenRecords,
    /// A record that must not stand, and whether there was reason to doubt since the admission under
    /// way was begun.
    pub(crate) doubted: Option<Arc<AdmissionRecord>>,
    pub(crate) doubts_again: bool,
    /// Whether it was seen that what the instance came back with last is old.
    pub(crate) knows_better: bool,
    /// When the first sample of the instance's clock arrived, in true time.
    pub(crate) sampled_at: u64,
}

impl Link {
    /// The process of the client ends: its next does not know of its connections.
    pub(crate) fn forget_former(&mut self) {
        self.former.clear();
    }
}

impl World {
    pub(crate) fn link(&self, c: usize, i: usize) -> &Link {
        &self.links[c * self.servers.len() + i]
    }

    pub(crate) fn link_mut(&mut self, c: usize, i: usize) -> &mut Link {
        let instances = self.servers.len();
        &mut self.links[c * instances + i]
    }

    pub(crate) fn net(&self) -> Net {
        if self.calm { Net::CALM } else { self.scenario.net }
    }

    /// Time on the way: half of the messages nearly none, a few very long.
    pub(super) fn delay(&mut self) -> u64 {
        let net = self.net();
        let ttl = self.scenario.ttl_ms * MS;
        let near = 10_000 + self.rng.below(190_000);
        if self.rng.percent(50) || self.calm {
            near
        } else if self.rng.permille(net.tail_permille) {
            self.rng.below(2 * ttl)
        } else if self.rng.percent(net.slow_percent) {
            self.rng.below(ttl / 4)
        } else {
            near + self.rng.below(ttl / 50)
        }
    }

    /// Sends a script call, or says that there is no connection.
    pub(crate) fn send(
        &mut self,
        c: usize,
        i: usize,
        sender: Sender,
        request: &Rc<Request>,
        ticket: Option<&Rc<Ticket>>,
    ) -> Option<Reply> {
        let link = self.link(c, i);
        let votes = matches!(sender, Sender::RoundInFlight(_)) && self.scenario.admission();
        if !link.up || (votes && link.standing.is_none()) {
            return Some(Reply::NotSent(Cause::Silent));
        }
        let (epoch, incarnation) = (link.epoch, link.incarnation);
        let known = link.standing.as_ref().map(|standing| standing.record().clone());
        let acquires = request.script == Script::Acquire;
        let now = self.client_now(c);
        let quarantine_over =
            acquires && link.standing.as_ref().is_some_and(|standing| standing.known_at(now).0.quarantine_over);
        let net = self.net();
        let call = Call { sender, known, quarantine_over, request: request.clone(), ticket: ticket.cloned() };
        if self.may_be_plain(c, i, request) {
            self.send_plain(c, i, &call);
            return None;
        }
        let event = || Event::Request { c, i, epoch, incarnation, call: call.clone() };
        if self.rng.permille(net.duplicate_permille) {
            self.stats.duplicates += 1;
            // The network delivers once; what arrives twice was sent twice, which a release must know.
            if let Some(ticket) = ticket.filter(|_| !request.script.is_release()) {
                ticket.resent.set(true);
                ticket.late_extend.set(ticket.late_extend.get() || request.script == Script::Extend);
            }
            let late = self.delay() + self.delay();
            // P28: a release relies on coming behind its own plain commands, or behind the end of their connection.
            let (is_plain, link) = (ticket.is_some_and(|ticket| ticket.is_plain.get()), self.link(c, i));
            let behind = link.last_to.saturating_sub(self.now) + 1;
            if !is_plain {
                self.schedule(late, event());
            } else if !link.to_is_dead {
                self.schedule(late.max(behind), event());
            }
        }
        let delay = self.delay();
        if let Some(at) = self.travel(c, i, delay, true) {
            self.schedule(at - self.now, event());
        }
        None
    }

    pub(crate) fn answer(&mut self, c: usize, i: usize, epoch: u32, back: Event) {
        let delay = self.delay();
        if self.link(c, i).epoch != epoch && !self.is(Mutant::LateCopyCounts) {
            return; // the client has another connection now
        }
        if let Some(at) = self.travel(c, i, delay, false) {
            self.schedule(at - self.now, back);
        }
    }

    /// The instance tells over a connection that it was flushed, in order with its replies.
    pub(crate) fn push(&mut self, c: usize, i: usize) {
        if !self.scenario.tells_flushes() {
            return;
        }
        self.push_later(c, i, |epoch| Event::Flushed { c, i, epoch });
    }

    /// The instance sends something over a connection that was not asked for.
    pub(crate) fn push_later(&mut self, c: usize, i: usize, event: impl FnOnce(u32) -> Event) {
        let (delay, epoch) = (self.delay(), self.link(c, i).epoch);
        if let Some(at) = self.travel(c, i, delay, false) {
            self.schedule(at - self.now, event(epoch));
        }
    }

    /// Whether the instance has a connection with this client, as far as it knows.
    pub(crate) fn hears(&self, c: usize, i: usize) -> bool {
        self.link(c, i).up && self.link(c, i).incarnation == self.servers[i].incarnation
    }

    /// A client publishes a message over its connection.
    pub(crate) fn publish_later(&mut self, c: usize, i: usize, to: usize, message: Message) {
        let (delay, incarnation) = (self.delay(), self.link(c, i).incarnation);
        if let Some(at) = self.travel(c, i, delay, true) {
            self.schedule(at - self.now, Event::Publish { i, incarnation, to, message });
        }
    }

    /// When a message arrives that is sent now; `None` if it is lost, and with it the connection.
    pub(super) fn travel(&mut self, c: usize, i: usize, delay: u64, to: bool) -> Option<u64> {
        let net = self.net();
        let now = self.now;
        let link = self.link(c, i);
        let cut = if to { link.cut_to } else { link.cut_from };
        let held = cut > now;
        let dead = if to { link.to_is_dead } else { link.from_is_dead };
        let lost = dead || (held && self.rng.percent(40)) || self.rng.permille(net.loss_permille);
        let link = self.link_mut(c, i);
        if lost {
            *(if to { &mut link.to_is_dead } else { &mut link.from_is_dead }) = true;
            self.stats.lost_messages += 1;
            return None;
        }
        let last = if to { &mut link.last_to } else { &mut link.last_from };
        let at = (now.max(cut) + delay).max(*last + 1);
        *last = at;
        Some(at)
    }

    /// The client drops a connection: what it sent may still arrive, answers no longer.
    pub(crate) fn break_link(&mut self, c: usize, i: usize) {
        let link = self.link_mut(c, i);
        if !link.up {
            return;
        }
        link.up = false;
        tell!(self, "client {c} drops its connection to {i}");
        self.lose_answers(c, InstanceId::new(i), &Cause::Disconnected(String::new()));
        self.reconnect_later(c, i);
    }

    pub(crate) fn reconnect_later(&mut self, c: usize, i: usize) {
        if !std::mem::replace(&mut self.link_mut(c, i).connecting, true) {
            let most = if self.calm { MS } else { self.scenario.ttl_ms * MS / 10 };
            let after = self.rng.below(most);
            self.schedule(after, Event::Connect { c, i });
        }
    }

    pub(crate) fn connect(&mut self, c: usize, i: usize) {
        let now = self.now;
        let (server_up, incarnation) = (self.servers[i].up, self.servers[i].incarnation);
        let link = self.link_mut(c, i);
        link.connecting = false;
        if link.up {
            return;
        }
        if link.cut_to > now || link.cut_from > now || !server_up {
            if link.cut_to < u64::MAX / 2 {
                self.reconnect_later(c, i);
            }
            return;
        }
        let epoch = link.epoch + 1;
        let mut former = std::mem::take(&mut link.former);
        former.retain(|_| link.incarnation == incarnation);
        let begun = Link {
            up: true,
            epoch,
            incarnation,
            former: former.iter().copied().chain([epoch]).collect(),
            ended: std::mem::take(&mut link.ended),
            cut_to: link.cut_to,
            cut_from: link.cut_from,
            seen: std::mem::take(&mut link.seen),
            knows_better: link.knows_better,
            ..Link::default()
        };
        *link = begun;
        self.send_end_of(c, i, former);
        self.begin_admission(c, i, false);
        self.resend_releases(c, InstanceId::new(i));
    }

    /// A deadline passed without an answer: after two in a row the connection is given up.
    pub(crate) fn note_silence(&mut self, c: usize, i: usize) {
        let link = self.link_mut(c, i);
        link.silent += 1;
        if link.silent >= 2 {
            self.break_link(c, i);
        }
    }

    /// The process behind a connection died: clients hear of it soon, or not at all.
    pub(crate) fn peer_died(&mut self, i: usize) {
        for c in 0..self.clients.len() {
            let epoch = self.link(c, i).epoch;
            self.link_mut(c, i).to_is_dead = true;
            if self.calm || self.rng.percent(70) {
                let after = self.delay();
                self.schedule(after, Event::Broken { c, i, epoch });
            }
        }
    }

    /// Faults end: connections that are dead are found out, cuts heal.
    pub(crate) fn heal_links(&mut self) {
        for c in 0..self.clients.len() {
            for i in 0..self.servers.len() {
                let epoch = self.link(c, i).epoch;
                let link = self.link_mut(c, i);
                (link.cut_to, link.cut_from) = (0, 0);
                if link.to_is_dead || link.from_is_dead {
                    self.schedule(MS, Event::Broken { c, i, epoch });
                } else if !link.up {
                    link.connecting = false;
                    self.reconnect_later(c, i);
                } else {
                    // A flush shows only when somebody asks; quarantine begins then.
                    link.asked_at = None;
                    self.begin_admission(c, i, false);
                }
            }
        }
    }
}
