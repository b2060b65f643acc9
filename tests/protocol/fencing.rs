//! P12: every later holder has a larger token, over any interleaving on instances that are made
//! here a second time.

use std::time::Duration;

use proptest::prelude::*;
use redquorum::FencingToken;
use redquorum::testing::protocol::{
    InstanceId, InstanceSet, Instant, LeaseTerms, ProposingClock, Quorum, Refusal, Reply, Round, Verdict,
};

const INSTANCES: usize = 5;
const VOTES: usize = 3;
const TTL: Duration = Duration::from_secs(1);

/// An instance: one key with its expiry, one stored token, and its quarantine.
#[derive(Clone, Copy, Debug, Default)]
struct Fake {
    key: Option<(u64, Instant)>,
    token: Option<FencingToken>,
    admitted_from: Instant,
}

impl Fake {
    fn acquire(&mut self, value: u64, token: FencingToken, now: Instant) -> Reply {
        self.key = self.key.filter(|(_, expires_at)| now < *expires_at);
        if now < self.admitted_from {
            return Reply::NotAdmitted { remaining: None };
        }
        if self.key.is_some_and(|(holder, _)| holder != value) {
            return Reply::Refused(Refusal { token: self.token, ..Refusal::default() });
        }
        if let Some(stored) = self.token.filter(|stored| *stored >= token) {
            return Reply::Stale { stored };
        }
        self.key = Some((value, now.saturating_add(TTL)));
        self.token = Some(token);
        Reply::Granted
    }

    fn release(&mut self, value: u64) {
        self.key = self.key.filter(|(holder, _)| *holder != value);
    }
}

#[derive(Clone, Debug)]
struct RoundInFlight {
    round: Round,
    value: u64,
    token: FencingToken,
    unsent: InstanceSet,
    repeated: bool,
}

#[derive(Clone, Debug, Default)]
struct Client {
    in_flight: Option<RoundInFlight>,
    holds: Option<u64>,
    seen: Option<FencingToken>,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Begin(usize),
    /// The request reaches the instance; the answer may get lost.
    Deliver(usize, usize, bool),
    Release(usize),
    Wait(u64),
    Restart(usize),
}

#[derive(Debug)]
struct World {
    now: Instant,
    fakes: [Fake; INSTANCES],
    clients: [Client; 3],
    values: u64,
    tokens: Vec<FencingToken>,
}

/// How far the clients' wall clocks are ahead of the slowest, in microseconds.
const AHEAD: [u64; 3] = [3_600_000_000, 0, 5_000];

impl World {
    fn new() -> Self {
        Self { now: Instant::ZERO, fakes: Default::default(), clients: Default::default(), values: 0, tokens: vec![] }
    }

    fn wall_us(&self, client: usize) -> u64 {
        1_800_000_000_000_000 + AHEAD[client] + self.now.as_nanos() / 1_000
    }

