//! A read-write lock on three instances: one writer and two readers.
//!
//! A writer's key and a reader's entry are the same here: what an instance has of a client, until a tick. The instance refuses the one while it has
//! the other. Any client may extend and any may release, one of each in all; requests are carried out late, even behind a release, or never; and
//! accidents happen. Marks of waiting writers are left out: they refuse readers, and grant nothing.

use stateright::{Model, Property, Representative};

use crate::shipped::{Answers, Vote};

const TTL: u8 = 2;
/// The quarantine.
const MAX_TTL: u8 = 2;
const END: u8 = 2;

const INSTANCES: usize = 3;
const CLIENTS: usize = 3;
/// The others are readers.
const WRITER: usize = 0;

/// Which rule is switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    Nothing,
    /// A quarantined instance takes new readers.
    ReaderWithoutAdmission,
    /// A reader is added where a writer has the key.
    ReaderBesideAWriter,
    WriterIgnoresReaders,
    /// In quarantine an extend sets a reader that is missing.
    PutBackInQuarantine,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Request {
    #[default]
    None,
    Sent,
    Granted,
}

/// What an instance has of a client, and a client of an instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Side {
    /// The tick at which the key, or the reader's entry, is gone.
    end: u8,
    request: Request,
    /// The last vote of the instance for the client that counted.
    vote: Option<Vote>,
    is_to_release: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Instance {
    vote_from: u8,
    /// Whether another process runs than in the beginning.
    restarted: bool,
    sides: [Side; CLIENTS],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Phase {
    #[default]
    Idle,
    Acquiring,
    Holding,
    Extending,
    Done,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Client {
    phase: Phase,
    /// Whether its last round is an extend.
    extends: bool,
    started_at: u8,
    /// Zero if it holds nothing.
    valid_until: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct State {
    now: u8,
    instances: [Instance; INSTANCES],
    clients: [Client; CLIENTS],
    /// How many of each are left.
    accidents: u8,
    extends: u8,
    releases: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Tick,
    /// Client 0 is the writer.
    Acquire(usize),
    Extend(usize),
    /// Client, instance: the request is carried out and the reply arrives, however late.
    Serve(usize, usize),
    Release(usize),
    ServeRelease(usize, usize),
    RestartEmpty(usize),
    RestartFromDisk(usize),
    Flush(usize),
    FlushAnotherDatabase(usize),
}

pub(crate) struct Shared {
    pub(crate) broken: Broken,
    pub(crate) readers: usize,
    pub(crate) accidents: u8,
}

impl Instance {
    fn has_writer(&self) -> bool {
        self.sides[WRITER].end > 0
    }

    fn has_readers(&self) -> bool {
        self.sides[WRITER + 1..].iter().any(|side| side.end > 0)
    }

    fn forget(&mut self) {
        self.sides.iter_mut().for_each(|side| side.end = 0);
    }
}

impl Client {
    const fn holds(&self) -> bool {
        self.valid_until > 0
    }
}

impl State {
    fn is_written(&self) -> bool {
        self.clients[WRITER].holds()
    }

    fn readers(&self) -> usize {
        self.clients[WRITER + 1..].iter().filter(|client| client.holds()).count()
    }

    fn clients(&self) -> impl Iterator<Item = (usize, &Client)> {
        self.clients.iter().enumerate()
    }

    fn requests(&mut self, client: usize) -> impl Iterator<Item = &mut Request> {
        self.instances.iter_mut().map(move |instance| &mut instance.sides[client].request)
    }

    /// What is over is as if it had never been: fewer states differ.
    fn forget_what_is_over(&mut self) {
        let (now, may_extend) = (self.now, self.extends > 0);
        for client in &mut self.clients {
            if client.valid_until <= now {
                client.valid_until = 0;
            }
            let is_late = match client.phase {
                Phase::Acquiring => now >= client.started_at + TTL,
                Phase::Holding | Phase::Extending => client.valid_until == 0,
                Phase::Idle | Phase::Done => false,
            };
            if is_late {
                client.phase = Phase::Done;
            }
            if matches!(client.phase, Phase::Idle | Phase::Done) {
                client.started_at = 0;
            }
        }
        for instance in &mut self.instances {
            if instance.vote_from <= now {
                instance.vote_from = 0;
            }
            for (client, side) in self.clients.iter().zip(&mut instance.sides) {
                if side.end <= now {
                    side.end = 0;
                }
                let is_done = client.phase == Phase::Done;
                if is_done && side.request == Request::Granted {
                    side.request = Request::None;
                }
                let keeps_nothing = side.vote.is_some_and(|vote| vote.given + TTL <= now);
                if (is_done && side.request == Request::None) || (!may_extend && !client.extends) || keeps_nothing {
                    side.vote = None;
                }
            }
        }
    }
}

impl Representative for State {
    /// Instances are alike, and so are readers.
    fn representative(&self) -> Self {
        let mut this = self.clone();
        let mut other = self.clone();
        other.clients.swap(1, 2);
        other.instances.iter_mut().for_each(|instance| instance.sides.swap(1, 2));
        this.instances.sort_unstable();
        other.instances.sort_unstable();
        this.min(other)
    }
}

impl Model for Shared {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut clients = [Client::default(); CLIENTS];
        clients[WRITER + 1 + self.readers..].iter_mut().for_each(|client| client.phase = Phase::Done);
        let instances = [Instance::default(); INSTANCES];
        vec![State { now: MAX_TTL, instances, clients, accidents: self.accidents, extends: 1, releases: 1 }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now < MAX_TTL + END {
            actions.push(Action::Tick);
        }
        for (c, client) in state.clients() {
            match client.phase {
                Phase::Idle => actions.push(Action::Acquire(c)),
                Phase::Holding if state.extends > 0 => actions.push(Action::Extend(c)),
                _ => {}
            }
            if state.releases > 0 && client.phase == Phase::Holding {
                actions.push(Action::Release(c));
            }
            for (i, instance) in state.instances.iter().enumerate() {
                if instance.sides[c].request == Request::Sent {
                    actions.push(Action::Serve(c, i));
                }
                if instance.sides[c].is_to_release {
                    actions.push(Action::ServeRelease(c, i));
                }
            }
        }
        for i in (0..INSTANCES).filter(|_| state.accidents > 0) {
            actions.extend([Action::RestartEmpty(i), Action::RestartFromDisk(i)]);
            actions.extend([Action::Flush(i), Action::FlushAnotherDatabase(i)]);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let now = state.now;
        match action {
            Action::Tick => state.now += 1,
            Action::Acquire(c) => begin(&mut state, c, Phase::Acquiring),
            Action::Extend(c) => {
                state.extends -= 1;
                state.clients[c].extends = true;
                begin(&mut state, c, Phase::Extending);
            }
            Action::Serve(c, i) => {
                let is_granted = self.serve(&mut state, c, i);
                state.instances[i].sides[c].request = if is_granted { Request::Granted } else { Request::None };
                count(&mut state, c);
            }
            Action::Release(c) => {
                state.releases -= 1;
                (state.clients[c].phase, state.clients[c].valid_until) = (Phase::Done, 0);
                state.instances.iter_mut().for_each(|instance| instance.sides[c].is_to_release = true);
            }
            Action::ServeRelease(c, i) => {
                let side = &mut state.instances[i].sides[c];
                (side.end, side.is_to_release) = (0, false);
            }
            Action::RestartEmpty(i) | Action::RestartFromDisk(i) => {
                state.accidents -= 1;
                let instance = &mut state.instances[i];
                if matches!(action, Action::RestartEmpty(_)) {
                    instance.forget();
                }
                (instance.restarted, instance.vote_from) = (true, now + MAX_TTL);
            }
            Action::Flush(i) | Action::FlushAnotherDatabase(i) => {
                state.accidents -= 1;
                let instance = &mut state.instances[i];
                if matches!(action, Action::Flush(_)) {
                    instance.forget();
                }
                instance.vote_from = now + MAX_TTL;
            }
        }
        state.forget_what_is_over();
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no reader beside a writer", |_, state: &State| {
                !state.is_written() || state.readers() == 0
            }),
            Property::sometimes("all readers together", |model: &Self, state: &State| state.readers() == model.readers),
            Property::sometimes("a writer behind a reader that has released", |_, state: &State| {
                state.is_written() && state.releases == 0
            }),
        ]
    }
}

fn begin(state: &mut State, c: usize, phase: Phase) {
    (state.clients[c].phase, state.clients[c].started_at) = (phase, state.now);
    state.requests(c).for_each(|request| *request = Request::Sent);
}

fn count(state: &mut State, c: usize) {
    let now = state.now;
    let granted = state.instances.iter().map(|instance| match instance.sides[c].request {
        Request::Sent => None,
        request => Some(request == Request::Granted),
    });
    let client = &mut state.clients[c];
    let answers = Answers { instances: INSTANCES, ttl: TTL, began: client.started_at, granted };
    let (won, valid_until) = match client.phase {
        Phase::Acquiring => answers.won(now).map_or((false, 0), |until| (true, until)),
        Phase::Extending => answers.extended(client.valid_until, now),
        Phase::Idle | Phase::Holding | Phase::Done => return,
    };
    client.valid_until = valid_until;
    if won {
        client.phase = Phase::Holding;
    }
}

impl Shared {
    /// Whether the instance votes for the client.
    fn serve(&self, state: &mut State, c: usize, i: usize) -> bool {
        let (now, extends) = (state.now, state.clients[c].extends);
        let instance = &mut state.instances[i];
        let is_reader = c != WRITER;
        let is_in_the_way = if is_reader {
            instance.has_writer() && self.broken != Broken::ReaderBesideAWriter
        } else {
            instance.has_readers() && self.broken != Broken::WriterIgnoresReaders
        };
        let is_admitted =
            instance.vote_from == 0 || (is_reader && !extends && self.broken == Broken::ReaderWithoutAdmission);
        let vote = Vote { is_of_second: instance.restarted, sent: state.clients[c].started_at, given: now };
        let side = &mut instance.sides[c];
        // P10: a quarantined instance extends what it has.
        let is_extended = extends && side.end > 0;
        let is_put_back = extends && is_reader && self.broken == Broken::PutBackInQuarantine;
        if is_in_the_way || !(is_admitted || is_extended || is_put_back) {
            return false;
        }
        side.end = now + TTL;
        let counts = is_admitted || is_put_back || vote.is_kept(side.vote, TTL);
        if counts {
            side.vote = Some(vote);
        }
        counts
    }
}
