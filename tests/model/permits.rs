//! A semaphore of two permits that three clients want: as numbered locks, or as entries that each instance counts by itself.
//!
//! A numbered permit is a lock, so an instance refuses a client only where another has the same number; one client may turn to
//! the other number, while its first request is still carried out or not. Where entries are counted, an instance refuses once it has two.

use stateright::{Model, Property, Representative};

use crate::shipped::Answers;

const TTL: u8 = 2;
/// The quarantine.
const MAX_TTL: u8 = 2;
const END: u8 = 2;

const CLIENTS: usize = 3;
const PERMITS: usize = 2;

/// What an instance refuses by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// A key with the same number.
    Numbered,
    /// As many entries as there are permits.
    Counted,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Request {
    #[default]
    None,
    Sent,
    Granted,
}

/// What an instance has of a client, and a client of an instance, for one permit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Side {
    /// The tick at which the key is gone.
    end: u8,
    request: Request,
}

/// By client, then by permit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Instance {
    vote_from: u8,
    sides: [[Side; PERMITS]; CLIENTS],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Phase {
    #[default]
    Idle,
    Asking,
    Holding,
    Done,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Client {
    phase: Phase,
    permit: u8,
    started_at: u8,
    /// Zero if it holds nothing.
    valid_until: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct State<const N: usize> {
    now: u8,
    instances: [Instance; N],
    clients: [Client; CLIENTS],
    /// How many of each are left.
    accidents: u8,
    turns: u8,
    releases: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Tick,
    /// Client, permit.
    Ask(usize, usize),
    /// Client, permit, instance: the request is carried out and the reply arrives, however late.
    Serve(usize, usize, usize),
    Release(usize),
    /// An instance starts again without data, or is flushed.
    Forget(usize),
}

pub(crate) struct Semaphore<const N: usize> {
    pub(crate) rule: Rule,
    /// What may go wrong beside lost and late messages; without that no time passes either.
    pub(crate) accidents: u8,
}

impl<const N: usize> State<N> {
    fn held(&self) -> usize {
        self.clients.iter().filter(|client| client.valid_until > 0).count()
    }

    /// What is over is as if it had never been: fewer states differ.
    fn forget_what_is_over(&mut self) {
        let now = self.now;
        for client in &mut self.clients {
            if client.valid_until <= now {
                client.valid_until = 0;
            }
            let is_late = match client.phase {
                Phase::Asking => now >= client.started_at + TTL,
                Phase::Holding => client.valid_until == 0,
                Phase::Idle | Phase::Done => false,
            };
            if is_late {
                client.phase = Phase::Done;
            }
            if client.phase != Phase::Asking {
                client.started_at = 0;
            }
            if client.phase == Phase::Done {
                client.permit = 0;
            }
        }
        for instance in &mut self.instances {
            if instance.vote_from <= now {
                instance.vote_from = 0;
            }
            for (client, sides) in self.clients.iter().zip(&mut instance.sides) {
                for (permit, side) in sides.iter_mut().enumerate() {
                    if side.end <= now {
                        side.end = 0;
                    }
                    let counts = client.phase == Phase::Asking && usize::from(client.permit) == permit;
                    if side.request == Request::Granted && !counts {
                        side.request = Request::None;
                    }
                }
            }
        }
    }

    /// The same with other numbers for permits, if so, and clients in this order.
    fn renamed(&self, are_swapped: bool, [a, b, c]: [usize; CLIENTS]) -> Self {
        let mut state = self.clone();
        state.clients = [self.clients[a], self.clients[b], self.clients[c]];
        for (new, old) in state.instances.iter_mut().zip(&self.instances) {
            new.sides = [old.sides[a], old.sides[b], old.sides[c]];
        }
        if are_swapped {
            state.instances.iter_mut().flat_map(|instance| &mut instance.sides).for_each(|sides| sides.reverse());
            for client in state.clients.iter_mut().filter(|it| matches!(it.phase, Phase::Asking | Phase::Holding)) {
                client.permit = 1 - client.permit;
            }
        }
        state.instances.sort_unstable();
        state
    }
}

impl<const N: usize> Representative for State<N> {
    /// Instances are alike, and so are clients, and permits.
    fn representative(&self) -> Self {
        const ORDERS: [[usize; CLIENTS]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
        // The first in the order of clients alone: only those orders can give the smallest.
        let least = ORDERS.iter().map(|order| order.map(|c| self.clients[c].phase)).min();
        let orders = ORDERS.iter().filter(|order| Some(order.map(|c| self.clients[c].phase)) == least);
        let renamed = orders.flat_map(|order| [false, true].map(|are_swapped| self.renamed(are_swapped, *order)));
        renamed.min().unwrap_or_else(|| self.clone())
    }
}

impl<const N: usize> Model for Semaphore<N> {
    type State = State<N>;
    type Action = Action;

    fn init_states(&self) -> Vec<State<N>> {
        let (instances, clients) = ([Instance::default(); N], [Client::default(); CLIENTS]);
        vec![State { now: MAX_TTL, instances, clients, accidents: self.accidents, turns: 1, releases: 1 }]
    }

    fn actions(&self, state: &State<N>, actions: &mut Vec<Action>) {
        if state.now < MAX_TTL + END && self.accidents > 0 {
            actions.push(Action::Tick);
        }
        for (c, client) in state.clients.iter().enumerate() {
            match client.phase {
                Phase::Idle if self.rule == Rule::Counted => actions.push(Action::Ask(c, 0)),
                Phase::Idle => actions.extend((0..PERMITS).map(|permit| Action::Ask(c, permit))),
                Phase::Asking if state.turns > 0 && self.rule == Rule::Numbered => {
                    actions.push(Action::Ask(c, 1 - usize::from(client.permit)));
                }
                Phase::Holding if state.releases > 0 => actions.push(Action::Release(c)),
                _ => {}
            }
            for (i, instance) in state.instances.iter().enumerate() {
                let is_sent = |permit: &usize| instance.sides[c][*permit].request == Request::Sent;
                actions.extend((0..PERMITS).filter(is_sent).map(|permit| Action::Serve(c, permit, i)));
            }
        }
        if state.accidents > 0 {
            actions.extend((0..N).map(Action::Forget));
        }
    }

    fn next_state(&self, last: &State<N>, action: Action) -> Option<State<N>> {
        let mut state = last.clone();
        let now = state.now;
        match action {
            Action::Tick => state.now += 1,
            Action::Ask(c, permit) => {
                let client = &mut state.clients[c];
                state.turns -= u8::from(client.phase == Phase::Asking);
                (client.phase, client.permit, client.started_at) = (Phase::Asking, permit as u8, now);
                for instance in &mut state.instances {
                    instance.sides[c].iter_mut().for_each(|side| side.request = Request::None);
                    instance.sides[c][permit].request = Request::Sent;
                }
            }
            Action::Serve(c, permit, i) => {
                let is_granted = self.serve(&state.instances[i], c, permit);
                let side = &mut state.instances[i].sides[c][permit];
                side.request = Request::None;
                if is_granted {
                    (side.request, side.end) = (Request::Granted, now + TTL);
                    count(&mut state, c, permit);
                }
            }
            Action::Release(c) => {
                state.releases -= 1;
                let client = &mut state.clients[c];
                (client.phase, client.valid_until) = (Phase::Done, 0);
                // How releases come late is searched for one lock.
                state.instances.iter_mut().for_each(|it| it.sides[c][usize::from(client.permit)].end = 0);
            }
            Action::Forget(i) => {
                state.accidents -= 1;
                state.instances[i].sides.iter_mut().flatten().for_each(|side| side.end = 0);
                state.instances[i].vote_from = now + MAX_TTL;
            }
        }
        state.forget_what_is_over();
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no more permits than there are", |_, state: &State<N>| state.held() <= PERMITS),
            Property::sometimes("all permits are held", |_, state: &State<N>| state.held() == PERMITS),
        ]
    }
}

fn count<const N: usize>(state: &mut State<N>, c: usize, permit: usize) {
    let granted = state.instances.iter().map(|instance| match instance.sides[c][permit].request {
        Request::Sent => None,
        request => Some(request == Request::Granted),
    });
    let client = &state.clients[c];
    if client.phase != Phase::Asking || usize::from(client.permit) != permit {
        return;
    }
    let won = Answers { instances: N, ttl: TTL, began: client.started_at, granted }.won(state.now);
    if let Some(valid_until) = won {
        (state.clients[c].phase, state.clients[c].valid_until) = (Phase::Holding, valid_until);
    }
}

impl<const N: usize> Semaphore<N> {
    fn serve(&self, instance: &Instance, c: usize, permit: usize) -> bool {
        let others = || instance.sides.iter().enumerate().filter(|(other, _)| *other != c).map(|(_, sides)| sides);
        let is_free = match self.rule {
            Rule::Numbered => others().all(|sides| sides[permit].end == 0),
            Rule::Counted => others().filter(|sides| sides[0].end > 0).count() < PERMITS,
        };
        is_free && instance.vote_from == 0
    }
}
