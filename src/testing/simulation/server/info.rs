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
    /// How often all data was thrown away by a command.
    pub(super) flushes: u64,
}

impl Process {
    pub(super) fn begin(ids: &mut Ids) -> Self {
        let (run_id, replication_id) = (ids.next(), ids.next());
        Self { is_master: true, run_id, replication_id, flushes: 0 }
    }

    /// It has followed another master, and follows it no more.
    pub(super) fn end_replication(&mut self, ids: &mut Ids) {
        self.replication_id = ids.next();
    }

    /// One section of INFO.
    pub(super) fn section(&self, name: &[u8]) -> Answer {
        let mut text = String::new();
        // Writing to a text does not fail.
        let _ = match name {
            b"server" => {
                let head = format!("# Server\r\nredis_version:{VERSION}\r\nredis_mode:standalone\r\n");
                write!(text, "{head}run_id:{}\r\n", self.run_id)
            }
            b"replication" => {
                let role = if self.is_master { "master" } else { "slave" };
                write!(text, "# Replication\r\nrole:{role}\r\nmaster_replid:{}\r\n", self.replication_id)
            }
            b"commandstats" if self.flushes > 0 => {
                write!(text, "# Commandstats\r\ncmdstat_flushall:calls={},usec=1\r\n", self.flushes)
            }
            b"memory" => write!(text, "# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n"),
            _ => Ok(()),
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
