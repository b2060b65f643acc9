//! Tokens and the floor (P12, P13): three instances whose clocks are apart, which forget tokens at any time or lose all that they have, and two
//! clients, whose clocks may be wrong, which lock one name one after the other.
//!
//! What a client proposes, believes and repeats is decided by the shipped [`proposing_clock`], [`FencingToken`] and [`Round`]; only
//! what the scripts do is written again. A tick is a second, which is what a client's clock may be off before it proposes by the
//! instances'. Requests are carried out at any time, or never. A client knows the clocks of any instances at each moment, of as many as
//! the world says at least, and of a quorum when it writes a record; or the instance's own clock has to do. Nothing is kept for any time:
//! a token is forgotten up to where the clocks are.

use std::time::Duration;

use redquorum::testing::protocol::{
    FencingToken, InstanceId, LeaseTerms, MAX_AHEAD, ProposingClock, Refusal, Reply, Round, Verdict, proposing_clock,
};
use stateright::{Model, Property};

use crate::shipped::{at, majority};

/// In ticks: for how long an instance waits that lost its data, and the longest time for which a lease is valid.
pub(crate) const QUARANTINE: i64 = 3;

const TICK_US: u64 = 1_000_000;
const ERA_US: u64 = 1_750_000_000_000_000;

/// Further behind than any of the others, and than a quarantine and a minute.
pub(crate) const FAR_BEHIND: i64 = -600;
pub(crate) const HOURS_AHEAD: i64 = 23 * 60 * 60;

/// What is done otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    Nothing,
    /// What is forgotten is not remembered as a floor.
    NoFloor,
    /// Two scripts: one removes, another raises the floor.
    FloorAfterRemoval,
    /// A plain acquire reads the floor, and then stores its token.
    FloorReadFirst,
    /// Tokens are forgotten up to where the client's clock is.
    CutByClientAlone,
    /// A quarantine begins without a floor.
    NewRecordWithoutFloor,
    /// A floor is set to where it is cut, also if that is lower.
    FloorFalls,
    /// A client writes a record though it knows the clocks of no quorum.
    RecordAtOnce,
}

