//! What a seed decides before the run begins.

use redquorum::protocol::{AdmissionTerms, Quorum};

use crate::faults::{Fault, FaultKind};
use crate::mutants::Mutant;
use crate::rng::Rng;

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const DRIFT_PPM: u32 = 10_000;

/// What kind of run it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Everything at once, admission on.
    Chaos,
    /// Admission is off and no instance loses data (P18).
    AdmissionOff,
    /// One renewed lease while every instance is restarted in turn (P10).
    RollingRestart,
    /// Instance clocks are stepped (P17).
    Steps,
}

/// What the instances are when the run begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    Admitted,
    /// Just started, without records.
    Fresh,
    /// Up for long, without records.
    Virgin,
}

/// Which step of a change of the longest ttl is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// Some clients wait for longer already, and nobody asks for more.
    First,
    /// All wait for longer, and some ask for more.
    Second,
}

#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) seed: u64,
    pub(crate) kind: Kind,
    pub(crate) quorum: Quorum,
    pub(crate) clients: usize,
    pub(crate) resources: usize,
    pub(crate) ttl_ms: u64,
    pub(crate) max_ttl_ms: u64,
    /// How long a client waits for an answer, in ns of its clock.
    pub(crate) timeout: u64,
    /// How long chaos lasts, in ns of true time.
    pub(crate) chaos: u64,
    pub(crate) net: Net,
    /// Wall clocks of clients are far apart: order then rests on the stored tokens alone.
    pub(crate) far_wall_clocks: bool,
    /// About what wall clocks read at the beginning of true time.
    pub(crate) era_us: u64,
    pub(crate) start: Start,
    /// Planned faults that are dangerous together; leases are renewed for long.
    pub(crate) drill: bool,
    /// Most instances run as fast as allowed, most clients as slowly.
    pub(crate) worst_clocks: bool,
    /// For how long tokens are kept, in runs in which they are removed (P13); else for ever.
    pub(crate) retention_ms: u64,
    /// Wall clocks of clients show whole ticks, so that tokens are often equal.
    pub(crate) coarse_wall_clocks: bool,
    /// Whether clients have the right to end their former connections (`CLIENT KILL`).
    pub(crate) ends_former: bool,
    /// Clients tell each other that they wait, and releases name who is next (P25, P26).
    pub(crate) succession: bool,
    /// So many instances are gone for good when the faults end.
    pub(crate) hung_at_the_end: usize,
    pub(crate) plan: Vec<Fault>,
    pub(crate) mutant: Option<Mutant>,
}

/// How bad the network is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Net {
    pub(crate) slow_percent: u64,
    pub(crate) tail_permille: u64,
    pub(crate) loss_permille: u64,
    pub(crate) duplicate_permille: u64,
}

