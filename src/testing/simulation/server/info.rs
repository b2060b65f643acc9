//! What a server says of itself.

use std::fmt::Write;

use super::resp::Answer;
use crate::random::seeded;

/// The version of Redis that it is like.
const VERSION: &str = "7.2.4";

/// One life of a server.
#[derive(Clone, Debug)]
pub(super) struct Process {
    pub(super) is_master: bool,
    pub(super) run_id: String,
    pub(super) replication_id: String,
    /// That of the master that it followed before it became one, zeros if none.
    pub(super) former_replication_id: String,
    /// Its wall clock when it began, in seconds, as servers count: a step of the clock changes it.
    pub(super) began_s: u64,
    /// How often all data was thrown away by a command.
    pub(super) flushes: u64,
}

impl Process {
    pub(super) fn begin(ids: &mut Ids, wall_us: u64) -> Self {
        let (run_id, replication_id) = (ids.next(), ids.next());
        let former_replication_id = "0".repeat(40);
        let began_s = wall_us / 1_000_000;
        Self { is_master: true, run_id, replication_id, former_replication_id, began_s, flushes: 0 }
    }

    /// It has followed another master, and follows it no more.
    pub(super) fn end_replication(&mut self, ids: &mut Ids) {
        self.former_replication_id = std::mem::replace(&mut self.replication_id, ids.next());
    }

    /// One section of INFO.
    pub(super) fn section(&self, name: &[u8], wall_us: u64) -> Answer {
        let mut text = String::new();
        // Writing to a text does not fail.
        let _ = match name {
            b"server" => {
                let uptime_s = (wall_us / 1_000_000).saturating_sub(self.began_s);
                let head = format!("# Server\r\nredis_version:{VERSION}\r\nredis_mode:standalone\r\n");
                write!(text, "{head}run_id:{}\r\nuptime_in_seconds:{uptime_s}\r\n", self.run_id)
            }
            b"replication" => {
                let Self { replication_id: id, former_replication_id: former, .. } = self;
                let role = if self.is_master { "master" } else { "slave" };
                write!(text, "# Replication\r\nrole:{role}\r\nmaster_replid:{id}\r\nmaster_replid2:{former}\r\n")
            }
            b"memory" => write!(text, "# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n"),
            b"commandstats" if self.flushes > 0 => {
                write!(text, "# Commandstats\r\ncmdstat_flushall:calls={},usec=1\r\n", self.flushes)
            }
            _ => write!(text, "# Commandstats\r\n"),
        };
        Answer::Text(text)
    }

    /// The answer to HELLO.
    pub(super) fn hello(&self, session: u64, is_resp3: bool) -> Answer {
        Answer::Map(vec![
            ("server", Answer::bytes("redis")),
            ("version", Answer::bytes(VERSION)),
            ("proto", Answer::Number(if is_resp3 { 3 } else { 2 })),
            ("id", Answer::number(session)),
            ("mode", Answer::bytes("standalone")),
            ("role", Answer::bytes(if self.is_master { "master" } else { "replica" })),
            ("modules", Answer::List(Vec::new())),
        ])
    }
}

/// Ids of 40 hexadecimal digits, always the same ones for the same seed.
#[derive(Clone, Debug)]
pub(super) struct Ids(pub(super) u64);

impl Ids {
    fn next(&mut self) -> String {
        let mut draw = || seeded::draw(&mut self.0);
        format!("{:016x}{:016x}{:08x}", draw(), draw(), draw() >> 32)
    }
}