    fn begin(&mut self, client: usize, value: u64, repeated: bool) {
        let token = FencingToken::propose(self.wall_us(client), self.clients[client].seen);
        self.clients[client].seen = Some(token);
        let quorum = Quorum::new(INSTANCES, VOTES).unwrap();
        let round = Round::acquire(quorum, LeaseTerms::new(TTL, 10_000).unwrap(), self.now);
        let unsent = InstanceSet::first(INSTANCES);
        self.clients[client].in_flight = Some(RoundInFlight { round, value, token, unsent, repeated });
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Begin(client) if self.clients[client].in_flight.is_none() && self.clients[client].holds.is_none() => {
                self.values += 1;
                self.begin(client, self.values, false);
            }
            Step::Deliver(client, instance, answered) => self.deliver(client, instance, answered),
            Step::Release(client) => {
                if let Some(value) = self.clients[client].holds.take() {
                    self.fakes.iter_mut().for_each(|fake| fake.release(value));
                }
            }
            Step::Wait(millis) => self.now = self.now.saturating_add(Duration::from_millis(millis)),
            Step::Restart(instance) if self.may_forget(instance) => {
                self.fakes[instance] = Fake { admitted_from: self.now.saturating_add(TTL), ..Fake::default() };
            }
            Step::Begin(_) | Step::Restart(_) => {}
        }
    }

    fn deliver(&mut self, client: usize, instance: usize, answered: bool) {
        let Some(mut in_flight) = self.clients[client].in_flight.take() else { return };
        let id = InstanceId::new(instance);
        if in_flight.unsent.contains(id) {
            in_flight.unsent.remove(id);
            let reply = self.fakes[instance].acquire(in_flight.value, in_flight.token, self.now);
            let reply = if answered { reply } else { Reply::Unknown(redquorum::testing::protocol::Cause::TimedOut) };
            in_flight.round.on_reply(id, reply, self.now);
        }
        match in_flight.round.verdict(self.now) {
            Verdict::Pending => self.clients[client].in_flight = Some(in_flight),
            Verdict::Won => {
                self.tokens.push(in_flight.token);
                self.clients[client].holds = Some(in_flight.value);
            }
            Verdict::Lost => self.lost(client, in_flight),
        }
    }

    fn lost(&mut self, client: usize, in_flight: RoundInFlight) {
        let seen = self.clients[client].seen.max(in_flight.round.highest_seen());
        self.clients[client].seen = seen;
        if in_flight.round.stale_token().is_some() && !in_flight.repeated {
            self.begin(client, in_flight.value, true);
        } else {
            self.fakes.iter_mut().for_each(|fake| fake.release(in_flight.value));
        }
    }

    /// Whether enough instances would still know the last token, and no round counts on this one.
    fn may_forget(&self, instance: usize) -> bool {
        let knows = |fake: &Fake| fake.token >= self.tokens.last().copied();
        let others = self.fakes.iter().enumerate().filter(|(index, fake)| *index != instance && knows(fake)).count();
        let flights = self.clients.iter().filter_map(|client| client.in_flight.as_ref());
        others + VOTES > INSTANCES && flights.count() == 0
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0usize..3).prop_map(Step::Begin),
        24 => (0usize..3, 0..INSTANCES, prop::bool::weighted(0.9)).prop_map(|(c, i, a)| Step::Deliver(c, i, a)),
        3 => (0usize..3).prop_map(Step::Release),
        1 => prop_oneof![0u64..50, Just(1_001)].prop_map(Step::Wait),
        1 => (0..INSTANCES).prop_map(Step::Restart),
    ];
    prop::collection::vec(step, 50..300)
}

proptest! {
    #[test]
    fn tokens_strictly_increase_over_any_interleaving(steps in steps()) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
            prop_assert!(world.tokens.is_sorted_by(|a, b| a < b), "{:?}", world.tokens);
        }
    }
}

/// The strategy above is of use only if rounds are won in it, also behind a faster clock.
#[test]
fn a_client_whose_clock_is_behind_wins_after_one_repeat() {
    let mut world = World::new();
    for client in [0, 1] {
        world.step(Step::Begin(client));
        for instance in (0..INSTANCES).chain(0..INSTANCES) {
            world.step(Step::Deliver(client, instance, true));
        }
        world.step(Step::Release(client));
    }
    assert_eq!(world.tokens.len(), 2);
    assert!(world.tokens.is_sorted_by(|a, b| a < b));
}

#[test]
fn a_round_that_stale_answers_did_not_lose_is_not_repeated() {
    let mut round = Round::acquire(Quorum::majority(3).unwrap(), LeaseTerms::new(TTL, 0).unwrap(), Instant::ZERO);
    let stored = FencingToken::from_number(5).unwrap();
    round.on_reply(InstanceId::new(0), Reply::Stale { stored }, Instant::ZERO);
    assert_eq!(round.stale_token(), None, "it is not lost yet");
    round.on_reply(InstanceId::new(1), Reply::NotSent(redquorum::testing::protocol::Cause::Silent), Instant::ZERO);
    assert_eq!(round.stale_token(), Some(stored), "the third has not answered");
    round.on_reply(InstanceId::new(2), Reply::Refused(Refusal::default()), Instant::ZERO);
    assert_eq!(round.stale_token(), None, "a larger token would not help");
}

