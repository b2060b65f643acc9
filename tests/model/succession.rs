//! The small world in which a release names who gets the lock next (P26).
//!
//! Client 0 has the lock and releases it; client 1 is named; client 2 only asks, and is who comes after client 1.

use redquorum::protocol::{Quorum, Verdict};
use stateright::{Model, Property, Representative};

const TTL: u8 = 2;
/// For how long a key is kept.
const GRACE: u8 = 1;
/// The quarantine.
const MAX_TTL: u8 = 2;
const END: u8 = 2;
const HOLDER: usize = 0;
const NAMED: usize = 1;
const OTHER: usize = 2;

/// Which rule is switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Planted {
    Nothing,
    ReservationForAll,
    NamedUncompared,
    DeclinedUncompared,
    KeptUncompared,
    WakeIsGrant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Stored {
    /// The value of a client's round.
    Value(usize),
    /// Kept for a client.
    Kept(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Instance {
    /// And the tick at which it is gone.
    key: Option<(Stored, u8)>,
    fence: u8,
    vote_from: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Vote {
    Asked,
    Counted,
    No,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Idle,
    Asking,
    Holding,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Client {
    phase: Phase,
    started_at: u8,
    token: u8,
    /// Zero if it holds nothing.
    valid_until: u8,
    votes: [Vote; 3],
    /// Which instances have carried out its release.
    released: [bool; 3],
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    now: u8,
    instances: [Instance; 3],
    clients: [Client; 3],
    /// How many instances may still forget everything.
    forgets: u8,
    /// How often a free key may still be kept.
    keeps: u8,
    /// The largest token that was proposed: whoever asks later proposes a larger one.
    proposed: u8,
    /// The token of the last won round, and whether a later one was not larger.
    last_token: u8,
    unordered: bool,
    /// Whether a key that was kept went to somebody else.
    taken_away: bool,
    /// Whether a key that was kept went to its client.
    served: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Tick,
    Ask(usize),
    /// Client, instance: the request is carried out and the reply arrives, however late.
    Serve(usize, usize),
    /// Client 0 names client 1, and that names client 2.
    Release(usize),
    ServeRelease(usize, usize),
    /// Client 1 gives up what an instance keeps for it, for client 2.
    Decline(usize),
    /// Right behind a release that names nobody, a free key is kept.
    KeepFree(usize),
    /// Restarted empty, or flushed.
    Forget(usize),
}

pub(crate) struct Succession {
    pub(crate) planted: Planted,
    /// Whether the first release names nobody, as that of several keys, and each key is kept right behind it.
    pub(crate) kept_behind: bool,
}

impl Client {
    const fn holds(&self, now: u8) -> bool {
        now < self.valid_until
    }
}

impl Instance {
    fn stored(&self, now: u8) -> Option<Stored> {
        self.key.filter(|(_, until)| now < *until).map(|(stored, _)| stored)
    }
}

impl Representative for State {
    /// The instances are alike: states that differ only in their order are one.
    fn representative(&self) -> Self {
        let mut state = self.clone();
        // What has expired is as good as gone.
        for instance in &mut state.instances {
            instance.key = instance.key.filter(|(_, until)| self.now < *until);
        }
        let instances = state.instances;
        let mut order = [0, 1, 2];
        order.sort_by_key(|i| {
            let client = |c: usize| (self.clients[c].votes[*i], self.clients[c].released[*i]);
            (instances[*i], client(0), client(1), client(2))
        });
        for (to, from) in order.into_iter().enumerate() {
            state.instances[to] = instances[from];
            for c in 0..3 {
                state.clients[c].votes[to] = self.clients[c].votes[from];
                state.clients[c].released[to] = self.clients[c].released[from];
            }
        }
        state
    }
}

impl Model for Succession {
    type State = State;
    type Action = Action;

    /// Client 0 holds the lock, on all instances or on a bare quorum.
    fn init_states(&self) -> Vec<State> {
        let idle = Client {
            phase: Phase::Idle,
            started_at: 0,
            token: 0,
            valid_until: 0,
            votes: [Vote::No; 3],
            released: [true; 3],
        };
        let holder = Client { phase: Phase::Holding, token: 1, valid_until: TTL, ..idle };
        let with = Instance { key: Some((Stored::Value(HOLDER), TTL)), fence: 1, vote_from: 0 };
        let without = Instance { key: None, fence: 0, vote_from: 0 };
        let state = |instances| State {
            now: 0,
            instances,
            clients: [holder, idle, idle],
            forgets: 1,
            keeps: u8::from(self.kept_behind),
            proposed: 1,
            last_token: 1,
            unordered: false,
            taken_away: false,
            served: false,
        };
        vec![state([with; 3]), state([with, with, without])]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now < END {
            actions.push(Action::Tick);
        }
        for (c, client) in state.clients.iter().enumerate() {
            match client.phase {
                Phase::Idle => actions.push(Action::Ask(c)),
                Phase::Holding if c != OTHER => actions.push(Action::Release(c)),
                _ => {}
            }
        }
        let was_named = state.clients[HOLDER].phase == Phase::Done;
        for i in 0..3 {
            for (c, client) in state.clients.iter().enumerate() {
                if client.votes[i] == Vote::Asked {
                    actions.push(Action::Serve(c, i));
                }
                if !client.released[i] {
                    actions.push(Action::ServeRelease(c, i));
                }
            }
            if was_named && !self.kept_behind {
                actions.push(Action::Decline(i));
            }
            if was_named && state.keeps > 0 {
                actions.push(Action::KeepFree(i));
            }
            if state.forgets > 0 {
                actions.push(Action::Forget(i));
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let now = state.now;
        match action {
            Action::Tick => state.now += 1,
            Action::Ask(c) => {
                state.proposed += 1;
                let client = &mut state.clients[c];
                (client.phase, client.started_at, client.token) = (Phase::Asking, now, state.proposed);
                client.votes = [Vote::Asked; 3];
            }
            Action::Serve(c, i) => self.serve(&mut state, c, i),
            Action::Release(c) => {
                let client = &mut state.clients[c];
                (client.phase, client.valid_until) = (Phase::Done, 0);
                (client.votes, client.released) = ([Vote::No; 3], [false; 3]);
            }
            Action::ServeRelease(c, i) => self.serve_release(&mut state, c, i),
            Action::Decline(i) => {
                let instance = &mut state.instances[i];
                if instance.stored(now) == Some(Stored::Kept(NAMED)) || self.planted == Planted::DeclinedUncompared {
                    instance.key = Some((Stored::Kept(OTHER), now + GRACE));
                }
            }
            Action::KeepFree(i) => {
                let instance = &mut state.instances[i];
                state.keeps -= 1;
                if instance.stored(now).is_none() || self.planted == Planted::KeptUncompared {
                    instance.key = Some((Stored::Kept(NAMED), now + GRACE));
                }
            }
            Action::Forget(i) => {
                state.forgets -= 1;
                state.instances[i] = Instance { key: None, fence: 0, vote_from: now + MAX_TTL };
            }
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("mutual exclusion", |_, state: &State| {
                state.clients.iter().filter(|client| client.holds(state.now)).count() <= 1
            }),
            Property::always("fencing order", |_, state: &State| !state.unordered),
            Property::always("a key is kept for its client", |_, state: &State| !state.taken_away),
            Property::sometimes("all three win, one after the other", |_, state: &State| {
                let [first, second, third] = &state.clients;
                state.served
                    && (first.phase, second.phase, third.phase) == (Phase::Done, Phase::Done, Phase::Holding)
                    && state.last_token == third.token
            }),
        ]
    }
}

impl Succession {
    fn serve(&self, state: &mut State, c: usize, i: usize) {
        let now = state.now;
        let (instance, client) = (&mut state.instances[i], &mut state.clients[c]);
        let stored = instance.stored(now);
        let is_free = match stored {
            None => true,
            Some(Stored::Value(_)) => false,
            Some(Stored::Kept(for_whom)) => for_whom == c || self.planted == Planted::ReservationForAll,
        };
        let is_kept = matches!(stored, Some(Stored::Kept(_)));
        if now < instance.vote_from || !is_free || instance.fence >= client.token {
            client.votes[i] = Vote::No;
            return;
        }
        state.served |= stored == Some(Stored::Kept(c));
        state.taken_away |= is_kept && stored != Some(Stored::Kept(c));
        instance.key = Some((Stored::Value(c), now + TTL));
        instance.fence = instance.fence.max(client.token);
        count(state, c, i);
    }

    fn serve_release(&self, state: &mut State, c: usize, i: usize) {
        let now = state.now;
        state.clients[c].released[i] = true;
        let instance = &mut state.instances[i];
        instance.fence = instance.fence.max(state.clients[c].token);
        let is_own = instance.stored(now) == Some(Stored::Value(c));
        let next = if c == HOLDER { NAMED } else { OTHER };
        if is_own && c == HOLDER && self.kept_behind {
            instance.key = None;
        } else if is_own || self.planted == Planted::NamedUncompared {
            instance.key = Some((Stored::Kept(next), now + GRACE));
            if self.planted == Planted::WakeIsGrant && state.clients[next].phase == Phase::Asking {
                count(state, next, i);
            }
        }
    }
}

/// The vote of an instance comes.
fn count(state: &mut State, c: usize, i: usize) {
    let now = state.now;
    let client = &mut state.clients[c];
    client.votes[i] = Vote::Counted;
    let counted = client.votes.iter().filter(|vote| **vote == Vote::Counted).count();
    let has_quorum = Quorum::majority(3).is_ok_and(|quorum| quorum.tally(counted, 3 - counted) == Verdict::Won);
    let until = client.started_at + TTL; // P2
    if client.phase == Phase::Asking && has_quorum && now < until {
        state.unordered |= client.token <= state.last_token;
        state.last_token = client.token;
        (client.phase, client.valid_until) = (Phase::Holding, until);
    }
}