impl Scenario {
    /// The scenario of a seed, with the faults that the seed plans or those that are given.
    pub(crate) fn new(seed: u64, plan: Option<&[Fault]>, mutant: Option<Mutant>) -> Self {
        let rng = &mut Rng::new(seed);
        let kind = match rng.below(20) {
            0..2 => Kind::AdmissionOff,
            2 => Kind::RollingRestart,
            3..6 => Kind::Steps,
            _ => Kind::Chaos,
        };
        let drill = kind == Kind::Chaos && rng.percent(12);
        let rolling = kind == Kind::RollingRestart;
        let instances = rng.pick(&[3, 3, 3, 5, 5, 7]);
        let majority = instances / 2 + 1;
        let votes = if rng.percent(20) && !rolling { (majority + 1).min(instances) } else { majority };
        let ttl_ms = rng.pick(&[1000, 3000, 10_000]);
        let max_ttl_ms = if rng.percent(70) { ttl_ms } else { ttl_ms * 2 };
        let clients = if rolling { 1 } else { rng.between(2, 5) };
        let resources = rng.pick(&[1, 1, 1, 2, 3]);
        let (instances, votes, ttl_ms, max_ttl_ms) =
            if drill { (3, 2, 10_000, 10_000) } else { (instances, votes, ttl_ms, max_ttl_ms) };
        let (clients, resources) = if drill { (clients.min(3), 1) } else { (clients, resources) };
        let quorum = Quorum::new(instances, votes).expect("a quorum");
        let chaos = if rolling {
            ttl_ms * MS * 3 * instances as u64 + max_ttl_ms * MS
        } else {
            ttl_ms * MS * rng.between(2, 5)
        };
        let hung = if rng.percent(50) { rng.between(0, (instances - votes) as u64) } else { 0 };
        let timeout = ttl_ms * MS / rng.pick(&[5, 10, 20]);
        let net = Net::draw(rng, rolling || kind == Kind::Steps);
        let far_wall_clocks = rng.percent(50);
        let start = rng.pick(&[Start::Admitted, Start::Admitted, Start::Admitted, Start::Fresh, Start::Virgin]);
        let start = if rolling || kind == Kind::Steps { Start::Admitted } else { start };
        let worst_clocks = rng.percent(40);
        let forgets = rng.percent(30) && !far_wall_clocks && kind == Kind::Chaos && !drill;
        let planned = Fault::plan(rng, kind);
        let planned = if drill { Fault::drill(rng) } else { planned };
        // What a rolling restart promises is promised for instances that are otherwise well.
        let plan = plan.filter(|_| !rolling).map_or(planned, <[Fault]>::to_vec);
        let (clients, hung_at_the_end) = (clients as usize, hung as usize);
        Self {
            seed,
            kind,
            quorum,
            clients,
            resources,
            ttl_ms,
            max_ttl_ms,
            timeout,
            chaos,
            net,
            far_wall_clocks,
            // In 2025, and sometimes so early that tokens have few digits.
            era_us: if far_wall_clocks && seed.is_multiple_of(5) {
                1_735_689_600_000_000
            } else {
                1_750_000_000_000_000
            },
            start,
            drill,
            worst_clocks,
            retention_ms: if forgets { max_ttl_ms / 2 } else { u64::MAX / 2 },
            coarse_wall_clocks: seed % 7 == 3,
            ends_former: seed % 5 < 3,
            succession: seed % 4 == 2 && !rolling,
            hung_at_the_end,
            plan,
            mutant,
        }
    }

    pub(crate) fn instances(&self) -> usize {
        self.quorum.instances()
    }

    pub(crate) fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// Who a client is: the first two are the same holder in some runs (P23).
    pub(crate) fn holder_of(&self, c: usize) -> Option<&'static str> {
        (self.seed.is_multiple_of(3) && c < 2).then_some("me")
    }

    /// What a client asks for at most, and how long it has instances wait. In some runs clients are halfway to another
    /// longest ttl (P29): all wait for the longer time, and some ask for the shorter at most.
    pub(crate) fn terms_of(&self, c: usize) -> AdmissionTerms {
        let longest = AdmissionTerms::of_max_ttl(self.max_ttl_ms);
        match (self.change_of_max_ttl(), c % 3) {
            (Some(Change::First), 0) => AdmissionTerms::of_max_ttl(self.ttl_ms / 2),
            (Some(Change::First), _) => AdmissionTerms { max_ttl_ms: self.ttl_ms / 2, ..longest },
            (Some(Change::Second), 0) => AdmissionTerms { max_ttl_ms: self.ttl_ms / 2, ..longest },
            _ => longest,
        }
    }

    /// Whether clients differ in how long they have instances wait, or in what they ask for.
    pub(crate) fn changes_max_ttl(&self) -> bool {
        self.change_of_max_ttl().is_some()
    }

    fn change_of_max_ttl(&self) -> Option<Change> {
        let may = self.admission() && self.kind != Kind::RollingRestart && !self.drill;
        match self.seed % 16 {
            5 if may => Some(Change::First),
            13 if may => Some(Change::Second),
            _ => None,
        }
    }

    /// Whether clients are told of flushes. Without the right to it they learn of one by its record alone,
    /// which is enough unless an old copy of the data comes back.
    pub(crate) fn tells_flushes(&self) -> bool {
        let restores = self.plan.iter().any(|fault| fault.what == FaultKind::Restore);
        restores || self.seed.is_multiple_of(2)
    }

    pub(crate) fn admission(&self) -> bool {
        self.kind != Kind::AdmissionOff
    }
}

impl Net {
    fn draw(rng: &mut Rng, calm: bool) -> Self {
        if calm || rng.percent(25) {
            return Self::CALM;
        }
        Self {
            slow_percent: rng.pick(&[5, 20, 50]),
            tail_permille: rng.pick(&[0, 5, 30]),
            loss_permille: rng.pick(&[0, 2, 20]),
            duplicate_permille: rng.pick(&[0, 5, 50]),
        }
    }

    pub(crate) const CALM: Self = Self { slow_percent: 0, tail_permille: 0, loss_permille: 0, duplicate_permille: 0 };
}