#[test]
fn the_tokens_of_refusals_are_learnt_too() {
    let token = |number| FencingToken::from_number(number).unwrap();
    let mut round = Round::acquire(Quorum::majority(3).unwrap(), LeaseTerms::new(TTL, 0).unwrap(), Instant::ZERO);
    assert_eq!(round.highest_seen(), None);
    round.on_reply(InstanceId::new(0), Reply::Stale { stored: token(5) }, Instant::ZERO);
    let refusal = Refusal { token: Some(token(9)), ..Refusal::default() };
    round.on_reply(InstanceId::new(1), Reply::Refused(refusal), Instant::ZERO);
    assert_eq!(round.highest_seen(), Some(token(9)));
}

/// Whatever led to a proposal that a quorum refuses as ahead would lead there again and again.
#[test]
fn a_proposal_that_a_quorum_refused_as_ahead_is_not_followed_again() {
    let token = |number| FencingToken::from_number(number).unwrap();
    let round = Round::acquire(Quorum::majority(3).unwrap(), LeaseTerms::new(TTL, 0).unwrap(), Instant::ZERO);
    let mut round = round.proposing(token(9), ProposingClock { us: 0, is_of_instances: true });
    round.on_reply(InstanceId::new(0), Reply::Stale { stored: token(8) }, Instant::ZERO);
    let behind = || Reply::Unknown(redquorum::testing::protocol::Cause::ClockBehind { clock_s: 1, token_s: 2 });
    round.on_reply(InstanceId::new(1), behind(), Instant::ZERO);
    assert_eq!(round.highest_seen(), Some(token(9)));
    round.on_reply(InstanceId::new(2), behind(), Instant::ZERO);
    assert_eq!(round.highest_seen(), None);
}

const NOW_US: u64 = 1_800_000_000_000_000;
const HOUR_US: u64 = 3_600_000_000;

/// A token of a clock that is ahead by so much.
fn ahead_by(us: u64) -> FencingToken {
    FencingToken::propose(NOW_US + us, None)
}

fn proposing(instances: usize) -> Round {
    let terms = LeaseTerms::new(TTL, 0).unwrap();
    Round::acquire(Quorum::majority(instances).unwrap(), terms, Instant::ZERO)
        .proposing(ahead_by(0), ProposingClock { us: NOW_US, is_of_instances: true })
}

/// The round after these replies, from the first instance on.
fn after(instances: usize, replies: &[Reply]) -> (Round, Verdict) {
    let mut round = proposing(instances);
    for (index, reply) in replies.iter().enumerate() {
        round.on_reply(InstanceId::new(index), reply.clone(), Instant::ZERO);
    }
    let verdict = round.verdict(Instant::ZERO);
    (round, verdict)
}

/// One instance that lied took the tokens of everybody a day ahead.
#[test]
fn a_token_far_ahead_that_one_instance_alone_has_is_not_followed_and_its_vote_is_lost() {
    let (near, far) = (Reply::Stale { stored: ahead_by(5) }, Reply::Stale { stored: ahead_by(23 * HOUR_US) });
    let refusing = Reply::Refused(Refusal { token: Some(ahead_by(23 * HOUR_US)), ..Refusal::default() });
    for alone in [&far, &refusing] {
        let (round, verdict) = after(3, &[alone.clone(), near.clone(), near.clone()]);
        assert_eq!(verdict, Verdict::Lost);
        assert_eq!(round.highest_seen(), Some(ahead_by(5)));
        assert_eq!(round.stale_token(), Some(ahead_by(5)), "the two others may grant it");
    }
    let (round, _) = after(3, &[far, near, Reply::Unknown(redquorum::testing::protocol::Cause::TimedOut)]);
    assert_eq!(round.stale_token(), None, "there is no quorum without it");
    let told = format!("{:?}", round.replies()[0]);
    assert!(told.contains("82800 s ahead") && told.contains("is 0 s ahead"), "{told}");
}

