//! The simulated world: one queue of events in true time, and nothing else that moves.

mod calm;
mod chaos;
mod event;
mod net;
mod plain;
mod server;

use std::collections::BinaryHeap;
use std::rc::Rc;

use redquorum::protocol::{FencingToken, InstanceId, Instant, Value};
use uuid::Uuid;

use crate::batch::Violation;
use crate::client::Client;
use crate::clock::{Clock, most_rate};
use crate::instance::{Request, Script};
use crate::invariants::History;
use crate::mutants::Mutant;
use crate::rng::Rng;
use crate::scenario::{DRIFT_PPM, MS, Scenario};
use crate::stats::Stats;
use event::Scheduled;
pub(crate) use event::{Call, Event, Sender};
use net::Link;
pub(crate) use plain::{Between, PlainStats};
pub(crate) use server::Server;

pub(crate) struct World {
    pub(crate) scenario: Scenario,
    pub(crate) now: u64,
    pub(crate) rng: Rng,
    pub(crate) servers: Vec<Server>,
    pub(crate) clients: Vec<Client>,
    links: Vec<Link>,
    queue: BinaryHeap<Scheduled>,
    sequence: u64,
    next_id: u32,
    ended: bool,
    pub(crate) calm: bool,
    pub(crate) blank: Rc<Request>,
    pub(crate) probing: Option<usize>,
    grants: u8,
    /// How many plain acquires instances have begun to carry out.
    plain_writes: u8,
    pub(crate) wins: u8,
    struck: u8,
    pub(crate) history: History,
    pub(crate) stats: Stats,
    pub(crate) violation: Option<Violation>,
    hash: u64,
    pub(crate) log: Option<Vec<String>>,
}

/// Writes a line of the trace, if this run is told.
macro_rules! tell {
    ($world:expr, $($arg:tt)*) => {
        if let Some(log) = $world.log.as_mut() {
            log.push(format!("{:>12.3} ms  {}", $world.now as f64 / 1e6, format_args!($($arg)*)));
        }
    };
}
pub(crate) use tell;

/// True time at which a run begins: instances have been up before.
pub(crate) const START: u64 = 100_000 * MS;

impl World {
    pub(crate) fn new(scenario: Scenario, told: bool) -> Self {
        let mut rng = Rng::new(scenario.seed ^ 0x5eed);
        let servers = (0..scenario.instances()).map(|_| Server::new(&mut rng, &scenario)).collect();
        let mut clients: Vec<Client> = (0..scenario.clients).map(|_| Client::new(&mut rng, &scenario)).collect();
        clients.iter_mut().skip(1).filter(|_| rng.percent(4)).for_each(Client::set_apart);
        let links = vec![Link::default(); scenario.clients * scenario.instances()];
        let mut world = Self {
            now: START,
            rng,
            servers,
            clients,
            links,
            queue: BinaryHeap::with_capacity(256),
            sequence: 0,
            next_id: 0,
            ended: false,
            calm: false,
            blank: Rc::new(blank()),
            probing: None,
            grants: 0,
            plain_writes: 0,
            wins: 0,
            struck: 0,
            history: History::default(),
            stats: Stats { runs: 1, ..Stats::default() },
            violation: None,
            hash: 0xcbf2_9ce4_8422_2325,
            log: told.then(Vec::new),
            scenario,
        };
        world.set_up();
        world
    }

    fn set_up(&mut self) {
        tell!(self, "{:?}", self.scenario);
        for c in 0..self.clients.len() {
            for i in 0..self.servers.len() {
                self.connect(c, i);
            }
            let first = self.rng.below(self.scenario.ttl_ms * MS / 4);
            self.wake(c, first);
        }
        self.plan_chaos();
        self.schedule(self.scenario.chaos, Event::Calm);
    }

    /// Runs to the end, or to the first violation.
    pub(crate) fn run(&mut self) {
        while self.violation.is_none()
            && let Some(Scheduled { at, event, .. }) = self.queue.pop()
        {
            self.now = at;
            self.stats.events += 1;
            if matches!(event, Event::End) {
                self.end();
                if self.ended {
                    return;
                }
                continue;
            }
            self.handle(event);
        }
    }

    /// A number that tells whether two runs were the same.
    pub(crate) fn trace_hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn mix(&mut self, number: u64) {
        self.hash = (self.hash ^ number).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
    }

    pub(crate) fn is(&self, mutant: Mutant) -> bool {
        self.scenario.is(mutant)
    }

    pub(crate) fn schedule(&mut self, after: u64, event: Event) {
        self.sequence += 1;
        self.queue.push(Scheduled { at: self.now + after, sequence: self.sequence, event });
    }

    pub(crate) fn fresh_id(&mut self) -> u32 {
        self.next_id += 1;
        self.next_id
    }

    pub(crate) fn violate(&mut self, invariant: &'static str, what: String) {
        tell!(self, "VIOLATION of {invariant}: {what}");
        if self.violation.is_none() {
            self.violation = Some(Violation { invariant, what });
        }
    }

