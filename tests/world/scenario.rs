//! What a seed decides before the run begins.

use std::time::Duration;

use crate::faults::Fault;
use crate::rng::Rng;

/// About what wall clocks read when a run begins.
const ERA_US: u64 = 1_750_000_000_000_000;

/// The drift that clients are told to expect, in ppm.
pub(crate) const DRIFT_PPM: u32 = 10_000;

#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) seed: u64,
    pub(crate) servers: usize,
    pub(crate) clients: usize,
    pub(crate) users: usize,
    pub(crate) ttl: Duration,
    pub(crate) max_ttl: Duration,
    pub(crate) instance_timeout: Duration,
    /// How long there are faults.
    pub(crate) chaos: Duration,
    pub(crate) delays: Delays,
    /// The servers have just been started, and were not up for long.
    pub(crate) fresh: bool,
    /// Wall clocks of clients are far apart: the order of tokens then rests on the stored ones alone.
    pub(crate) far_wall_clocks: bool,
    /// By rate, in ppm, and wall clock, in microseconds: servers, then clients.
    pub(crate) clocks: Vec<(i64, u64)>,
    /// Whether instances that may have forgotten do not vote.
    pub(crate) admission: bool,
    pub(crate) quorum: usize,
    /// All that clients send is read.
    pub(crate) is_read: bool,
    /// The client with a runtime of its own, which is blocked alone and may end.
    pub(crate) apart: Option<usize>,
    /// Which clients wait in order: every so-manyth; `None` if none does.
    pub(crate) in_order: Option<usize>,
    /// Somebody takes locks away by force.
    pub(crate) has_operator: bool,
    pub(crate) plan: Vec<Fault>,
}

/// How long bytes take, in ms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delays {
    pub(crate) least: u64,
    pub(crate) most: u64,
    /// How many of a thousand take up to `slow` longer.
    pub(crate) slow_permille: u64,
    pub(crate) slow: u64,
}

impl Delays {
    pub(crate) const CALM: Self = Self { least: 0, most: 1, slow_permille: 0, slow: 0 };

    fn draw(rng: &mut Rng) -> Self {
        if rng.percent(40) {
            return Self { least: 0, most: rng.pick(&[0, 1, 2]), ..Self::CALM };
        }
        let (least, most) = rng.pick(&[(0, 3), (1, 10), (5, 30)]);
        Self { least, most, slow_permille: rng.pick(&[0, 10, 50]), slow: rng.pick(&[50, 300]) }
    }
}

impl Scenario {
    /// The scenario of a seed, with the faults that the seed plans or those that are given.
    pub(crate) fn new(seed: u64, plan: Option<&[Fault]>) -> Self {
        let rng = &mut Rng::new(seed);
        let drill = rng.percent(15);
        let servers = if drill { 3 } else { rng.pick(&[3, 3, 3, 5]) };
        let clients = rng.pick(&[2, 2, 3, 3, 4]);
        let users = clients + rng.index(3);
        let ttl_ms = rng.pick(&[200, 300, 600, 1_000]);
        let max_ttl_ms = if rng.percent(70) { ttl_ms } else { ttl_ms * 2 };
        let instance_timeout = rng.pick(&[ttl_ms / 10, ttl_ms / 5, ttl_ms / 3]);
        let chaos = ttl_ms * rng.between(2, 5);
        let delays = Delays::draw(rng);
        let (fresh, far_wall_clocks) = (rng.percent(15), rng.percent(20));
        let (worst_clocks, off) = (rng.percent(40), if far_wall_clocks { 3_000_000 } else { 20_000 });
        // Two clocks that differ by the drift at most: each may be off by this much.
        let most_rate = i64::from(DRIFT_PPM) * 1_000_000 / (2_000_000 + i64::from(DRIFT_PPM));
        let clock = |at: usize, rng: &mut Rng| {
            let is_server = at < servers;
            let rate = if worst_clocks && rng.percent(80) {
                if is_server { most_rate } else { -most_rate }
            } else {
                rng.between(0, 2 * most_rate.cast_unsigned()).cast_signed() - most_rate
            };
            (rate, ERA_US + rng.below(if is_server { 20_000 } else { off }))
        };
        let clocks = (0..servers + clients).map(|at| clock(at, rng)).collect();
        let apart = rng.percent(10).then(|| rng.index(clients));
        let mut planned = if drill { Fault::drill(rng) } else { Fault::plan(rng) };
        let admission = rng.percent(92);
        let quorum = if rng.percent(20) { servers / 2 + 2 } else { servers / 2 + 1 };
        let is_read = rng.percent(40);
        if apart.is_some() {
            planned.extend(Fault::plan_apart(rng));
        }
        // Drawn apart, so that a seed's faults are the same as before.
        let in_order = Rng::new(seed ^ 0x6f72_6465_7200_0000).pick(&[None, Some(1), Some(1), Some(2)]);
        let has_operator = Rng::new(seed ^ 0x7461_6b65_6e00_0000).percent(8);
        Self {
            seed,
            servers,
            clients,
            users,
            ttl: Duration::from_millis(ttl_ms),
            max_ttl: Duration::from_millis(max_ttl_ms),
            instance_timeout: Duration::from_millis(instance_timeout),
            chaos: Duration::from_millis(chaos),
            delays,
            fresh,
            far_wall_clocks,
            clocks,
            admission,
            quorum,
            is_read,
            apart,
            in_order,
            has_operator,
            plan: plan.map_or(planned, <[Fault]>::to_vec),
        }
    }

    /// A source of chance for one part of the run, whatever the others draw.
    pub(crate) fn rng(&self, part: Part) -> Rng {
        let part = match part {
            Part::Server(index) => 1_000 + index,
            Part::Link(client, server) => 2_000 + 100 * client + server,
            Part::User(index) => 10_000 + index,
            Part::Operator => 20_000,
        };
        Rng::new(self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (part as u64) << 40)
    }
}

/// What draws by chance on its own.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    Server(usize),
    Link(usize, usize),
    User(usize),
    Operator,
}
