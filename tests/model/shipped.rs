//! What the library makes of answers. The worlds keep small data, and ask the shipped [`Round`], [`Lease`] and [`CountedVotes`] what it means.
//!
//! A tick is a second, so what is taken off a ttl for drift ends a lease within its last tick.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use redquorum::testing::protocol::{
    AdmissionRecord, CountedVotes, DEFAULT_DRIFT_PPM, InstanceId, Instant, Lease, LeaseTerms, ProcessIdentity, Quorum,
    RecordOrigin, Refusal, Reply, Round, VoteRequest,
};

const TICK: Duration = Duration::from_secs(1);

pub(crate) fn at(tick: u8) -> Instant {
    Instant::ZERO.saturating_add(TICK * u32::from(tick))
}

/// The first tick that is not before it.
fn tick_of(instant: Instant) -> u8 {
    u8::try_from(instant.saturating_since(Instant::ZERO).as_nanos().div_ceil(TICK.as_nanos())).unwrap_or(u8::MAX)
}

pub(crate) fn majority(instances: usize) -> Quorum {
    Quorum::majority(instances).unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn terms(ttl: u8) -> LeaseTerms {
    LeaseTerms::new(TICK * u32::from(ttl), DEFAULT_DRIFT_PPM).unwrap_or_else(|error| panic!("{error}"))
}

/// The answers to a round so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answers<I> {
    /// How many instances its client has, and how long keys live.
    pub(crate) instances: usize,
    pub(crate) ttl: u8,
    pub(crate) began: u8,
    /// Of each instance of the client in turn: whether it has granted; `None` if it is asked still.
    pub(crate) granted: I,
}

impl<I: IntoIterator<Item = Option<bool>>> Answers<I> {
    fn recorded(self, mut round: Round, now: u8) -> Round {
        for (id, granted) in InstanceId::all(self.instances).zip(self.granted) {
            let reply =
                granted.map(|granted| if granted { Reply::Granted } else { Reply::Refused(Refusal::default()) });
            reply.into_iter().for_each(|reply| round.record(id, reply, at(now)));
        }
        round
    }

    /// The first tick at which the lease is not valid that this acquire wins, if it does.
    pub(crate) fn won(self, now: u8) -> Option<u8> {
        let terms = terms(self.ttl);
        let round = Round::acquire(majority(self.instances), terms, at(self.began));
        let lease = Lease::from_won(&mut self.recorded(round, now), terms, at(now));
        lease.map(|lease| tick_of(lease.valid_until()))
    }

    /// Whether this extend wins, and the same of its lease, which was valid until `former`, afterwards.
    pub(crate) fn extended(self, former: u8, now: u8) -> (bool, u8) {
        let (quorum, terms) = (majority(self.instances), terms(self.ttl));
        let won_at = at(former.saturating_sub(self.ttl));
        let mut acquire = Round::acquire(quorum, terms, won_at);
        InstanceId::all(self.instances).for_each(|id| acquire.record(id, Reply::Granted, won_at));
        let Some(mut lease) = Lease::from_won(&mut acquire, terms, won_at) else { return (false, former) };
        let round = lease.begin_extend(quorum, terms, at(self.began)).ok();
        let won = round.is_some_and(|round| lease.settle(&mut self.recorded(round, now), at(now)));
        (won, tick_of(lease.valid_until()))
    }
}

/// A vote that counted: of which process of its instance, asked for and given when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Vote {
    pub(crate) is_of_second: bool,
    pub(crate) sent: u8,
    pub(crate) given: u8,
}

impl Vote {
    /// Whether a key that the instance has kept is a vote (P10). Clocks agree.
    pub(crate) fn is_kept(self, last: Option<Self>, ttl: u8) -> bool {
        let mut votes = CountedVotes::default();
        if let Some(last) = last {
            votes.count(Reply::Granted, &last.requested(ttl));
        }
        votes.count(Reply::Kept { remaining: TICK }, &self.requested(ttl)) == Reply::Granted
    }

    fn requested(self, ttl: u8) -> VoteRequest<'static> {
        static PROCESSES: LazyLock<[Arc<AdmissionRecord>; 2]> = LazyLock::new(|| {
            ["first", "second"].map(|run_id| {
                let identity = ProcessIdentity::new(run_id, run_id);
                let (vote_from_ms, longest_ttl_ms, origin, order) = (0, u64::MAX, RecordOrigin::Waits, 0);
                Arc::new(AdmissionRecord { identity, vote_from_ms, longest_ttl_ms, origin, order })
            })
        });
        VoteRequest {
            id: InstanceId::new(0),
            record: &PROCESSES[usize::from(self.is_of_second)],
            terms: Some(terms(ttl)),
            sent: at(self.sent),
            received: at(self.given),
            instance_us: Some(at(self.given).as_nanos() / 1_000),
        }
    }
}
