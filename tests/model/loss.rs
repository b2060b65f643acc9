//! When the answers to a holder say that its lease is lost (P20), where keys are deleted by hand, which no rule prevents (A8).
//!
//! The holder sends rounds, of which any part is carried out, and answered at once. Between rounds it may also read its key on an instance. The
//! other client takes the key wherever it is free, and removes it again. What is not deleted stays, and nothing is deleted while a round is under way.
//!
//! What the holder makes of answers is decided by the shipped [`Lease`]. No answer is late, and none is lost of what was carried out.

use std::hash::{Hash, Hasher};

use redquorum::testing::protocol::{InstanceId, Instant, Lease, Refusal, Reply, Round};
use stateright::{Model, Property};

use crate::shipped::{at, majority, terms};

/// No lease ends by time.
const TTL: u8 = 200;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    None,
    Holders,
    Others,
}

/// Leases are told apart by all that they contain.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Held(Lease);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State<const N: usize> {
    keys: [Key; N],
    /// Which instances have the holder's request.
    asked: [bool; N],
    held: Held,
    /// How many of each are left.
    rounds: u8,
    deletions: u8,
    checks: u8,
    /// A quorum has had the key at each moment.
    was_whole: bool,
    /// The other client has had a quorum, when no round was under way.
    has_other_won: bool,
    /// The round that is under way is the first one that began behind that.
    is_behind: bool,
    /// All have answered such a round, and the lease goes on.
    is_unnoticed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Begin,
    Serve(usize),
    /// What is not answered yet never is.
    GiveUp,
    Check(usize),
    Delete(usize),
    Take(usize),
    Remove(usize),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Loss<const N: usize> {
    pub(crate) rounds: u8,
    pub(crate) deletions: u8,
    pub(crate) checks: u8,
}

impl Hash for Held {
    fn hash<H: Hasher>(&self, state: &mut H) {
        format!("{self:?}").hash(state);
    }
}

impl<const N: usize> State<N> {
    fn has_quorum(&self, of: Key) -> bool {
        self.keys.iter().filter(|key| **key == of).count() >= majority(N).votes()
    }

    fn is_under_way(&self) -> bool {
        self.asked.contains(&true)
    }

    fn is_lost(&self) -> bool {
        self.held.0.no_quorum_has_key()
    }
}

impl<const N: usize> Loss<N> {
    /// Two ticks for each round that has begun: it is sent at the first, and answered at the second, at which keys are read, too.
    fn sent(&self, state: &State<N>) -> u8 {
        2 * (1 + self.rounds - state.rounds)
    }

    fn begin(&self, state: &mut State<N>) {
        state.rounds -= 1;
        state.asked = [true; N];
        (state.is_behind, state.has_other_won) = (state.has_other_won, false);
    }

    fn answered(&self, state: &State<N>) -> Instant {
        at(self.sent(state) + 1)
    }

    fn serve(&self, state: &mut State<N>, i: usize) {
        state.asked[i] = false;
        let reply = match state.keys[i] {
            Key::Holders => Reply::Granted,
            Key::Others => Reply::Refused(Refusal::default()),
            Key::None => Reply::Repaired,
        };
        if state.keys[i] == Key::None {
            state.keys[i] = Key::Holders;
        }
        let (sent, answered) = (at(self.sent(state)), self.answered(state));
        state.held.0.note_reply(InstanceId::new(i), &reply, sent, answered);
        if !state.is_under_way() {
            state.is_unnoticed |= state.is_behind && !state.is_lost();
            end(state);
        }
    }

    fn check(&self, state: &mut State<N>, i: usize) {
        state.checks -= 1;
        let now = self.answered(state);
        match state.keys[i] {
            Key::Holders => state.held.0.note_present(InstanceId::new(i), now, now),
            Key::None | Key::Others => state.held.0.note_missing(InstanceId::new(i), now),
        }
    }
}

fn end<const N: usize>(state: &mut State<N>) {
    (state.asked, state.is_behind) = ([false; N], false);
}

impl<const N: usize> Model for Loss<N> {
    type State = State<N>;
    type Action = Action;

    fn init_states(&self) -> Vec<State<N>> {
        let mut round = Round::acquire(majority(N), terms(TTL), at(1));
        InstanceId::all(N).for_each(|id| round.record(id, Reply::Granted, at(1)));
        let lease = Lease::from_won(&mut round, terms(TTL), at(1)).unwrap_or_else(|| panic!("all have granted it"));
        vec![State {
            keys: [Key::Holders; N],
            asked: [false; N],
            held: Held(lease),
            rounds: self.rounds,
            deletions: self.deletions,
            checks: self.checks,
            was_whole: true,
            has_other_won: false,
            is_behind: false,
            is_unnoticed: false,
        }]
    }

    fn actions(&self, state: &State<N>, actions: &mut Vec<Action>) {
        if state.is_lost() {
            return;
        }
        match state.is_under_way() {
            true => actions.push(Action::GiveUp),
            false if state.rounds > 0 => actions.push(Action::Begin),
            false => {}
        }
        for i in 0..N {
            if state.asked[i] {
                actions.push(Action::Serve(i));
            }
            if state.checks > 0 && !state.is_under_way() {
                actions.push(Action::Check(i));
            }
            match state.keys[i] {
                // What is deleted within a round trip may have been so at its beginning.
                Key::Holders if state.deletions > 0 && !state.is_under_way() => actions.push(Action::Delete(i)),
                Key::Holders => {}
                Key::None => actions.push(Action::Take(i)),
                Key::Others => actions.push(Action::Remove(i)),
            }
        }
    }

    fn next_state(&self, last: &State<N>, action: Action) -> Option<State<N>> {
        let mut state = last.clone();
        match action {
            Action::Begin => self.begin(&mut state),
            Action::GiveUp => end(&mut state),
            Action::Serve(i) => self.serve(&mut state, i),
            Action::Check(i) => self.check(&mut state, i),
            Action::Delete(i) => {
                state.deletions -= 1;
                state.keys[i] = Key::None;
            }
            Action::Take(i) => {
                state.keys[i] = Key::Others;
                state.has_other_won |= state.has_quorum(Key::Others) && !state.is_under_way();
            }
            Action::Remove(i) => state.keys[i] = Key::None,
        }
        state.was_whole &= state.has_quorum(Key::Holders);
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(
                "a round that all have answered shows that another had the lock",
                |_, state: &State<N>| !state.is_unnoticed,
            ),
            Property::always("a lease that a quorum keeps is not lost", |_, state: &State<N>| {
                !(state.is_lost() && state.was_whole)
            }),
            Property::sometimes("a lease is lost", |_, state: &State<N>| state.is_lost()),
        ]
    }
}