    /// What the deciding clock of a client shows.
    pub(crate) fn client_now(&self, c: usize) -> Instant {
        let client = &self.clients[c];
        let mut shown = client.clock.at(self.now);
        if self.is(Mutant::ClockStopsInPause) {
            let current = client.paused_since.map_or(0, |since| self.now - since);
            shown -= client.paused_for + current;
        }
        Instant::from_nanos(shown)
    }

    fn handle(&mut self, event: Event) {
        let c = match &event {
            Event::Answer { c, .. }
            | Event::Deadline { c, .. }
            | Event::Wake { c, .. }
            | Event::ResendRelease { c, .. } => *c,
            Event::Broken { c, .. }
            | Event::Connect { c, .. }
            | Event::SetupDeadline { c, .. }
            | Event::Flushed { c, .. }
            | Event::Message { c, .. } => *c,
            _ => return self.handle_outside(event),
        };
        if self.clients[c].paused_since.is_some() {
            self.clients[c].inbox.push(event);
        } else {
            self.handle_in_client(event);
        }
    }

    pub(crate) fn handle_in_client(&mut self, event: Event) {
        match event {
            Event::Answer { c, i, epoch, sender, named, answer, server_us }
                if self.link(c, i).epoch == epoch && self.link(c, i).up || self.counts_late_copy(&answer) =>
            {
                self.link_mut(c, i).silent = 0;
                self.mix(self.now ^ (c as u64) << 56 ^ (i as u64) << 48);
                self.on_answer(c, InstanceId::new(i), sender, named.as_ref(), &answer, server_us);
            }
            Event::SetupDeadline { c, i, epoch } => self.on_setup_deadline(c, i, epoch),
            Event::Flushed { c, i, epoch } if self.link(c, i).epoch == epoch && self.link(c, i).up => {
                self.on_flushed(c, i);
            }
            Event::Message { c, i, epoch, message } if self.link(c, i).epoch == epoch && self.link(c, i).up => {
                self.on_message(c, i, message);
            }
            Event::Deadline { c, in_flight } => self.on_deadline(c, in_flight),
            Event::Wake { c, generation } if self.clients[c].generation == generation => self.on_wake(c),
            Event::ResendRelease { c, release } => self.resend_release(c, release),
            Event::Broken { c, i, epoch } if self.link(c, i).epoch == epoch => self.break_link(c, i),
            Event::Connect { c, i } => self.connect(c, i),
            _ => {}
        }
    }

    fn handle_outside(&mut self, event: Event) {
        match event {
            Event::Request { c, i, epoch, incarnation, call } if self.carries_out((c, i), epoch, incarnation) => {
                self.serve(c, i, epoch, &call);
            }
            Event::Command { c, i, epoch, incarnation, call, write, place }
                if self.carries_out((c, i), epoch, incarnation) =>
            {
                self.serve_command((c, i, epoch), &call, &write, place);
            }
            Event::EndFormer { c, i, incarnation, former } if self.carries_out((c, i), u32::MAX, incarnation) => {
                self.end_former(c, i, former);
            }
            Event::Publish { i, incarnation, to, message }
                if self.servers[i].up && self.servers[i].incarnation == incarnation =>
            {
                self.on_published(i, to, message);
            }
            Event::Resume { c } => self.resume(c),
            Event::Reborn { c } => self.reborn(c),
            Event::Restart { i, up_ms } => self.restart(i, up_ms),
            Event::Fault { index } => self.strike(index, None, None),
            Event::RollingRestart { i } => self.rolling_restart(i),
            Event::Calm => self.begin_calm(),
            Event::Heartbeat => self.heartbeat(),
            Event::Probe => self.probe(),
            _ => {}
        }
    }
}

/// A clock with a rate at one of the extremes, or anywhere between them. `worst` is the extreme
/// that is dangerous: fast for instances, slow for clients.
pub(crate) fn draw_clock(rng: &mut Rng, far_ms: u64, worst: Option<bool>) -> Clock {
    let most = most_rate(DRIFT_PPM);
    let rate_ppm = match (worst, rng.below(4)) {
        (Some(fast), 0..3) => {
            if fast {
                most
            } else {
                -most
            }
        }
        (_, 0) => most,
        (_, 1) => -most,
        _ => rng.below(most.cast_unsigned() * 2 + 1).cast_signed() - most,
    };
    let offset = rng.below(2 * far_ms * MS + 1).cast_signed() - (far_ms * MS).cast_signed();
    Clock { offset_ns: offset, rate_ppm }
}

/// A request of no round.
fn blank() -> Request {
    Request {
        script: Script::Facts,
        keys: 0,
        value: Rc::new(Value::new("", Uuid::nil(), "")),
        token: FencingToken::propose(0, None),
        ttl_ms: 0,
        resent: false,
        note: None,
        successors: None,
        is_first: false,
        companion: None,
    }
}
