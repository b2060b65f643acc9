//! A client: it stands for the runtime and calls the production code of `protocol`.

mod acquire;
mod admission;
mod background_release;
mod held_lease;
mod old_tokens;
mod plain;
mod succession;
mod verdict;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use redquorum::protocol::{
    AdmissionRecord, Cause, ClocksApart, FencingToken, InstanceId, InstanceSet, Instant, Lease, LeaseTerms, RawReply,
    Refusal, Reply, Round, SeenRecords, Value, Waiters, proposing_clock,
};

use crate::clock::Clock;
use crate::instance::{Answer, Companion, RESOURCES, Request, Script};
use crate::mutants::Mutant;
use crate::rng::Rng;
use crate::scenario::{MS, Scenario};
use crate::world::{Event, Sender, World, draw_clock};
pub(crate) use background_release::PendingRelease;

/// How wide the ticks of coarse wall clocks are.
const COARSE_TICK_US: u64 = 200_000;

/// One value and all that is known of it, shared by everything that belongs to it.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(crate) id: u32,
    pub(crate) value: Rc<Value>,
    pub(crate) keys: u8,
    /// An extend may still be on its way that could set a key again.
    pub(crate) late_extend: Cell<bool>,
    /// Something that sets keys was sent more than once: its release leaves a mark (P6).
    pub(crate) resent: Cell<bool>,
    /// It was asked for by plain commands somewhere.
    pub(crate) is_plain: Cell<bool>,
    /// Everything that was asked to release it has answered.
    pub(crate) released: Cell<bool>,
}

/// Of the first send of an acquire: what is asked for in the same writes (P28).
#[derive(Debug)]
pub(crate) struct FirstSend {
    companion: Option<Companion>,
}

/// What a round in flight is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// With the instances that an earlier send of the same value reached, if it is a repeat.
    Acquire {
        repeats: usize,
        before: InstanceSet,
    },
    Extend,
}

#[derive(Debug)]
pub(crate) struct RoundInFlight {
    pub(crate) id: u32,
    pub(crate) purpose: Purpose,
    pub(crate) round: Round,
    pub(crate) started_at: Instant,
    pub(crate) terms: LeaseTerms,
    pub(crate) token: FencingToken,
    pub(crate) ticket: Rc<Ticket>,
    pub(crate) decided: bool,
}

/// A lease that the client relies on as long as its clock allows.
#[derive(Debug)]
pub(crate) struct HeldLease {
    pub(crate) lease: Lease,
    pub(crate) ticket: Rc<Ticket>,
    /// When the user is done with it.
    until: Instant,
    renew_at: Instant,
    renews: bool,
    /// The user wants no more of it, but relies on it still (a planted bug).
    leaving: bool,
    /// Its holder has been let in elsewhere since (P23).
    pub(crate) is_succeeded: bool,
    /// P15 and P17 promise that nobody else has the lock.
    pub(crate) is_covered: bool,
}

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) clock: Clock,
    wall_us: u64,
    /// Its wall clock is in another century.
    pub(crate) is_apart: bool,
    pub(crate) paused_since: Option<u64>,
    pub(crate) paused_for: u64,
    pub(crate) inbox: Vec<Event>,
    pub(crate) generation: u32,
    pub(crate) alive: bool,
    stopping: bool,
    pub(crate) rounds_in_flight: Vec<RoundInFlight>,
    pub(crate) pending_releases: Vec<PendingRelease>,
    pub(crate) held: Option<HeldLease>,
    /// The last token that was proposed by the clock.
    last_token: Option<FencingToken>,
    /// Values of rounds that are over, of this life.
    pub(crate) over: Vec<Rc<Ticket>>,
    opening: admission::Opening,
    /// Who waits for what this client has, as far as it has heard (P25).
    waiters: Waiters,
    /// Since when it waits for a resource, by the clock of its proposals.
    waiting_since: [Option<u64>; RESOURCES],
    /// What it asks for next, since it was woken for that.
    woken_for: Option<u8>,
    /// For the planted bug.
    same_value: Option<Rc<Value>>,
}

impl Client {
    pub(crate) fn new(rng: &mut Rng, scenario: &Scenario) -> Self {
        let far_us = if scenario.far_wall_clocks { 60_000_000 } else { scenario.max_ttl_ms * 1000 / 40 };
        Self {
            clock: draw_clock(rng, 3_000, scenario.worst_clocks.then_some(false)),
            wall_us: scenario.era_us + rng.below(far_us * 2),
            is_apart: false,
            paused_since: None,
            paused_for: 0,
            inbox: Vec::new(),
            generation: 0,
            alive: true,
            stopping: false,
            rounds_in_flight: Vec::new(),
            pending_releases: Vec::new(),
            held: None,
            last_token: None,
            over: Vec::new(),
            opening: admission::Opening::default(),
            waiters: Waiters::default(),
            waiting_since: [None; RESOURCES],
            woken_for: None,
            same_value: None,
        }
    }

