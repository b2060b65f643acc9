//! Of several clients that try a free lock at the same moment exactly one gets it (P31): the rule alone, over messages that
//! take their time. The winner keeps the lock.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use redquorum::testing::protocol::Cause;
use redquorum::testing::protocol::{
    Contest, InstanceId, Instant, LeaseTerms, Quorum, Refusal, Reply, Round, RoundFailure, Value, Verdict,
};
use uuid::Uuid;

use crate::rng::Rng;

const US: u64 = 1_000;
const MS: u64 = 1_000 * US;
/// In an unoptimised build.
const FEW: u64 = 20;
const TIMEOUT: Duration = Duration::from_millis(200);
/// The value of a client that is gone.
const LEFTOVER: u32 = u32::MAX;

/// What is wrong with a minority of the instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Minority {
    Up,
    Dead,
    Hung,
    InQuarantine,
    /// Up, with the key of a client that has crashed and had no quorum.
    HasLeftover,
}

impl Minority {
    const ALL: [Self; 5] = [Self::Up, Self::Dead, Self::Hung, Self::InQuarantine, Self::HasLeftover];
}

#[derive(Clone, Copy, Debug)]
struct Setup {
    clients: usize,
    instances: usize,
    minority: Minority,
    /// How long a message takes, in nanoseconds.
    one_way: (u64, u64),
    /// Whether the timers of all clients tick at the same instants, as in one process.
    in_step: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Begins,
    Set { value: u32, instance: usize },
    Answered { value: u32, instance: usize, granted: bool, by: u32 },
    Released { value: u32, instance: usize },
    LooksUp { value: u32 },
}

#[derive(Debug, PartialEq, Eq)]
enum Ending {
    Trying,
    Won,
    Contended,
    Undecided,
}

struct Client {
    round: Option<(u32, Round)>,
    undecided: Option<Round>,
    let_go: Vec<Value>,
    contest: Contest,
    ending: Ending,
    phase: u64,
}

struct World {
    setup: Setup,
    rng: Rng,
    quorum: Quorum,
    now: u64,
    numbered: u64,
    events: BinaryHeap<Reverse<(u64, u64, usize, Event)>>,
    clients: Vec<Client>,
    /// Whose value has the key; zero is nobody.
    keys: Vec<u32>,
    /// When the last message that was sent from a client to an instance arrives, and back: they stay in order.
    last: Vec<[u64; 2]>,
    values: u32,
    won_at: u64,
}

fn value(number: u32) -> Value {
    Value::new("", Uuid::from_u128(number.into()), "")
}

impl World {
    fn new(setup: Setup, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let client = |phase| Client {
            round: None,
            undecided: None,
            let_go: Vec::new(),
            contest: Contest::default(),
            ending: Ending::Trying,
            phase,
        };
        let clients = (0..setup.clients).map(|_| client(if setup.in_step { 0 } else { rng.below(MS) })).collect();
        let quorum = Quorum::majority(setup.instances).unwrap();
        let minority = setup.instances - quorum.votes();
        let leftover =
            |instance| if setup.minority == Minority::HasLeftover && instance < minority { LEFTOVER } else { 0 };
        let keys = (0..setup.instances).map(leftover).collect();
        let last = vec![[0; 2]; setup.clients * setup.instances];
        let events = BinaryHeap::new();
        Self { setup, rng, quorum, now: 0, numbered: 0, events, clients, keys, last, values: 0, won_at: 0 }
    }

    fn at(&mut self, time: u64, client: usize, event: Event) {
        self.numbered += 1;
        self.events.push(Reverse((time, self.numbered, client, event)));
    }

    fn message(&mut self, client: usize, instance: usize, is_answer: bool, event: Event) {
        let (least, most) = self.setup.one_way;
        let arrives = self.now + self.rng.between(least, most);
        let last = &mut self.last[client * self.setup.instances + instance][usize::from(is_answer)];
        *last = (*last).max(arrives);
        let arrives = *last;
        self.at(arrives, client, event);
    }

    /// The first instances are the minority with a fault.
    fn fault(&self, instance: usize) -> Minority {
        let is_faulty = instance < self.setup.instances - self.quorum.votes();
        if is_faulty { self.setup.minority } else { Minority::Up }
    }

    fn asks(&mut self, client: usize) {
        self.values += 1;
        let number = self.values;
        let terms = LeaseTerms::new(Duration::from_secs(10), 10_000).unwrap();
        let now = Instant::from_nanos(self.now);
        let mut round = Round::acquire(self.quorum, terms, now);
        if let Some(undecided) = &self.clients[client].undecided {
            round = round.repeating(undecided, &self.clients[client].let_go, TIMEOUT / 8);
        }
        for instance in 0..self.setup.instances {
            let id = InstanceId::new(instance);
            match self.fault(instance) {
                Minority::Up | Minority::HasLeftover => {
                    self.message(client, instance, false, Event::Set { value: number, instance })
                }
                Minority::Dead => drop(round.on_reply(id, Reply::NotSent(Cause::Silent), now)),
                Minority::Hung => {}
                Minority::InQuarantine => drop(round.on_reply(id, Reply::NotAdmitted { remaining: None }, now)),
            }
        }
        self.clients[client].round = Some((number, round));
        self.decide(client);
    }

