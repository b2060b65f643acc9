//! What a seed decides before the run begins.

use std::time::Duration;

use crate::faults::{Fault, FaultKind};
use crate::rng::Rng;

/// About what wall clocks read when a run begins.
const ERA_US: u64 = 1_750_000_000_000_000;

const TWO_DAYS_US: u64 = 2 * 24 * 60 * 60 * 1_000_000;

/// So far behind a client still proposes tokens by its own clock.
const BEHIND_US: i64 = 900_000;

/// By so much clocks of clients and servers are off that follow no other.
const FAR_OFF_US: i64 = 10 * 60 * 1_000_000;

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
    /// The servers are new: they have no records.
    pub(crate) fresh: bool,
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
    /// The steps in which wall clocks of clients are read: tokens of several may then be the same.
    pub(crate) grain_us: u64,
    /// Clients are told of changes; otherwise tracking is denied.
    pub(crate) pushes: bool,
    /// A client that asks and waits for less than the others is there as well.
    pub(crate) has_left_behind: bool,
    /// A user takes locks away by force.
    pub(crate) has_operator: bool,
    /// Each client has one user, who only tries, one lock after the other, and waits for every answer.
    pub(crate) is_steady: bool,
    /// Three servers, two or three clients, two keys, dangerous faults, and nothing else.
    pub(crate) is_narrow: bool,
    /// The same servers, clients and faults, with users who read, write, take permits and lead.
    pub(crate) is_together: bool,
    /// Of these, one whose users move leases, and crash.
    pub(crate) is_moved: bool,
    /// Of those, one whose clients have two longest ttls, beside an operator who changes the records.
    pub(crate) is_operated: bool,
    /// One user, whose links are cut one after the other, or whose servers are full.
    pub(crate) is_cut: bool,
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

    fn draw_narrow(rng: &mut Rng) -> Self {
        match rng.below(4) {
            0 => Self { least: 0, most: 0, ..Self::CALM },
            1 => Self { least: 0, most: 1, ..Self::CALM },
            2 => Self { least: 1, most: 5, ..Self::CALM },
            _ => Self { least: 0, most: 3, slow_permille: 20, slow: 100 },
        }
    }
}

/// Two clocks that differ by the drift at most: each may be off by this much.
fn most_rate() -> i64 {
    i64::from(DRIFT_PPM) * 1_000_000 / (2_000_000 + i64::from(DRIFT_PPM))
}

/// Seeds from here on are of the narrow mode; people read and write them as `n0`, `n1` ..
pub(crate) const NARROW: u64 = 1 << 62;

/// The same of the mode for what several have together; `t0`, `t1` ..
pub(crate) const TOGETHER: u64 = 1 << 63;

/// The same of the mode for leases that are moved; `m0`, `m1` ..
pub(crate) const MOVED: u64 = TOGETHER | NARROW;

/// The same of the mode in which links are cut; `c0`, `c1` ..
pub(crate) const CUT: u64 = MOVED | 1 << 61;

/// The same of the mode in which tokens are forgotten, by clocks that are apart; `f0`, `f1` ..
pub(crate) const FORGETFUL: u64 = CUT | 1 << 60;

/// A seed as people read it.
pub(crate) fn seed_name(seed: u64) -> String {
    match seed {
        FORGETFUL.. => format!("f{}", seed - FORGETFUL),
        CUT.. => format!("c{}", seed - CUT),
        MOVED.. => format!("m{}", seed - MOVED),
        TOGETHER.. => format!("t{}", seed - TOGETHER),
        NARROW.. => format!("n{}", seed - NARROW),
        _ => seed.to_string(),
    }
}

/// A seed as people write it.
pub(crate) fn seed_of(name: &str) -> Option<u64> {
    let number = |name: &str| name.parse::<u64>().ok();
    let modes = [('n', NARROW), ('t', TOGETHER), ('m', MOVED), ('c', CUT), ('f', FORGETFUL)];
    let of_mode = |(letter, base)| Some(base + number(name.strip_prefix(letter)?)?);
    modes.into_iter().find_map(of_mode).or_else(|| number(name))
}

impl Scenario {
    /// An operator opens the new servers before there is a client.
    pub(crate) const fn is_opened_first(&self) -> bool {
        self.fresh && self.is_operated && self.seed.is_multiple_of(2)
    }