/// Clocks that were ahead together: what was granted then is on a quorum.
#[test]
fn a_token_far_ahead_that_two_instances_have_is_followed_but_no_further_than_the_second_goes() {
    let far = |us| Reply::Stale { stored: ahead_by(HOUR_US + us) };
    let down = || Reply::NotSent(redquorum::testing::protocol::Cause::Silent);
    for (replies, followed) in [
        ([far(0), far(0), far(0)], 0),
        ([far(0), far(0), down()], 0),
        ([far(9), far(3), down()], 3),
        ([far(9), far(3), far(3)], 3),
        ([down(), far(3), far(9)], 3),
    ] {
        let (round, verdict) = after(3, &replies);
        assert_eq!(verdict, Verdict::Lost);
        assert_eq!(round.highest_seen(), Some(ahead_by(HOUR_US + followed)), "{replies:?}");
    }
}

/// The only one of a quorum that knows a token which was granted: with clocks that are about right it is near.
#[test]
fn a_token_near_the_clock_is_followed_though_one_instance_alone_has_it() {
    let near = ahead_by(59_000_000);
    let down = || Reply::NotSent(redquorum::testing::protocol::Cause::Silent);
    let (round, _) = after(5, &[down(), down(), Reply::Stale { stored: near }, Reply::Granted, Reply::Granted]);
    assert_eq!((round.stale_token(), round.highest_seen()), (Some(near), Some(near)));
    let alone = Reply::Stale { stored: ahead_by(HOUR_US) };
    for instances in [1, 2] {
        let (round, _) = after(instances, &vec![alone.clone(); 1]);
        assert_eq!(round.stale_token(), Some(ahead_by(HOUR_US)), "nobody could outvote it");
    }
}

/// Else an instance that answers before those which know the same token would keep the lock from everybody.
#[test]
fn a_round_with_a_token_far_ahead_waits_for_those_that_may_have_one_like_it() {
    let far = || Reply::Stale { stored: ahead_by(HOUR_US) };
    let down = || Reply::NotSent(redquorum::testing::protocol::Cause::Silent);
    let (mut round, verdict) = after(5, &[down(), down(), far()]);
    assert_eq!(verdict, Verdict::Pending);
    assert_eq!(round.on_reply(InstanceId::new(3), far(), Instant::ZERO), Verdict::Lost);
    assert_eq!(round.stale_token(), Some(ahead_by(HOUR_US)));
    let refused = || Reply::Refused(Refusal::default());
    let (_, verdict) = after(5, &[refused(), refused(), refused(), far()]);
    assert_eq!(verdict, Verdict::Lost, "no larger token would help");
}

proptest! {
    /// Whatever one instance says, beside others whose tokens are near the clock.
    #[test]
    fn one_instance_moves_a_proposal_by_a_minute_at_most(
        lie in 1u64..(1 << 62), others in prop::collection::vec(0u64..50_000_000, 4), at in 0usize..5, refuses: bool,
    ) {
        let lie = FencingToken::from_number(lie).unwrap();
        let mut replies: Vec<Reply> = others.iter().map(|us| Reply::Stale { stored: ahead_by(*us) }).collect();
        let refusal = Refusal { token: Some(lie), ..Refusal::default() };
        replies.insert(at, if refuses { Reply::Refused(refusal) } else { Reply::Stale { stored: lie } });
        let (round, _) = after(5, &replies);
        prop_assert!(round.highest_seen() <= Some(ahead_by(60_000_000)));
        prop_assert!(round.stale_token() >= others.iter().copied().max().map(ahead_by));
        prop_assert!(round.stale_token() <= Some(ahead_by(60_000_000)));
    }
}
