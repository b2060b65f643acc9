//! The servers in the process answer plain commands and the library's scripts as real ones do: those of `tests/world`, which run the scripts, and
//! those of `testing::Cluster`, which run their mirror.

use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::StdRng;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, RedisConnectionInfo, Value as Wire};
use redquorum::testing::conformance::{Admission, admit, load};
use redquorum::testing::protocol::{AdmissionRecord, ProcessIdentity, RecordOrigin};
use redquorum::testing::simulation::{MachineClock, Server as Simulated};
use redquorum_testkit::{Program, Server};
use tokio::runtime::{Builder, Runtime};

use crate::generate::{Generator, Step};
use crate::lua;
use crate::model::wall_us;
use crate::server::{Execution, Real, executions};

const SEQUENCES: usize = 1_000;
const HOUR_MS: u64 = 3_600_000;

/// By how much times may differ, in whatever unit they are.
const MOST: i64 = 5_000_000;

/// Numbers from here on are instants; from `LEAST_TTL` on they are what is left of a ttl.
const LEAST_INSTANT: i64 = 100_000_000_000;
const LEAST_TTL: i64 = 500;

/// A connection to a simulated server, in a runtime of its own.
struct Peer {
    runtime: Runtime,
    connection: MultiplexedConnection,
    server: Simulated,
}

impl Peer {
    fn new(runs_scripts: bool) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let (connection, server) = runtime.block_on(async {
            let clock = MachineClock::new(tokio::time::Instant::now(), wall_us(), 0);
            let server = Simulated::new(0, Arc::new(clock));
            if runs_scripts {
                server.run_scripts_by(lua::run);
            }
            let (ours, theirs) = tokio::io::duplex(1 << 20);
            let served = server.clone();
            tokio::spawn(async move { served.serve(theirs).await });
            let config = AsyncConnectionConfig::new();
            let info = RedisConnectionInfo::default();
            let login = MultiplexedConnection::new_with_config(&info, ours, config).await;
            let (connection, driver) = login.unwrap();
            tokio::spawn(driver);
            (connection, server)
        });
        let mut peer = Self { runtime, connection, server };
        peer.runtime.block_on(load().exec_async(&mut peer.connection)).unwrap();
        peer
    }

    fn send(&mut self, commands: &[Cmd]) -> Vec<Wire> {
        let Self { runtime, connection, .. } = self;
        let mut send = |command| runtime.block_on(connection.send_packed_command(command)).unwrap();
        commands.iter().map(&mut send).collect()
    }
}

fn same(one: &Wire, other: &Wire) -> bool {
    match (one, other) {
        (Wire::Array(ones), Wire::Array(others)) => {
            ones.len() == others.len() && ones.iter().zip(others).all(|(one, other)| same(one, other))
        }
        (Wire::Int(one), Wire::Int(other)) => {
            let near = one.abs_diff(*other) < if *one >= LEAST_INSTANT { MOST.unsigned_abs() } else { 1_000 };
            one == other || (*one.min(other) >= LEAST_TTL && near)
        }
        (Wire::ServerError(one), Wire::ServerError(other)) => one.code() == other.code(),
        _ => one == other,
    }
}

/// The commands of a sequence, with the record that both have.
fn commands(rng: &mut StdRng, recorded: &AdmissionRecord, execution: &Execution, sequence: usize) -> Vec<Cmd> {
    let namespace = execution.namespace(sequence);
    let steps = Generator { rng, recorded: recorded.clone() }.steps();
    let asks = steps.iter().filter(|step| matches!(step, Step::Asks(..)));
    asks.flat_map(|step| execution.commands(step, true, &namespace)).collect()
}

#[test]
fn simulated_servers_answer_as_real_ones_do() {
    let seed = std::env::var("REDQUORUM_SEED").ok().map_or_else(rand::random, |seed| seed.parse().unwrap());
    println!("REDQUORUM_SEED={seed}");
    let executions = executions();
    for program in Program::all_required().unwrap() {
        let mut rng = StdRng::seed_from_u64(seed);
        let (mut real, mut peers) = (Real::start(Server::start(&program).unwrap()), [true, false].map(Peer::new));
        let identity = ProcessIdentity::new("run", "replication");
        let vote_from_ms = wall_us() / 1_000 + HOUR_MS;
        let longest_ttl_ms = 10_000;
        let (origin, order) = (RecordOrigin::Waits, vote_from_ms);
        let admission = Admission {
            found: Vec::new(),
            identity: identity.clone(),
            longest_ttl_ms,
            origin,
            vote_from_ms,
            wait_ms: None,
            order,
            floor_us: (0, 0),
        };
        let recorded = AdmissionRecord { identity, vote_from_ms, longest_ttl_ms, origin, order };
        let mut all = vec![admit(&admission)];
        all.extend((0..SEQUENCES).flat_map(|at| commands(&mut rng, &recorded, &executions[at % executions.len()], at)));
        assert!(all.len() > 2 * SEQUENCES, "too few commands: {}", all.len());
        // A few to the one and the same to the other, so that they come at about the same time.
        for part in all.chunks(8) {
            let (expected, found) = (real.send(part).collect::<Vec<_>>(), peers.each_mut().map(|peer| peer.send(part)));
            for (command, at) in part.iter().zip(0..) {
                let told = || String::from_utf8_lossy(&command.get_packed_command()).replace("\r\n", " ");
                let answers = [&expected[at], &found[0][at], &found[1][at]];
                let are_same = found.iter().all(|found| same(&expected[at], &found[at]));
                assert!(are_same, "{program:?}: a real one, the scripts, the mirror: {answers:?} to {}", told());
            }
        }
        peers.iter().for_each(|peer| assert_eq!(peer.server.odd_commands(), [""; 0]));
    }
}