    pub(crate) fn set_apart(&mut self) {
        self.is_apart = true;
        self.wall_us += 70 * 365 * 86_400_000_000;
    }

    fn is_acquiring(&self) -> bool {
        self.rounds_in_flight.iter().any(|in_flight| !in_flight.decided && in_flight.purpose != Purpose::Extend)
    }
}

impl World {
    /// The client's next look at what there is to do; a later call replaces it.
    pub(crate) fn wake(&mut self, c: usize, after_true: u64) {
        self.clients[c].generation += 1;
        let generation = self.clients[c].generation;
        self.schedule(after_true, Event::Wake { c, generation });
    }

    /// Wakes when the client's clock shows `at`.
    fn wake_at(&mut self, c: usize, at: Instant) {
        let wait = at.saturating_since(self.client_now(c)).as_nanos();
        let after = self.clients[c].clock.true_span(u64::try_from(wait).unwrap_or(u64::MAX));
        self.wake(c, after);
    }

    /// What the wall clock of a client shows.
    fn wall_us(&self, c: usize) -> u64 {
        let shown = self.clients[c].wall_us + self.now / 1000;
        if self.scenario.coarse_wall_clocks { shown - shown % COARSE_TICK_US } else { shown }
    }

    /// The clock by which tokens are proposed (P12).
    fn proposing_clock(&self, c: usize) -> Result<u64, ClocksApart> {
        let now = self.client_now(c);
        let reading = |i| {
            let standing = self.link(c, i).standing.as_ref().filter(|_| self.link(c, i).up)?;
            Some(standing.watch().at_least_ms(now) * 1000)
        };
        proposing_clock(self.wall_us(c), (0..self.servers.len()).map(reading), self.scenario.quorum)
    }

    pub(crate) fn on_wake(&mut self, c: usize) {
        let client = &self.clients[c];
        if client.alive && client.held.is_some() {
            self.tend_lease(c);
        } else if client.alive && !client.stopping && !client.is_acquiring() {
            self.begin_acquire(c);
        }
    }

    /// An answer of an instance reaches the client; late ones do too.
    pub(crate) fn on_answer(
        &mut self,
        c: usize,
        id: InstanceId,
        sender: Sender,
        named: Option<&Arc<AdmissionRecord>>,
        answer: &Answer,
        server_us: u64,
    ) {
        match sender {
            Sender::Release(release) => self.on_release_answered(c, id, release),
            Sender::Setup(sent) => self.on_setup_answer(c, id.index(), sent, answer, server_us),
            Sender::Opening(opening) => self.on_opening_answer(c, id.index(), opening, answer, server_us),
            Sender::Write => {}
            Sender::OldTokens => {
                if let Answer::OldTokens(old) = answer {
                    self.on_old_tokens(c, id.index(), *old);
                }
            }
            Sender::RoundInFlight(in_flight) => {
                let mistaken = self.mistaken_round(c).filter(|_| self.is(Mutant::LateCopyCounts));
                let in_flight = self.in_flight_index(c, in_flight).map_or(mistaken, |_| Some(in_flight));
                let Some(in_flight) = in_flight else { return };
                let Some(at) = self.in_flight_index(c, in_flight) else { return };
                let asked = &self.clients[c].rounds_in_flight[at];
                let sent = asked.started_at;
                let raw = match answer {
                    Answer::Plain(seen) => self.read_plain((c, id.index()), asked, named, seen),
                    // Coarser than it was, once in a thousand times: that only hides more.
                    _ => RawReply {
                        reply: translate(answer),
                        instance_us: Some(server_us),
                        unit_us: if server_us.is_multiple_of(1000) { 1000 } else { 1 },
                    },
                };
                let reply = self.judge(c, id.index(), raw, named, sent);
                let now = self.client_now(c);
                let Some(at) = self.in_flight_index(c, in_flight) else { return };
                self.clients[c].rounds_in_flight[at].round.on_reply(id, reply, now);
                self.decide(c, in_flight);
            }
        }
    }

    pub(crate) fn in_flight_index(&self, c: usize, in_flight: u32) -> Option<usize> {
        self.clients[c].rounds_in_flight.iter().position(|known| known.id == in_flight)
    }

