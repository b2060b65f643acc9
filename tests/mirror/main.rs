//! The scripts against their mirror, which `testing::Cluster` runs: the same random sequences of requests, on two servers in the process
//! whose clocks agree, must get the same replies and leave the same data.
//!
//! `REDQUORUM_SEED=<number>` repeats one sequence.
#![expect(clippy::panic, reason = "a difference is shown with all that led to it")]
#![expect(clippy::expect_used, reason = "test code")]

#[path = "../shared/lua.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod lua;
#[path = "../shared/rng.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod rng;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value as Wire, parse_redis_value};
use redquorum::FencingToken;
use redquorum::testing::conformance::{Admission, Ask, Kind, TOKENS, admit, forget_tokens, load, open, rights, writes};
use redquorum::testing::protocol::{AdmissionRecord, ProcessIdentity, RecordOrigin};
use redquorum::testing::simulation::{Data, Denial, MachineClock, Server};
use rng::Rng;

/// How many sequences are compared, and at length.
const SEQUENCES: u64 = 20_000;
const MOST_SEQUENCES: u64 = 1_000_000;

/// What the servers' clocks show at the beginning of a sequence, in microseconds.
const WALL_US: u64 = 1_750_000_000_000_123;
const DAY_US: u64 = 24 * 3_600_000_000;

const KEYS: [&str; 3] = ["a", "b", "c"];

/// Two servers with the same past: one runs the scripts, the other one their mirror.
struct Pair {
    scripts: Server,
    mirror: Server,
    wall_us: u64,
    told: Vec<String>,
}

impl Pair {
    fn new() -> Self {
        let server = || Server::new(0, Arc::new(MachineClock::driven_by(|| Duration::ZERO, WALL_US, 0)));
        let mut pair = Self { scripts: server(), mirror: server(), wall_us: WALL_US, told: Vec::new() };
        pair.scripts.run_scripts_by(lua::run);
        load().cmd_iter().for_each(|command| drop(pair.carry_out(command)));
        pair
    }

    fn begin(&mut self) {
        self.told.clear();
        for server in [&self.scripts, &self.mirror] {
            server.restore(Data::Nothing); // no flush, which shows a use
            server.deny(None);
        }
    }

    /// From now on memory is full, or no more.
    fn fill(&mut self, is_full: bool) {
        self.told.push(format!("full {is_full}"));
        let denial = is_full.then_some(Denial::Memory);
        [&self.scripts, &self.mirror].into_iter().for_each(|server| server.deny(denial));
    }

    fn pass(&mut self, by_us: u64) {
        self.told.push(format!("{by_us} us later"));
        self.wall_us += by_us;
        let by = i64::try_from(by_us).unwrap_or(0);
        [&self.scripts, &self.mirror].into_iter().for_each(|server| server.clock().step_us(by));
    }

    /// What both answer.
    fn carry_out(&mut self, command: &Cmd) -> [Wire; 2] {
        let words: Vec<Vec<u8>> = command.args_iter().filter_map(word).collect();
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        [&self.scripts, &self.mirror].map(|server| parse_redis_value(&server.answer(&words)).unwrap_or(Wire::Nil))
    }

    fn plain(&mut self, words: &[&str]) {
        self.told.push(words.join(" "));
        let mut command = Cmd::new();
        words.iter().for_each(|word| _ = command.arg(*word));
        let [one, other] = self.carry_out(&command);
        assert_eq!(one, other);
    }

    /// Both answer the same, to what is not read by a client.
    fn same(&mut self, what: String, command: &Cmd) {
        self.told.push(what);
        let [scripts, mirror] = self.carry_out(command);
        assert!(scripts == mirror, "{scripts:?} by the script, {mirror:?} by its mirror\n{}", self.told.join("\n"));
        self.compare();
    }

    fn ask(&mut self, asks: &[Ask], record: Option<&AdmissionRecord>) {
        self.told.push(format!("{asks:?} {record:?}"));
        for write in writes("", asks, false).expect("names that can be locked") {
            let commands = write.commands(record);
            let answers = commands.cmd_iter().map(|command| <(Wire, Wire)>::from(self.carry_out(command)));
            let (scripts, mirror): (Vec<Wire>, Vec<Wire>) = answers.unzip();
            let [scripts, mirror] = [scripts, mirror].map(|answers| write.replies(record, answers));
            assert!(scripts == mirror, "{scripts:?} by the script, {mirror:?} by its mirror\n{}", self.told.join("\n"));
        }
        self.compare();
    }

