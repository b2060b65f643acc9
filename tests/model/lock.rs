//! The states of the small world and the steps between them.
//!
//! Instances are written anew; what a client makes of their answers is [shipped](crate::shipped). A quarantined instance grants nothing
//! new, and extends what it has (P10).

use std::ops::Range;

use stateright::{Model, Property, Representative};

use crate::shipped::{self, Answers};

const TTL: u8 = 2;
/// The quarantine.
const MAX_TTL: u8 = 2;
const END: u8 = 2;

/// The client that extends, and releases.
const EXTENDS: usize = 0;

/// Which rule is switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    Nothing,
    NoAdmission,
    NoStaleCheck,
    /// In quarantine an extend sets a key that is missing.
    RepairInQuarantine,
    /// A flush in quarantine begins no new one.
    FlushForgotten,
}

/// Which instances a client uses: from the first up to the end, without that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct List(pub(crate) usize, pub(crate) usize);

impl List {
    const fn instances(self) -> Range<usize> {
        self.0..self.1
    }

    /// For each of them, what is given; else what is elsewhere.
    fn each<T: Copy, const N: usize>(self, on: T, elsewhere: T) -> [T; N] {
        std::array::from_fn(|i| if self.instances().contains(&i) { on } else { elsewhere })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Instance {
    /// The client whose value is stored and the tick at which it is gone.
    key: Option<(u8, u8)>,
    fence: u8,
    /// Whether another process runs than in the beginning.
    restarted: bool,
    vote_from: u8,
}

/// The answer of an instance to the present round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Answer {
    None,
    Granted,
    No,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Idle,
    Acquiring,
    Holding,
    Extending,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client<const N: usize> {
    list: List,
    phase: Phase,
    started_at: u8,
    token: u8,
    /// Zero if it holds nothing.
    valid_until: u8,
    answers: [Answer; N],
    /// The last vote of each instance that counted.
    votes: [Option<shipped::Vote>; N],
    extended: bool,
    /// Which instances have carried out its release.
    released: [bool; N],
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State<const N: usize> {
    now: u8,
    instances: [Instance; N],
    clients: [Client<N>; 2],
    restarts: u8,
    flushes: u8,
    /// The token of the last won round, and whether a later one was not larger.
    last_token: u8,
    unordered: bool,
    /// A lease was given, or extended, that was over.
    is_late: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Tick,
    Acquire(usize),
    Extend(usize),
    /// Client, instance: the request is carried out and the reply arrives, however late.
    Serve(usize, usize),
    Release(usize),
    ServeRelease(usize, usize),
    RestartEmpty(usize),
    RestartFromDisk(usize),
    Flush(usize),
    /// Its own data stays, and nobody is told that.
    FlushAnotherDatabase(usize),
}

pub(crate) struct Lock<const N: usize> {
    pub(crate) broken: Broken,
    /// One for each client.
    pub(crate) lists: [List; 2],
    pub(crate) accidents: Accidents,
}

/// How many of each kind may happen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accidents {
    pub(crate) restarts: u8,
    pub(crate) flushes: u8,
}

impl<const N: usize> Client<N> {
    fn holds(&self, now: u8) -> bool {
        now < self.valid_until
    }
}

impl Instance {
    fn key(&self, now: u8) -> Option<u8> {
        self.key.filter(|(_, until)| now < *until).map(|(client, _)| client)
    }
}

impl<const N: usize> Representative for State<N> {
    /// Instances of the same lists are alike: states that differ only in their order are one.
    fn representative(&self) -> Self {
        let mut state = self.clone();
        let mut order: [usize; N] = std::array::from_fn(|i| i);
        // The lists are ranges: it grows with the instance, and is the same where the lists are.
        let bounds = |i| {
            self.clients.iter().flat_map(|client| [client.list.0, client.list.1]).filter(|bound| *bound <= i).count()
        };
        order.sort_by_key(|i| {
            let client = |c: usize| {
                let client = &self.clients[c];
                (client.answers[*i], client.votes[*i], client.released[*i])
            };
            (bounds(*i), self.instances[*i], client(0), client(1))
        });
        for (to, from) in order.into_iter().enumerate() {
            state.instances[to] = self.instances[from];
            for c in 0..2 {
                state.clients[c].answers[to] = self.clients[c].answers[from];
                state.clients[c].votes[to] = self.clients[c].votes[from];
                state.clients[c].released[to] = self.clients[c].released[from];
            }
        }
        state
    }
}

impl<const N: usize> Model for Lock<N> {
    type State = State<N>;
    type Action = Action;

    fn init_states(&self) -> Vec<State<N>> {
        let instance = Instance { key: None, fence: 0, restarted: false, vote_from: 0 };
        let client = |list| Client {
            list,
            phase: Phase::Idle,
            started_at: 0,
            token: 0,
            valid_until: 0,
            answers: [Answer::No; N],
            votes: [None; N],
            extended: false,
            released: [true; N],
        };
        // The processes were started long ago: tick 0 is `MAX_TTL` after it.
        let (instances, clients) = ([instance; N], self.lists.map(client));
        let Accidents { restarts, flushes } = self.accidents;
        vec![State {
            now: MAX_TTL,
            instances,
            clients,
            restarts,
            flushes,
            last_token: 0,
            unordered: false,
            is_late: false,
        }]
    }

    fn actions(&self, state: &State<N>, actions: &mut Vec<Action>) {
        if state.now < MAX_TTL + END {
            actions.push(Action::Tick);
        }
        for (c, client) in state.clients.iter().enumerate() {
            match client.phase {
                Phase::Idle => actions.push(Action::Acquire(c)),
                Phase::Holding if c == EXTENDS && !client.extended && client.holds(state.now) => {
                    actions.push(Action::Extend(c));
                }
                _ => {}
            }
            if c == EXTENDS && client.phase == Phase::Holding {
                actions.push(Action::Release(c));
            }
            for i in 0..N {
                if client.answers[i] == Answer::None {
                    actions.push(Action::Serve(c, i));
                }
                if !client.released[i] {
                    actions.push(Action::ServeRelease(c, i));
                }
            }
        }
        for i in 0..N {
            if state.restarts > 0 {
                actions.push(Action::RestartEmpty(i));
                actions.push(Action::RestartFromDisk(i));
            }
            if state.flushes > 0 {
                actions.push(Action::Flush(i));
                actions.push(Action::FlushAnotherDatabase(i));
            }
        }
    }

    fn next_state(&self, last: &State<N>, action: Action) -> Option<State<N>> {
        let mut state = last.clone();
        let now = state.now;
        match action {
            Action::Tick => state.now += 1,
            Action::Acquire(c) => begin(&mut state.clients[c], Phase::Acquiring, now),
            Action::Extend(c) => {
                state.clients[c].extended = true;
                begin(&mut state.clients[c], Phase::Extending, now);
            }
            Action::Serve(c, i) => self.serve(&mut state, c, i),
            Action::Release(c) => {
                let client = &mut state.clients[c];
                (client.phase, client.valid_until) = (Phase::Done, 0);
                (client.answers, client.votes) = ([Answer::No; N], [None; N]);
                client.released = client.list.each(false, true);
            }
            Action::ServeRelease(c, i) => {
                state.clients[c].released[i] = true;
                let instance = &mut state.instances[i];
                if instance.key(now) == Some(c as u8) {
                    instance.key = None;
                }
                instance.fence = instance.fence.max(state.clients[c].token);
            }
            Action::RestartEmpty(i) | Action::RestartFromDisk(i) => {
                state.restarts -= 1;
                let instance = &mut state.instances[i];
                if matches!(action, Action::RestartEmpty(_)) {
                    (instance.key, instance.fence) = (None, 0);
                }
                (instance.restarted, instance.vote_from) = (true, now + MAX_TTL);
            }
            Action::Flush(i) => {
                state.flushes -= 1;
                let instance = &mut state.instances[i];
                (instance.key, instance.fence) = (None, 0);
                let waits_already = now < instance.vote_from;
                if !(waits_already && self.broken == Broken::FlushForgotten) {
                    instance.vote_from = now + MAX_TTL;
                }
            }
            Action::FlushAnotherDatabase(i) => {
                state.flushes -= 1;
                state.instances[i].vote_from = now + MAX_TTL;
            }
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("mutual exclusion", |_, state: &State<N>| {
                !state.clients.iter().all(|client| client.holds(state.now))
            }),
            Property::always("fencing order", |_, state: &State<N>| !state.unordered),
            Property::always("no lease is given or extended that is over", |_, state: &State<N>| !state.is_late),
            Property::sometimes("both clients win, one after the other", |_, state: &State<N>| {
                state.clients[0].phase == Phase::Done && state.clients[1].phase == Phase::Holding
            }),
        ]
    }
}

fn begin<const N: usize>(client: &mut Client<N>, phase: Phase, now: u8) {
    (client.phase, client.started_at) = (phase, now);
    client.answers = client.list.each(Answer::None, Answer::No);
    if phase == Phase::Acquiring {
        client.token = now; // P12: the wall clock, the same for both
    }
}

impl<const N: usize> Lock<N> {
    fn serve(&self, state: &mut State<N>, c: usize, i: usize) {
        let now = state.now;
        let (instance, client) = (&mut state.instances[i], &mut state.clients[c]);
        let own = instance.key(now) == Some(c as u8);
        let extends = client.extended;
        let admitted = now >= instance.vote_from || self.broken == Broken::NoAdmission;
        let may_extend = extends && (own || self.broken == Broken::RepairInQuarantine);
        let foreign = instance.key(now).is_some() && !own;
        let stale = !extends && instance.fence >= client.token && self.broken != Broken::NoStaleCheck;
        client.answers[i] = Answer::No;
        if foreign || stale || !(admitted || may_extend) {
            return;
        }
        instance.key = Some((c as u8, now + TTL));
        instance.fence = instance.fence.max(client.token);
        let vote = shipped::Vote { is_of_second: instance.restarted, sent: client.started_at, given: now };
        if admitted || self.broken == Broken::RepairInQuarantine || vote.is_kept(client.votes[i], TTL) {
            (client.answers[i], client.votes[i]) = (Answer::Granted, (c == EXTENDS).then_some(vote));
            count(state, c);
        }
    }
}

fn count<const N: usize>(state: &mut State<N>, c: usize) {
    let now = state.now;
    let client = &mut state.clients[c];
    let granted = client.list.instances().map(|i| match client.answers[i] {
        Answer::None => None,
        answer => Some(answer == Answer::Granted),
    });
    let instances = client.list.instances().len();
    let answers = Answers { instances, ttl: TTL, began: client.started_at, granted };
    let (won, valid_until) = match client.phase {
        Phase::Acquiring => answers.won(now).map_or((false, 0), |until| (true, until)),
        Phase::Extending => answers.extended(client.valid_until, now),
        Phase::Idle | Phase::Holding | Phase::Done => return,
    };
    if won {
        if client.phase == Phase::Acquiring {
            state.unordered |= client.token <= state.last_token;
            state.last_token = client.token;
        }
        state.is_late |= valid_until <= now || (client.phase == Phase::Extending && !client.holds(now));
        client.phase = Phase::Holding;
    }
    client.valid_until = valid_until;
}
