//! The times of records and clients (P29): two instances that forget, two clients, and an operator who raises the longest ttl and lowers it
//! again. A client that is given other settings is another process, which remembers no record.
//!
//! An instance must not vote before all is over that it has voted for and forgotten. That is what exclusion needs of it, and each instance
//! by itself: so it is looked at for the first one, and the second one only has records. All times are what is left of them, so that
//! there is no end to it.

use stateright::{Model, Property};

const SHORT: u8 = 1;
const LONG: u8 = 2;

/// What the operator, or a client, does otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deviation {
    None,
    /// The longer `max_ttl` is given while a client still has the shorter quarantine.
    TtlFirst,
    /// The same, and clients do not look at what the record allows.
    TtlFirstUnchecked,
    /// The shorter quarantine is given right after the shorter `max_ttl`.
    QuarantineTooSoon,
    /// Where a record is written the instance waits for the own quarantine, though others asked for more; and a client was left behind.
    OwnQuarantineOnly,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    max_ttl: u8,
    quarantine: u8,
    /// What the last record allows that it has read of each instance; zero if it has read none.
    read: [u8; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Instance {
    /// The longest ttl that its record allows; zero if it has none.
    longest_ttl: u8,
    is_of_this_process: bool,
    /// In how long it may vote.
    waits: u8,
    /// In how long the last vote is over that it has given in this life, and that it has forgotten.
    voted: u8,
    forgotten: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Stage {
    Quarantine,
    Set,
    Ttl,
    TtlDown,
    /// In so long all votes of before are over.
    SetDown(u8),
    QuarantineDown,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    stage: Stage,
    clients: [Client; 2],
    instances: [Instance; 2],
    voted_too_soon: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Tick,
    /// Client, instance.
    Read(usize, usize),
    Write(usize, usize),
    /// At the first instance.
    Vote(usize),
    ForgetAll(usize),
    /// Another process begins with the former record.
    RestartFromDisk(usize),
    /// A client gets the settings of the stage; an instance's record its time.
    RollOut(usize),
    Set(usize),
    NextStage,
}

/// Times are raised, or else lowered.
pub(crate) struct Times(pub(crate) Deviation, pub(crate) Begins);

/// With what all begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begins {
    Short,
    Long,
}

impl Client {
    const fn new(max_ttl: u8, quarantine: u8) -> Self {
        Self { max_ttl, quarantine, read: [0; 2] }
    }

    fn longest_read(&self) -> Option<u8> {
        self.read.into_iter().max().filter(|longest| *longest > 0)
    }
}

impl Times {
    /// What a client has once it has been rolled out in this stage.
    fn settings(&self, stage: Stage) -> Option<(u8, u8)> {
        let is_hasty = matches!(self.0, Deviation::TtlFirst | Deviation::TtlFirstUnchecked);
        match stage {
            Stage::Quarantine if is_hasty => Some((LONG, LONG)),
            Stage::Quarantine => Some((SHORT, LONG)),
            Stage::Ttl => Some((LONG, LONG)),
            Stage::TtlDown => Some((SHORT, LONG)),
            Stage::QuarantineDown => Some((SHORT, SHORT)),
            Stage::Set | Stage::SetDown(_) => None,
        }
    }

    /// Whether the operator may go on, by what can be seen; and to what.
    fn next_stage(&self, state: &State) -> Option<Stage> {
        let all_have = |settings| state.clients.iter().all(|client| (client.max_ttl, client.quarantine) == settings);
        let all_allow = |time| state.instances.iter().all(|it| it.is_of_this_process && it.longest_ttl == time);
        let all_vote = state.instances.iter().all(|instance| instance.waits == 0);
        let is_rolled_out = self.settings(state.stage).is_none_or(all_have) || self.leaves_one_behind(state);
        match state.stage {
            Stage::Quarantine => is_rolled_out.then_some(Stage::Set),
            Stage::Set => all_allow(LONG).then_some(Stage::Ttl),
            Stage::Ttl => is_rolled_out.then_some(Stage::TtlDown),
            Stage::TtlDown if self.0 == Deviation::QuarantineTooSoon => is_rolled_out.then_some(Stage::QuarantineDown),
            Stage::TtlDown => is_rolled_out.then_some(Stage::SetDown(LONG)),
            Stage::SetDown(_) => (all_allow(SHORT) && all_vote).then_some(Stage::QuarantineDown),
            Stage::QuarantineDown => None,
        }
    }

    /// The second client stays as it is.
    fn leaves_one_behind(&self, state: &State) -> bool {
        self.0 == Deviation::OwnQuarantineOnly && state.stage < Stage::TtlDown && state.clients[0].quarantine == LONG
    }

    fn write(&self, state: &mut State, client: usize, instance: usize) {
        let read = state.instances[instance].longest_ttl;
        let client = &mut state.clients[client];
        client.read[instance] = if read > 0 { read } else { client.read[instance] };
        let longest_ttl = client.longest_read().unwrap_or(client.quarantine);
        let wait =
            if self.0 == Deviation::OwnQuarantineOnly { client.quarantine } else { longest_ttl.max(client.quarantine) };
        let former = state.instances[instance];
        state.instances[instance] = Instance { longest_ttl, waits: wait, is_of_this_process: true, ..former };
    }

    fn fits(&self, client: Client, instance: Instance) -> bool {
        let allowed = instance.longest_ttl;
        self.0 == Deviation::TtlFirstUnchecked || client.max_ttl <= allowed && allowed <= client.quarantine
    }
}

impl Instance {
    fn forget(&mut self) {
        self.forgotten = self.forgotten.max(self.voted);
        self.voted = 0;
    }
}

impl Model for Times {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let (time, stage) = match self.1 {
            Begins::Short => (SHORT, Stage::Quarantine),
            Begins::Long => (LONG, Stage::TtlDown),
        };
        let instance = Instance { longest_ttl: time, is_of_this_process: true, waits: 0, voted: 0, forgotten: 0 };
        let (clients, instances) = ([Client::new(time, time); 2], [instance; 2]);
        vec![State { stage, clients, instances, voted_too_soon: false }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.push(Action::Tick);
        for (c, client) in state.clients.iter().enumerate() {
            let first = state.instances[0];
            if first.is_of_this_process && first.waits == 0 && self.fits(*client, first) {
                actions.push(Action::Vote(c));
            }
            for (i, instance) in state.instances.iter().enumerate() {
                if !instance.is_of_this_process {
                    actions.push(Action::Write(c, i));
                }
                if instance.longest_ttl > 0 {
                    actions.push(Action::Read(c, i));
                }
            }
        }
        for (i, instance) in state.instances.iter().enumerate() {
            actions.extend([Action::ForgetAll(i), Action::RestartFromDisk(i)]);
            if matches!(state.stage, Stage::Set | Stage::SetDown(0)) && instance.is_of_this_process {
                actions.push(Action::Set(i));
            }
        }
        if self.settings(state.stage).is_some() {
            actions.extend([Action::RollOut(0), Action::RollOut(1)]);
        }
        if self.next_stage(state).is_some() {
            actions.push(Action::NextStage);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Tick => {
                for instance in &mut state.instances {
                    for left in [&mut instance.waits, &mut instance.voted, &mut instance.forgotten] {
                        *left = left.saturating_sub(1);
                    }
                }
                if let Stage::SetDown(left) = &mut state.stage {
                    *left = left.saturating_sub(1);
                }
            }
            Action::Read(c, i) => state.clients[c].read[i] = state.instances[i].longest_ttl,
            Action::Write(c, i) => self.write(&mut state, c, i),
            Action::Vote(c) => {
                let (ttl, instance) = (state.clients[c].max_ttl, &mut state.instances[0]);
                state.voted_too_soon = instance.forgotten > 0;
                instance.voted = instance.voted.max(ttl);
            }
            Action::ForgetAll(i) => {
                state.instances[i].forget();
                (state.instances[i].longest_ttl, state.instances[i].is_of_this_process) = (0, false);
            }
            Action::RestartFromDisk(i) => {
                state.instances[i].forget();
                state.instances[i].is_of_this_process = false;
            }
            Action::RollOut(c) => {
                let (max_ttl, quarantine) = self.settings(state.stage)?;
                state.clients[c] = Client::new(max_ttl, quarantine);
            }
            Action::Set(i) => {
                let instance = &mut state.instances[i];
                let time = if state.stage == Stage::Set { LONG } else { SHORT };
                if time < instance.longest_ttl {
                    instance.waits = instance.waits.max(instance.longest_ttl);
                }
                instance.longest_ttl = time;
            }
            Action::NextStage => state.stage = self.next_stage(last)?,
        }
        (state != *last).then_some(state)
    }

    fn within_boundary(&self, state: &State) -> bool {
        match self.1 {
            Begins::Short => state.stage <= Stage::Ttl,
            Begins::Long => true,
        }
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no vote before what was forgotten is over", |_, state: &State| !state.voted_too_soon),
            Property::sometimes("the last stage is reached", |times: &Self, state: &State| {
                let (stage, settings) = match times.1 {
                    Begins::Short => (Stage::Ttl, (LONG, LONG)),
                    Begins::Long => (Stage::QuarantineDown, (SHORT, SHORT)),
                };
                let has = |client: &Client| (client.max_ttl, client.quarantine) == settings;
                state.stage == stage && state.clients.iter().all(has) && state.instances[0].voted > 0
            }),
        ]
    }
}