    fn decide(&mut self, c: usize) {
        let now = Instant::from_nanos(self.now);
        let Some((number, round)) = &mut self.clients[c].round else { return };
        let number = *number;
        let hopeless_at = round.hopeless_at(|_| None);
        if hopeless_at.is_some_and(|at| now >= at) {
            round.give_up();
        }
        let verdict = round.verdict(now);
        let is_open = verdict == Verdict::Pending
            || (round.may_show_a_holder() && round.hopeless_at(|_| None).is_none_or(|at| now < at));
        match verdict {
            _ if is_open => {
                if let Some(at) = hopeless_at {
                    self.timer(c, at.as_nanos(), Event::LooksUp { value: number });
                }
            }
            Verdict::Pending | Verdict::Won => {
                assert!(self.clients.iter().all(|client| client.ending != Ending::Won), "two have it");
                (self.clients[c].ending, self.clients[c].round) = (Ending::Won, None);
                self.won_at = self.now;
            }
            Verdict::Lost => self.lost(c),
        }
    }

    fn lost(&mut self, c: usize) {
        let random = u32::try_from(self.rng.next() >> 32).unwrap();
        let Some((number, round)) = self.clients[c].round.take() else { return };
        for instance in 0..self.setup.instances {
            self.message(c, instance, false, Event::Released { value: number, instance });
        }
        let client = &mut self.clients[c];
        client.ending = match RoundFailure::of(&round) {
            RoundFailure::Contended(_) => Ending::Contended,
            RoundFailure::SplitVote(_) => {
                match client.contest.pause(&round, Instant::from_nanos(self.now), TIMEOUT, random) {
                    Some(pause) => {
                        client.let_go.push(value(number));
                        client.undecided = Some(round);
                        let at = self.now + u64::try_from(pause.as_nanos()).unwrap();
                        return self.timer(c, at, Event::Begins);
                    }
                    None => Ending::Undecided,
                }
            }
            other => unreachable!("{other:?}"),
        };
    }

    /// Timers count whole milliseconds.
    fn timer(&mut self, client: usize, at: u64, event: Event) {
        let phase = self.clients[client].phase;
        let tick = (at + phase).div_ceil(MS) * MS - phase;
        let late = self.rng.below(20 * US);
        self.at(tick.max(self.now) + late, client, event);
    }

    fn run(&mut self) {
        let most = self.setup.one_way.1;
        for client in 0..self.setup.clients {
            let at = self.rng.below(most); // at the same moment
            self.at(at, client, Event::Begins);
        }
        while let Some(Reverse((time, _, client, event))) = self.events.pop() {
            self.now = time;
            match event {
                Event::Begins => self.asks(client),
                Event::Set { value, instance } => {
                    let by = self.keys[instance];
                    let granted = by == 0;
                    if granted {
                        self.keys[instance] = value;
                    }
                    self.message(client, instance, true, Event::Answered { value, instance, granted, by });
                }
                Event::Released { value, instance } => {
                    if self.keys[instance] == value {
                        self.keys[instance] = 0;
                    }
                }
                Event::Answered { value: number, instance, granted, by } => {
                    let now = Instant::from_nanos(self.now);
                    let Some((_, round)) = self.clients[client].round.as_mut().filter(|(of, _)| *of == number) else {
                        continue;
                    };
                    let rival = Some(value(by).as_bytes().to_vec());
                    let refused = Reply::Refused(Refusal { value: rival, ..Refusal::default() });
                    round.on_reply(InstanceId::new(instance), if granted { Reply::Granted } else { refused }, now);
                    self.decide(client);
                }
                Event::LooksUp { value } => {
                    if self.clients[client].round.as_ref().is_some_and(|(of, _)| *of == value) {
                        self.decide(client);
                    }
                }
            }
        }
    }
}

/// How many runs had no winner, of all; and when the winner had it at the median and the latest.
fn of_all(setup: Setup, seeds: u64) -> (u64, Duration, Duration) {
    let mut nobody = 0;
    let mut times: Vec<u64> = Vec::new();
    for seed in 0..seeds {
        let mut world = World::new(setup, seed);
        world.run();
        let winners = world.clients.iter().filter(|client| client.ending == Ending::Won).count();
        assert!(winners <= 1 && world.clients.iter().all(|client| client.ending != Ending::Trying), "{setup:?} {seed}");
        nobody += u64::from(winners == 0);
        times.push(world.won_at);
    }
    times.sort_unstable();
    let at = |index: usize| Duration::from_nanos(times[index]);
    (nobody, at(times.len() / 2), at(times.len() - 1))
}

#[test]
fn of_several_that_try_a_free_lock_one_gets_it() {
    // CONTEST_SEEDS=500 also prints how long the winner took.
    let seeds = std::env::var("CONTEST_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(FEW);
    for minority in Minority::ALL {
        for one_way in [(30 * US, 60 * US), (20 * US, 400 * US), (9 * MS, 11 * MS), (MS, 12 * MS)] {
            for instances in [3, 5] {
                for clients in [2, 3, 5, 8, 32] {
                    for in_step in [false, true] {
                        let setup = Setup { clients, instances, minority, one_way, in_step };
                        let (nobody, median, latest) = of_all(setup, seeds);
                        if seeds > FEW {
                            println!("{setup:?}: nobody {nobody} of {seeds}, median {median:?}, latest {latest:?}");
                        }
                        assert_eq!(nobody, 0, "of {seeds}: {setup:?}");
                    }
                }
            }
        }
    }
}
