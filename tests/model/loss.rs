//! When the answers to a holder say that its lease is lost (P20), where keys are deleted by hand, which no rule prevents (A8).
//!
//! The holder sends rounds, of which any part is carried out and answered. Between rounds it may also read its key on an instance. The
//! other client takes the key wherever it is free, and removes it again. Time does not pass: what is not deleted stays.

use redquorum::testing::protocol::Quorum;
use stateright::{Model, Property, Representative};

/// What the holder makes of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// An instance is missing from the answer that says so to the one that shows or sets the key; those on which one round sets it were
    /// missing together.
    InForce,
    /// An instance on which the key is set has it, and was never without it.
    RepairsAreNothing,
    /// An instance on which the key is set has it at once, while others of the round are not answered.
    RepairsAreApart,
    /// An instance may have been without the key since it last had it, or since a round in which a quorum had it.
    ReachesBack,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Key {
    None,
    Holders,
    Others,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Instance {
    key: Key,
    /// It has the holder's request.
    is_asked: bool,
    /// By the answers it is without the key.
    is_missing: bool,
    /// The round that is under way has set its key, or one before that counts still.
    is_repaired: bool,
    /// It has said to the round that it had the key.
    has_shown: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State<const N: usize> {
    instances: [Instance; N],
    rounds: u8,
    deletions: u8,
    is_lost: bool,
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

pub(crate) struct Loss<const N: usize> {
    pub(crate) rule: Rule,
    pub(crate) rounds: u8,
    pub(crate) deletions: u8,
}

impl<const N: usize> Representative for State<N> {
    fn representative(&self) -> Self {
        let mut state = self.clone();
        state.instances.sort_unstable();
        state
    }
}

impl<const N: usize> State<N> {
    fn count(&self, is_so: impl Fn(&Instance) -> bool) -> usize {
        self.instances.iter().filter(|instance| is_so(instance)).count()
    }

    fn is_under_way(&self) -> bool {
        self.count(|instance| instance.is_asked) > 0
    }
}

impl<const N: usize> Loss<N> {
    fn quorum() -> usize {
        Quorum::majority(N).map_or(N, Quorum::votes)
    }

    fn begin(state: &mut State<N>) {
        for instance in &mut state.instances {
            (instance.is_asked, instance.has_shown) = (true, false);
        }
        state.rounds -= 1;
        (state.is_behind, state.has_other_won) = (state.has_other_won, false);
    }

    fn end(&self, state: &mut State<N>) {
        let had_all = state.count(|instance| instance.has_shown) >= Self::quorum();
        let counts_on = self.rule == Rule::ReachesBack && !had_all;
        for instance in &mut state.instances {
            instance.is_asked = false;
            instance.is_repaired &= counts_on;
        }
        state.is_behind = false;
    }

    fn serve(&self, state: &mut State<N>, i: usize) {
        let instance = &mut state.instances[i];
        instance.is_asked = false;
        match instance.key {
            Key::Holders => (instance.is_missing, instance.has_shown) = (false, true),
            Key::Others => instance.is_missing = true,
            Key::None => {
                (instance.key, instance.is_missing) = (Key::Holders, false);
                instance.is_repaired = self.rule != Rule::RepairsAreNothing;
            }
        }
        self.conclude(state);
        if self.rule == Rule::RepairsAreApart {
            state.instances[i].is_repaired = false;
        }
        if !state.is_under_way() {
            state.is_unnoticed |= state.is_behind && !state.is_lost;
            self.end(state);
        }
    }

    fn conclude(&self, state: &mut State<N>) {
        let without = state.count(|instance| instance.is_missing || instance.is_repaired);
        state.is_lost |= N - without < Self::quorum();
    }
}

impl<const N: usize> Model for Loss<N> {
    type State = State<N>;
    type Action = Action;

    fn init_states(&self) -> Vec<State<N>> {
        let instance =
            Instance { key: Key::Holders, is_asked: false, is_missing: false, is_repaired: false, has_shown: true };
        vec![State {
            instances: [instance; N],
            rounds: self.rounds,
            deletions: self.deletions,
            is_lost: false,
            was_whole: true,
            has_other_won: false,
            is_behind: false,
            is_unnoticed: false,
        }]
    }

    fn actions(&self, state: &State<N>, actions: &mut Vec<Action>) {
        if state.is_lost {
            return;
        }
        match state.is_under_way() {
            true => actions.push(Action::GiveUp),
            false if state.rounds > 0 => actions.push(Action::Begin),
            false => {}
        }
        for (i, instance) in state.instances.iter().enumerate() {
            if instance.is_asked {
                actions.push(Action::Serve(i));
            }
            if !state.is_under_way() {
                actions.push(Action::Check(i));
            }
            match instance.key {
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
            Action::Begin => Self::begin(&mut state),
            Action::GiveUp => self.end(&mut state),
            Action::Serve(i) => self.serve(&mut state, i),
            Action::Check(i) => {
                let instance = &mut state.instances[i];
                instance.is_missing = instance.key != Key::Holders;
                self.conclude(&mut state);
            }
            Action::Delete(i) => {
                state.deletions -= 1;
                state.instances[i].key = Key::None;
            }
            Action::Take(i) => {
                state.instances[i].key = Key::Others;
                let wins = state.count(|instance| instance.key == Key::Others) >= Self::quorum();
                state.has_other_won |= wins && !state.is_under_way();
            }
            Action::Remove(i) => state.instances[i].key = Key::None,
        }
        state.was_whole &= state.count(|instance| instance.key == Key::Holders) >= Self::quorum();
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(
                "a round that all have answered shows that another had the lock",
                |_, state: &State<N>| !state.is_unnoticed,
            ),
            Property::always("a lease that a quorum keeps is not lost", |_, state: &State<N>| {
                !(state.is_lost && state.was_whole)
            }),
            Property::sometimes("a lease is lost", |_, state: &State<N>| state.is_lost),
        ]
    }
}