    /// The scenario of a seed, with the faults that the seed plans or those that are given.
    pub(crate) fn new(seed: u64, plan: Option<&[Fault]>) -> Self {
        match seed {
            FORGETFUL.. => Self::forgetful(seed, plan),
            CUT.. => Self::cut(seed, plan),
            TOGETHER.. => Self::together(seed, plan),
            NARROW.. => Self::narrow(seed, plan),
            _ => Self::rich(seed, plan),
        }
    }

    fn rich(seed: u64, plan: Option<&[Fault]>) -> Self {
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
        let most_rate = most_rate();
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
        planned.extend(Fault::flushes_elsewhere_in(10, &mut Rng::new(seed ^ 0x656c_7365_0000_0000)));
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
            clocks,
            admission,
            quorum,
            is_read,
            apart,
            in_order,
            grain_us: 1,
            pushes: true,
            has_left_behind: admission && !fresh && Rng::new(seed ^ 0x6c65_6674_0000_0000).percent(8),
            has_operator,
            is_steady: false,
            is_narrow: false,
            is_together: false,
            is_moved: false,
            is_operated: false,
            is_cut: false,
            plan: plan.map_or(planned, <[Fault]>::to_vec),
        }
    }

    /// The scenario of a seed of the mode for what several have together: a narrow one, until all is well again.
    fn together(seed: u64, plan: Option<&[Fault]>) -> Self {
        let mut narrow = Self::narrow(seed, plan);
        // Behind a token that nobody follows nobody gets in, until clocks come near it.
        narrow.plan.retain(|fault| fault.what != FaultKind::OddToken);
        // Nor by a clock that is days off.
        narrow.clocks.iter_mut().for_each(|(_, wall_us)| *wall_us = ERA_US.max(*wall_us));
        let rng = &mut Rng::new(seed ^ 0x746f_6765_7468_6572);
        let (is_moved, apart) = (seed >= MOVED, &mut Rng::new(seed ^ 0x6d6f_7665_0000_0000));
        let (is_operated, is_fresh, is_denied) = (apart.percent(25), apart.percent(30), apart.percent(30));
        let is_operated = is_moved && is_operated;
        if is_moved && is_denied && plan.is_none() {
            narrow.plan.extend(Fault::denials(apart));
        }
        Self {
            users: narrow.clients + rng.index(3),
            max_ttl: if is_operated { narrow.ttl * 2 } else { narrow.max_ttl },
            fresh: is_operated && is_fresh,
            chaos: narrow.ttl * if is_operated { 8 } else { 4 },
            in_order: rng.pick(&[None, Some(1), Some(1)]),
            has_left_behind: false,
            is_steady: false,
            is_narrow: false,
            is_together: true,
            is_moved,
            is_operated,
            ..narrow
        }
    }

    /// The scenario of a seed of the mode in which the links of a client are cut, and nothing else happens.
    fn cut(seed: u64, plan: Option<&[Fault]>) -> Self {
        let narrow = Self::narrow(seed, plan);
        let rng = &mut Rng::new(seed);
        let cuts = if seed.is_multiple_of(4) { Fault::full(rng) } else { Fault::cuts(rng) };
        Self {
            users: 1,
            chaos: narrow.ttl * 8,
            delays: Delays::CALM,
            clocks: narrow.clocks.iter().map(|_| (0, ERA_US)).collect(),
            has_left_behind: false,
            is_steady: false,
            is_cut: true,
            plan: plan.map_or(cuts, <[Fault]>::to_vec),
            ..narrow
        }
    }

    /// The scenario of a seed of the mode in which tokens are forgotten: a narrow one, with clocks of clients that are behind or far
    /// off, and in some with a server's that is.
    fn forgetful(seed: u64, plan: Option<&[Fault]>) -> Self {
        let rng = &mut Rng::new(seed ^ 0x666f_7267_6574_6675);
        let narrow = Self::narrow(seed, plan);
        let mut planned = if rng.percent(60) { narrow.plan.clone() } else { Vec::new() };
        planned.retain(|fault| fault.what != FaultKind::OddToken);
        planned.extend(Fault::forgets(rng));
        let mut clocks: Vec<_> = narrow.clocks.iter().map(|(rate, _)| (*rate, ERA_US + rng.below(20_000))).collect();
        if rng.percent(30) {
            clocks[0].1 = clocks[0].1.saturating_add_signed(rng.pick(&[-FAR_OFF_US, FAR_OFF_US]));
        }
        let is_lost = rng.percent(25);
        if is_lost {
            planned = Fault::lost_token(rng);
        }
        for (_, wall_us) in clocks.iter_mut().skip(narrow.servers) {
            let off_us: &[i64] = if is_lost { &[0, -BEHIND_US] } else { &[0, -BEHIND_US, -FAR_OFF_US, FAR_OFF_US] };
            *wall_us = wall_us.saturating_add_signed(rng.pick(off_us));
        }
        let chaos = if is_lost { narrow.ttl * 4 } else { narrow.chaos };
        // Who follows which token of one server alone depends on whose clock is off.
        Self { is_steady: false, chaos, clocks, plan: plan.map_or(planned, <[Fault]>::to_vec), ..narrow }
    }

    /// The scenario of a seed of the narrow mode.
    fn narrow(seed: u64, plan: Option<&[Fault]>) -> Self {
        let rng = &mut Rng::new(seed);
        let (servers, clients) = (3, rng.pick(&[2, 2, 3]));
        let users = clients + rng.index(2);
        // Drawn apart, so that the rest of a seed is the same as before.
        let apart = |part: u64| Rng::new(seed ^ part << 32);
        let (is_steady, is_crowded) = (apart(6).percent(12), apart(7).percent(2));
        let users = if is_steady {
            clients
        } else if is_crowded {
            clients * 6
        } else {
            users
        };
        let ttl = Duration::from_millis(rng.pick(&[200, 200, 300]));
        // In some a key outlives by far what it takes to release it.
        let ttl = if apart(5).percent(6) { ttl * 5 } else { ttl };
        let delays = Delays::draw_narrow(rng);
        let (worst, most_apart) = (rng.percent(60), rng.pick(&[1, 20_000, 20_000]));
        let clock = |at: usize, rng: &mut Rng| {
            let rate = if at < servers { most_rate() } else { -most_rate() };
            (if worst { rate } else { 0 }, ERA_US + rng.below(most_apart))
        };
        let mut clocks: Vec<(i64, u64)> = (0..servers + clients).map(|at| clock(at, rng)).collect();
        if apart(8).percent(2) {
            clocks[0].1 -= TWO_DAYS_US; // no token of the others can be made by it
        }
        let mut planned = Fault::narrow(rng);
        let in_order = rng.pick(&[None, None, Some(1)]);
        let grain_us = if apart(1).percent(20) { 10_000 } else { 1 };
        let pushes = apart(2).percent(75);
        if !pushes {
            // Data that is replaced while its process runs on may go unnoticed then, as `docs/safety.md` says.
            planned.retain(|fault| !matches!(fault.what, FaultKind::Restore | FaultKind::Resynchronise));
        }
        if apart(3).percent(10) {
            planned.extend(Fault::breaks(&mut apart(4)));
        }
        if apart(9).percent(25) {
            planned.extend(Fault::further_drill(&mut apart(10)));
            planned.retain(|fault| pushes || fault.what != FaultKind::LoadNothing);
        }
        let is_elsewhere = pushes && apart(11).percent(15);
        planned.extend(is_elsewhere.then(|| Fault::flushes_elsewhere(&mut apart(12))).into_iter().flatten());
        Self {
            seed,
            servers,
            clients,
            users,
            ttl,
            max_ttl: ttl,
            instance_timeout: ttl.min(Duration::from_millis(300)) / rng.pick(&[3, 5, 10]),
            chaos: ttl * 5 / 2,
            delays,
            fresh: false,
            clocks,
            admission: true,
            quorum: 2,
            is_read: true,
            apart: None,
            in_order,
            grain_us,
            pushes,
            has_left_behind: apart(13).percent(8),
            has_operator: false,
            is_steady,
            is_narrow: true,
            is_together: false,
            is_moved: false,
            is_operated: false,
            is_cut: false,
            plan: plan.map_or(planned, <[Fault]>::to_vec),
        }
    }

    /// The longest ttl that a client asks for: some ask for less than the others may, and all have instances wait for the longest (P29).
    pub(crate) const fn longest_of(&self, client: usize) -> Duration {
        if client % 2 == 1 { self.ttl } else { self.max_ttl }
    }

    /// A source of chance for one part of the run, whatever the others draw.
    pub(crate) fn rng(&self, part: Part) -> Rng {
        let part = match part {
            Part::Server(index) => 1_000 + index,
            Part::Link(client, server) => 2_000 + 100 * client + server,
            Part::User(index) => 10_000 + index,
            Part::Operator => 20_000,
            Part::Crowd => 20_001,
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
    Crowd,
}