    /// Sends a flight's request to every instance.
    fn launch(&mut self, c: usize, mut in_flight: RoundInFlight, script: Script, first: Option<&FirstSend>) {
        let request = Rc::new(Request {
            note: None,
            script,
            keys: in_flight.ticket.keys,
            value: in_flight.ticket.value.clone(),
            token: in_flight.token,
            ttl_ms: u64::try_from(in_flight.terms.ttl().as_millis()).unwrap_or(0),
            resent: false,
            successors: None,
            is_first: first.is_some(),
            companion: first.and_then(|first| first.companion.clone()),
        });
        self.stats.rounds += 1;
        for id in InstanceId::all(self.servers.len()) {
            if let Some(reply) =
                self.send(c, id.index(), Sender::RoundInFlight(in_flight.id), &request, Some(&in_flight.ticket))
            {
                in_flight.round.on_reply(id, reply, in_flight.started_at);
            }
        }
        let id = in_flight.id;
        self.clients[c].rounds_in_flight.push(in_flight);
        let after = self.clients[c].clock.true_span(self.scenario.timeout);
        self.schedule(after, Event::Deadline { c, in_flight: id });
        self.decide(c, id);
    }

    /// The process dies: it relies on nothing any more and releases nothing.
    pub(crate) fn crash(&mut self, c: usize, down: u64) {
        let client = &mut self.clients[c];
        client.alive = false;
        (client.held, client.last_token) = (None, None);
        (client.waiters, client.waiting_since, client.woken_for) = (Waiters::default(), [None; RESOURCES], None);
        client.rounds_in_flight.clear();
        client.pending_releases.clear();
        client.over.clear();
        client.inbox.clear();
        client.generation += 1;
        for i in 0..self.servers.len() {
            let link = self.link_mut(c, i);
            (link.seen, link.knows_better) = (SeenRecords::default(), false);
            link.forget_former();
        }
        self.schedule(down + 1, Event::Reborn { c });
    }

    pub(crate) fn reborn(&mut self, c: usize) {
        if !self.clients[c].alive {
            self.clients[c].alive = true;
            for i in 0..self.servers.len() {
                self.break_link(c, i);
                self.link_mut(c, i).connecting = false; // its timer died with the process
                self.reconnect_later(c, i);
            }
            self.wake(c, MS);
        }
    }

    /// The caller drops the future of its acquire.
    pub(crate) fn cancel(&mut self, c: usize) {
        let undecided = |in_flight: &RoundInFlight| !in_flight.decided && in_flight.purpose != Purpose::Extend;
        let Some(at) = self.clients[c].rounds_in_flight.iter().position(undecided) else { return };
        let in_flight = self.clients[c].rounds_in_flight.remove(at);
        self.clients[c].over.push(in_flight.ticket.clone());
        if !self.is(Mutant::CancelLeavesKeys) {
            let targets = in_flight.round.must_release().union(in_flight.before());
            self.give_back_in_background(c, &in_flight.ticket, in_flight.token, targets, in_flight.terms);
        }
        let pause = self.rng.below(self.scenario.ttl_ms * MS / 4);
        self.wake(c, pause);
    }

    /// No more locks from here on.
    pub(crate) fn stop(&mut self, c: usize) {
        self.clients[c].stopping = true;
        self.cancel(c);
        self.release_now(c);
    }
}

impl RoundInFlight {
    pub(crate) fn has_stale(&self) -> bool {
        self.round.replies().iter().flatten().any(|answer| matches!(answer.reply, Reply::Stale { .. }))
    }

    fn before(&self) -> InstanceSet {
        match self.purpose {
            Purpose::Acquire { before, .. } => before,
            Purpose::Extend => InstanceSet::default(),
        }
    }
}

/// What an answer means to a round.
pub(crate) fn translate(answer: &Answer) -> Reply {
    match answer {
        Answer::Granted | Answer::Released { .. } => Reply::Granted,
        Answer::Repaired => Reply::Repaired,
        Answer::NotAdmitted { left_ms } => {
            Reply::NotAdmitted { remaining: left_ms.map(std::time::Duration::from_millis) }
        }
        Answer::Facts(_) | Answer::Record { .. } | Answer::Plain(_) | Answer::OldTokens(_) => {
            Reply::Unknown(Cause::OddReply(String::new()))
        }
        Answer::ClockBehind { clock_s, token_s } => {
            Reply::Unknown(Cause::ClockBehind { clock_s: *clock_s, token_s: *token_s })
        }
        Answer::Stale { stored } => Reply::Stale { stored: *stored },
        Answer::Refused { index, ttl_ms, value, token } => Reply::Refused(Refusal {
            resource: *index,
            value: value.as_ref().map(|value| value.as_bytes().to_vec()),
            expires_in: ttl_ms.map(std::time::Duration::from_millis),
            token: *token,
        }),
    }
}