/// How clients acquire first; they repeat by script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    Script,
    Plain,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Tokens {
    pub(crate) broken: Broken,
    pub(crate) path: Path,
    /// How far clocks are off, in ticks.
    pub(crate) instances: [i64; 3],
    pub(crate) clients: [i64; 2],
    /// How many instances' clocks a client knows at least when it proposes; none with admission off.
    pub(crate) known: usize,
    /// How many instances lose their data, and how many clocks are set back and by how much.
    pub(crate) losses: u8,
    pub(crate) set_back: (u8, i64),
    /// How often tokens are forgotten, and for how many ticks.
    pub(crate) forgets: u8,
    pub(crate) end: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Instance {
    clock_off: i64,
    /// The client whose value is stored.
    key: Option<u8>,
    token: Option<FencingToken>,
    floor: Option<FencingToken>,
    /// What was removed, and is not below the floor yet.
    removed: Option<FencingToken>,
    /// The tick of its own clock from which it votes; `None` without a record.
    vote_from: Option<i64>,
    /// How often it lost its data, as its record tells.
    life: u8,
}

/// The answer of an instance to the present round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Vote {
    Asked,
    /// A plain acquire stored its key, and perhaps a larger token, in this life of the instance, and reads the floor next. Or it has
    /// read this floor first.
    Stored {
        is_set: bool,
        is_larger: bool,
        life: u8,
    },
    Read(Option<FencingToken>, u8),
    Granted,
    Stale(FencingToken),
    Refused,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Idle,
    Acquiring,
    Holding,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Client {
    phase: Phase,
    started: u8,
    /// What the clock showed by which it proposes, whether that is the instances'.
    clock: (u64, bool),
    token: Option<FencingToken>,
    seen: Option<FencingToken>,
    last: Option<FencingToken>,
    repeats: u8,
    votes: [Vote; 3],
    has_handed_over: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    now: u8,
    instances: [Instance; 3],
    clients: [Client; 2],
    losses: u8,
    set_backs: u8,
    forgets: u8,
    /// The token of the last guard that was given, and whether a later one was not larger.
    last_token: Option<FencingToken>,
    is_unordered: bool,
    wins: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Tick,
    /// Client, and what the clock shows by which it proposes, in ticks.
    Acquire(usize, i64),
    /// Client, instance: the script, or the next part of the plain commands.
    Serve(usize, usize),
    HandOver(usize),
    Release(usize),
    /// Instance, and the tick up to which tokens are forgotten.
    Forget(usize, i64),
    RaiseFloor(usize),
    Lose(usize),
    /// Instance, and what the clock of the client shows that writes the record.
    WriteRecord(usize, i64),
    SetBack(usize),
}

fn us(tick: i64) -> u64 {
    ERA_US.saturating_add_signed(tick * TICK_US as i64)
}

fn tick_of(us: u64) -> i64 {
    (us as i64 - ERA_US as i64) / TICK_US as i64
}

impl Instance {
    fn clock(&self, now: u8) -> i64 {
        i64::from(now) + self.clock_off
    }

    fn may_vote(&self, now: u8) -> bool {
        self.vote_from.is_some_and(|from| from <= self.clock(now))
    }

    /// P12: one that is too far ahead counts as none.
    fn counted(&self, token: Option<FencingToken>, now: u8) -> Option<FencingToken> {
        token.filter(|token| !token.is_ahead_of(us(self.clock(now))))
    }

    /// P13: it never falls.
    fn raise_floor(&mut self, to: FencingToken, now: u8) {
        self.floor = self.counted(self.floor, now).max(Some(to));
    }

    fn lose_all(&mut self) {
        let Self { clock_off, life, .. } = *self;
        let life = life + 1;
        *self = Self { clock_off, key: None, token: None, floor: None, removed: None, vote_from: None, life };
    }
}

impl Client {
    const fn in_phase(phase: Phase) -> Self {
        let votes = [Vote::Refused; 3];
        let (clock, token, seen, last) = ((0, false), None, None, None);
        Self { phase, started: 0, clock, token, seen, last, repeats: 0, votes, has_handed_over: false }
    }

    fn token(&self) -> FencingToken {
        self.token.unwrap_or_else(|| FencingToken::propose(0, None))
    }

    fn proposing(&self) -> ProposingClock {
        ProposingClock { us: self.clock.0, is_of_instances: self.clock.1 }
    }

    fn propose(&mut self) {
        let by_clock = self.proposing().propose(self.last);
        let token = by_clock.max(self.seen.map_or(by_clock, FencingToken::next_grant));
        (self.last, self.token, self.votes) = (Some(by_clock), Some(token), [Vote::Asked; 3]);
    }

    /// The round as the library counts it.
    fn round(&self, now: u8) -> Round {
        let terms =
            LeaseTerms::new(Duration::from_secs(QUARANTINE as u64), 0).unwrap_or_else(|error| panic!("{error}"));
        let mut round = Round::acquire(majority(3), terms, at(self.started)).proposing(self.token(), self.proposing());
        for (id, vote) in InstanceId::all(3).zip(self.votes) {
            let reply = match vote {
                Vote::Asked | Vote::Stored { .. } | Vote::Read(..) => continue,
                Vote::Granted => Reply::Granted,
                Vote::Stale(stored) => Reply::Stale { stored },
                Vote::Refused => Reply::Refused(Refusal::default()),
            };
            round.record(id, reply, at(now));
        }
        round.verdict(at(now));
        round
    }
}

impl Tokens {
    /// What the clocks may show by which a client proposes, in ticks: it knows those of the instances in any set that is large enough.
    fn clocks(&self, state: &State, client: usize) -> Vec<ProposingClock> {
        let own = us(i64::from(state.now) + self.clients[client]);
        let sets =
            (0..8_u32).filter(|set| if self.known == 0 { *set == 0 } else { set.count_ones() as usize >= self.known });
        let clock = |set: u32| {
            let reading = |i: usize| (set & 1 << i != 0).then(|| us(state.instances[i].clock(state.now)));
            proposing_clock(own, (0..3).map(reading), majority(3)).ok()
        };
        let mut clocks: Vec<_> = sets.filter_map(clock).collect();
        clocks.sort_by_key(|clock| clock.us);
        clocks.dedup();
        clocks
    }

    /// What clocks may show by which the floor of an instance that lost its data is set.
    fn clocks_for_records(&self, state: &State, i: usize) -> Vec<i64> {
        let known = if self.broken == Broken::RecordAtOnce { self.known } else { self.known.max(majority(3).votes()) };
        let world = Self { known, ..*self };
        let clocks = (0..2).flat_map(|client| world.clocks(state, client)).map(|clock| tick_of(clock.us));
        let mut clocks: Vec<_> = clocks.chain([state.instances[i].clock(state.now)]).collect();
        clocks.sort_unstable();
        clocks.dedup();
        clocks
    }

    fn cuts(&self, state: &State, i: usize) -> Vec<i64> {
        let own = state.instances[i].clock(state.now);
        let cut = |clock: ProposingClock| match self.broken {
            Broken::CutByClientAlone => tick_of(clock.us),
            _ => own.min(tick_of(clock.us)),
        };
        let mut cuts: Vec<_> = (0..2).flat_map(|client| self.clocks(state, client)).map(cut).collect();
        cuts.sort_unstable();
        cuts.dedup();
        cuts
    }

    /// As `forget_tokens.lua`.
    fn forget(&self, instance: &mut Instance, up_to: FencingToken, now: u8) {
        if self.broken == Broken::FloorFalls {
            instance.floor = Some(up_to);
        } else if !matches!(self.broken, Broken::NoFloor | Broken::FloorAfterRemoval) {
            instance.raise_floor(up_to, now);
        }
        if instance.token.is_some_and(|token| token <= up_to) {
            instance.removed = instance.token.filter(|_| self.broken == Broken::FloorAfterRemoval);
            instance.token = None;
        }
    }

    /// As `write_record.lua`.
    fn write_record(&self, instance: &mut Instance, proposing: i64, now: u8) {
        let vote_from = instance.clock(now) + QUARANTINE;
        instance.vote_from = Some(vote_from);
        if self.broken == Broken::NewRecordWithoutFloor {
            return;
        }
        let (least, most) = FencingToken::floor_after(us(proposing), QUARANTINE as u64 * 1_000);
        let since_2025 = |us: u64| FencingToken::since_epoch_us(us).unsigned_abs();
        let latest = since_2025(us(instance.clock(now)) + MAX_AHEAD.as_micros() as u64);
        let floor = least.max(most.min(since_2025(us(vote_from)))).min(latest);
        if let Some(floor) = FencingToken::from_score(floor as f64) {
            instance.raise_floor(floor, now);
        }
    }

    fn serve(&self, state: &mut State, c: usize, i: usize) {
        let (now, broken) = (state.now, self.broken);
        let (client, instance) = (&mut state.clients[c], &mut state.instances[i]);
        let is_plain = self.path == Path::Plain && client.repeats == 0;
        client.votes[i] = match client.votes[i] {
            Vote::Asked if is_plain && broken == Broken::FloorReadFirst => Vote::Read(instance.floor, instance.life),
            Vote::Asked if is_plain && instance.may_vote(now) => store(client, instance, c),
            Vote::Asked => acquire(client, instance, c, now),
            Vote::Read(floor, life) => match store(client, instance, c) {
                Vote::Stored { is_set, is_larger, life: now_in } if life == now_in => {
                    let floor = instance.counted(floor, now);
                    judged(client, instance, (is_set, is_larger), floor, now)
                }
                _ => Vote::Refused,
            },
            Vote::Stored { is_set, is_larger, life } if life == instance.life => {
                let floor = instance.counted(instance.floor, now);
                judged(client, instance, (is_set, is_larger), floor, now)
            }
            Vote::Stored { .. } => Vote::Refused, // another record
            vote => vote,
        };
        self.decide(state, c);
    }

    fn decide(&self, state: &mut State, c: usize) {
        let client = &mut state.clients[c];
        let mut round = client.round(state.now);
        let verdict = round.verdict(at(state.now));
        if verdict == Verdict::Won {
            let (started, token) = (client.started, client.token);
            *client = Client { started, token, ..Client::in_phase(Phase::Holding) };
            state.wins += 1;
            give(state, c);
        } else if verdict == Verdict::Lost {
            client.seen = client.seen.max(round.highest_seen());
            if round.stale_token().is_some() && client.repeats < 3 {
                client.repeats += 1;
                client.propose();
            } else {
                end(state, c);
            }
        }
    }
}

/// `SET` and `ZADD` of a plain acquire.
fn store(client: &Client, instance: &mut Instance, c: usize) -> Vote {
    let is_set = instance.key.is_none();
    let is_larger = instance.token < client.token;
    instance.key = instance.key.or(Some(c as u8));
    instance.token = instance.token.max(client.token);
    Vote::Stored { is_set, is_larger, life: instance.life }
}

/// What the answers to plain commands say, the floor with them.
fn judged(
    client: &Client,
    instance: &Instance,
    (is_set, is_larger): (bool, bool),
    floor: Option<FencingToken>,
    now: u8,
) -> Vote {
    let largest = instance.counted(instance.token.filter(|_| !is_larger), now).max(floor);
    match largest.filter(|largest| *largest >= client.token()) {
        _ if !is_set => Vote::Refused,
        Some(stored) => Vote::Stale(stored),
        None => Vote::Granted,
    }
}

/// As `acquire.lua`.
fn acquire(client: &Client, instance: &mut Instance, c: usize, now: u8) -> Vote {
    let token = client.token();
    let is_others = instance.key.is_some_and(|key| key != c as u8);
    if !instance.may_vote(now) || is_others || token.is_ahead_of(us(instance.clock(now))) {
        return Vote::Refused;
    }
    let largest = instance.counted(instance.token, now).max(instance.counted(instance.floor, now));
    if let Some(stored) = largest.filter(|largest| *largest >= token) {
        return Vote::Stale(stored);
    }
    (instance.key, instance.token) = (Some(c as u8), Some(token));
    Vote::Granted
}

/// A guard is given under the client's token.
fn give(state: &mut State, c: usize) {
    let token = state.clients[c].token;
    state.is_unordered |= token <= state.last_token;
    state.last_token = token;
}

/// It holds or asks for nothing more: its keys are gone, and what is on its way does nothing.
fn end(state: &mut State, c: usize) {
    state.clients[c] = Client::in_phase(Phase::Done);
    for instance in &mut state.instances {
        instance.key = instance.key.filter(|key| *key != c as u8);
    }
}

impl Model for Tokens {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let instance = |clock_off| Instance {
            clock_off,
            key: None,
            token: None,
            floor: None,
            removed: None,
            vote_from: Some(i64::MIN),
            life: 0,
        };
        let client = Client::in_phase(Phase::Idle);
        vec![State {
            now: 0,
            instances: self.instances.map(instance),
            clients: [client; 2],
            losses: self.losses,
            set_backs: self.set_back.0,
            forgets: self.forgets,
            last_token: None,
            is_unordered: false,
            wins: 0,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now < self.end {
            actions.push(Action::Tick);
        }
        for (c, client) in state.clients.iter().enumerate() {
            match client.phase {
                Phase::Idle => {
                    actions.extend(self.clocks(state, c).iter().map(|clock| Action::Acquire(c, tick_of(clock.us))));
                }
                Phase::Acquiring => {
                    let is_open = |vote: Vote| matches!(vote, Vote::Asked | Vote::Stored { .. } | Vote::Read(..));
                    actions.extend((0..3).filter(|i| is_open(client.votes[*i])).map(|i| Action::Serve(c, i)));
                }
                Phase::Holding => {
                    actions.push(Action::Release(c));
                    if !client.has_handed_over {
                        actions.push(Action::HandOver(c));
                    }
                }
                Phase::Done => {}
            }
        }
        for (i, instance) in state.instances.iter().enumerate() {
            if state.forgets > 0 {
                actions.extend(self.cuts(state, i).into_iter().map(|cut| Action::Forget(i, cut)));
            }
            if instance.removed.is_some() {
                actions.push(Action::RaiseFloor(i));
            }
            if state.losses > 0 {
                actions.push(Action::Lose(i));
            }
            if instance.vote_from.is_none() {
                let clocks = self.clocks_for_records(state, i);
                actions.extend(clocks.into_iter().map(|clock| Action::WriteRecord(i, clock)));
            }
            if state.set_backs > 0 {
                actions.push(Action::SetBack(i));
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let now = state.now;
        match action {
            Action::Tick => {
                state.now += 1;
                for c in 0..2 {
                    let client = &state.clients[c];
                    let is_over = i64::from(state.now - client.started) >= QUARANTINE;
                    if is_over && matches!(client.phase, Phase::Acquiring | Phase::Holding) {
                        end(&mut state, c);
                    }
                }
            }
            Action::Acquire(c, tick) => {
                let clock = self.clocks(last, c).into_iter().find(|clock| tick_of(clock.us) == tick)?;
                let client = &mut state.clients[c];
                (client.phase, client.started, client.clock) =
                    (Phase::Acquiring, now, (clock.us, clock.is_of_instances));
                client.propose();
            }
            Action::Serve(c, i) => self.serve(&mut state, c, i),
            Action::HandOver(c) => {
                let client = &mut state.clients[c];
                (client.token, client.has_handed_over) = (client.token().next_in_lease(), true);
                give(&mut state, c);
            }
            Action::Release(c) => end(&mut state, c),
            Action::Forget(i, cut) => {
                state.forgets -= 1;
                self.forget(&mut state.instances[i], FencingToken::propose(us(cut), None), now);
            }
            Action::RaiseFloor(i) => {
                let removed = state.instances[i].removed.take()?;
                state.instances[i].raise_floor(removed, now);
            }
            Action::Lose(i) => {
                state.losses -= 1;
                state.instances[i].lose_all();
            }
            Action::WriteRecord(i, proposing) => self.write_record(&mut state.instances[i], proposing, now),
            Action::SetBack(i) => {
                state.set_backs -= 1;
                state.instances[i].clock_off -= self.set_back.1;
            }
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("order of tokens", |_, state: &State| !state.is_unordered),
            Property::always("no instance that votes has a floor ahead of all clocks", |_, state: &State| {
                let latest = state.instances.iter().map(|instance| instance.clock(state.now)).max().unwrap_or(0);
                let latest = FencingToken::propose(us(latest + 1), None);
                let is_ahead = |instance: &Instance| instance.may_vote(state.now) && instance.floor > Some(latest);
                !state.instances.iter().any(is_ahead)
            }),
            Property::sometimes("both win, one after the other", |_, state: &State| state.wins == 2),
        ]
    }
}