    fn compare(&self) {
        if let Some(difference) = self.scripts.difference(&self.mirror) {
            panic!("by the script and by its mirror, {difference}\n{}", self.told.join("\n"));
        }
    }
}

fn word(arg: redis::Arg<&[u8]>) -> Option<Vec<u8>> {
    match arg {
        redis::Arg::Simple(word) => Some(word.to_vec()),
        _ => None,
    }
}

/// Draws one sequence.
struct Sequence {
    rng: Rng,
    record: AdmissionRecord,
}

impl Sequence {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let now_ms = WALL_US / 1_000;
        let vote_from_ms = [1_000, now_ms, now_ms + 1_500, now_ms + 60_000][at(&mut rng, 4)];
        let identity = ProcessIdentity::new("run", "replication");
        let origin = RecordOrigin::Waits;
        Self { rng, record: AdmissionRecord { identity, vote_from_ms, longest_ttl_ms: 10_000, origin, order: 1 } }
    }

    fn one_of<T: Clone>(&mut self, all: &[T]) -> T {
        all[at(&mut self.rng, all.len())].clone()
    }

    fn run(&mut self, pair: &mut Pair) {
        pair.begin();
        if self.rng.below(5) > 0 {
            pair.plain(&["SET", "redquorum:admission", &self.record.to_wire()]);
        }
        for _ in 0..3 + self.rng.below(10) {
            self.step(pair);
        }
    }

    fn step(&mut self, pair: &mut Pair) {
        let key = self.one_of(&KEYS);
        match self.rng.below(46) {
            0..8 => pair.pass(self.one_of(&[1, 999, 20_000, 200_000, 1_000_000, 2_999_500, 3_000_000, 40_000_000])),
            8 => pair.plain(&["SET", key, self.one_of(&["foreign", "", "a value that is longer"])]),
            9 => pair.plain(&["SET", key, "foreign", "PX", "1000"]),
            10 => pair.plain(&["DEL", key]),
            11 => pair.plain(&["ZADD", key, "7", self.one_of(&["somebody", "redquorum"])]),
            12 | 13 => {
                let score = self.score(pair.wall_us);
                pair.plain(&["ZADD", TOKENS, &score, key]);
            }
            14 => pair.plain(&["ZREM", TOKENS, key]),
            15 | 16 => {
                let floor = self.score(pair.wall_us);
                pair.plain(&["SET", "redquorum:floor", if floor == "inf" { "0" } else { floor.as_str() }]);
            }
            17 => {
                let retention = Duration::from_secs(self.one_of(&[1, 60, 3_600]));
                let wall_us = pair.wall_us + self.one_of(&[0, 5_000_000]) - 1_000_000;
                pair.same(format!("forget {wall_us} {retention:?}"), &forget_tokens(wall_us, retention));
            }
            18 => {
                let admission = self.admission(pair.wall_us);
                pair.same(format!("{admission:?}"), &admit(&admission));
            }
            40 | 41 => {
                let writes = self.rng.below(2) == 0;
                let commands = open(&self.record.identity, 10_000, writes);
                commands.cmd_iter().for_each(|command| pair.same(format!("open {writes}"), command));
            }
            42 => pair.same("rights".to_owned(), &rights()),
            43..46 => pair.fill(self.rng.percent(60)),
            19..24 => {
                let reader = self.asks(pair.wall_us, 1, true);
                pair.ask(&reader, None);
            }
            _ => {
                let (count, reads) = (1 + self.rng.below(3), self.rng.below(5) == 0);
                let asks = self.asks(pair.wall_us, count, reads);
                let record = match self.rng.below(5) {
                    0..2 => None,
                    2 => Some(AdmissionRecord { order: 2, ..self.record.clone() }),
                    _ => Some(self.record.clone()),
                };
                pair.ask(&asks, record.as_ref());
            }
        }
    }

    /// Of a token or a floor, usual or odd.
    fn score(&mut self, wall_us: u64) -> String {
        match self.rng.below(6) {
            0 => "inf".to_owned(),
            1 => self.proposed(wall_us + 2 * DAY_US).to_wire(),
            _ => self.token(wall_us).to_wire(),
        }
    }

    fn proposed(&self, wall_us: u64) -> FencingToken {
        FencingToken::propose(wall_us, None)
    }

    fn token(&mut self, wall_us: u64) -> FencingToken {
        let us = self.one_of(&[WALL_US, WALL_US + 1, WALL_US + 5_000_000, wall_us, wall_us - 1, wall_us - 60_000_000]);
        self.proposed(us)
    }

    /// Requests that go together, of one sort.
    fn asks(&mut self, wall_us: u64, count: u64, reads: bool) -> Vec<Ask> {
        let locks = [Kind::Acquire, Kind::Acquire, Kind::Acquire, Kind::Extend, Kind::Keep, Kind::Release];
        let kinds: &[Kind] = if reads { &[Kind::Read, Kind::Read, Kind::Renew, Kind::Leave] } else { &locks };
        let ask = |sequence: &mut Self| {
            let kind = sequence.one_of(kinds);
            let nonce = u128::from(sequence.rng.below(4));
            let is_ahead = sequence.rng.below(20) == 0;
            let token = if is_ahead { sequence.proposed(wall_us + 2 * DAY_US) } else { sequence.token(wall_us) };
            let waits_since = (kind == Kind::Acquire && sequence.rng.below(2) == 0).then(|| 1 + sequence.rng.below(3));
            let (name, holder, resent) = (sequence.one_of(&KEYS).to_owned(), String::new(), sequence.rng.below(2) == 0);
            let ttl = Duration::from_millis(sequence.one_of(&[1, 20, 200, 1_000, 2_000, 5_000]));
            Ask { kind, name, holder, nonce, token, ttl, waits_since, resent }
        };
        (0..count).map(|_| ask(self)).collect()
    }

    fn admission(&mut self, wall_us: u64) -> Admission {
        let now_ms = wall_us / 1_000;
        let own = self.record.to_wire().into_bytes();
        Admission {
            found: self.one_of(&[own.clone(), own, Vec::new(), b"no string".to_vec()]),
            identity: self.record.identity.clone(),
            longest_ttl_ms: 10_000,
            origin: self.one_of(&[RecordOrigin::Waits, RecordOrigin::Flushed]),
            vote_from_ms: self.one_of(&[1_000, now_ms, now_ms + 5_000]),
            wait_ms: self.one_of(&[None, Some(0), Some(4_000)]),
            order: self.one_of(&[1, now_ms + 1_000]),
            floor_us: (self.one_of(&[0, self.proposed(wall_us).proposed_us()]), self.one_of(&[0, u64::MAX / 4096])),
        }
    }
}

fn at(rng: &mut Rng, size: usize) -> usize {
    usize::try_from(rng.below(size as u64)).unwrap_or(0)
}

#[test]
fn the_scripts_do_what_their_mirror_does() {
    compare(0..SEQUENCES);
}

#[test]
#[ignore = "takes minutes; `make sim` runs it"]
fn the_scripts_do_what_their_mirror_does_a_million_times() {
    compare(SEQUENCES..MOST_SEQUENCES);
}

fn compare(seeds: Range<u64>) {
    let mut pair = Pair::new();
    let one = std::env::var("REDQUORUM_SEED").ok().and_then(|seed| seed.parse::<u64>().ok());
    for seed in one.map_or(seeds, |seed| seed..seed + 1) {
        pair.told = Vec::new();
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| Sequence::new(seed).run(&mut pair)));
        assert!(ran.is_ok(), "repeat it with REDQUORUM_SEED={seed}");
        let back = i64::try_from(pair.wall_us - WALL_US).unwrap_or(0);
        [&pair.scripts, &pair.mirror].into_iter().for_each(|server| server.clock().step_us(-back));
        pair.wall_us = WALL_US;
    }
    assert_eq!(pair.scripts.odd_commands(), [""; 0]);
}
