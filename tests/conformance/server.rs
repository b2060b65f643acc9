//! A real server, on which every sequence is carried out in several ways side by side.

use std::vec::IntoIter;

use redis::{Cmd, Connection, ConnectionLike, Value as Wire};
use redquorum::testing::conformance::{Ask, Content, Store, TOKENS, Write, load, writes};
use redquorum::testing::protocol::{AdmissionRecord, RawReply};
use redquorum_testkit::Server;

use crate::generate::{Key, Step};

/// Where the scripts look for the record.
const ADMISSION_KEY: &str = "redquorum:admission";

/// TYPE, GET and PTTL of every key; of a lock's token its score.
const LOOK: &str = "
local seen = {}
for i, key in ipairs(KEYS) do
  local score = ARGV[i] == 'token' and redis.call('ZSCORE', '{tokens}', key)
  local kind = redis.call('TYPE', key).ok
  seen[i] = {kind, kind == 'string' and redis.call('GET', key) or '', redis.call('PTTL', key)}
  if kind == 'zset' then
    seen[i][4] = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  end
  if ARGV[i] == 'token' then
    seen[i] = {score and 'string' or 'none', score or '', -1}
  end
end
return seen";

/// How the scripts are run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Execution {
    pub(crate) name: &'static str,
    together: bool,
}

/// All ways; they must not differ in anything.
pub(crate) const fn executions() -> [Execution; 2] {
    [Execution { name: "one-by-one", together: false }, Execution { name: "together", together: true }]
}

impl Execution {
    /// Begins the keys of a sequence.
    pub(crate) fn namespace(&self, sequence: usize) -> String {
        format!("{}:{sequence}:", self.name)
    }

    /// An error ends a whole script; where there is one, requests are sent one by one.
    fn writes(&self, namespace: &str, asks: &[Ask], all_end: bool) -> Vec<Write> {
        let at_once = if self.together && all_end { asks.len().max(1) } else { 1 };
        asks.chunks(at_once).flat_map(|asks| writes(namespace, asks, false).unwrap()).collect()
    }

    /// The commands of a step. `all_end` says that no request of it ends with an error.
    pub(crate) fn commands(&self, step: &Step, all_end: bool, namespace: &str) -> Vec<Cmd> {
        let set = |key: &Key, value: &str| {
            let mut cmd = redis::cmd("SET");
            cmd.arg(key.within(namespace)).arg(value);
            cmd
        };
        match step {
            Step::Asks(asks, record) => {
                let writes = self.writes(namespace, asks, all_end);
                writes
                    .iter()
                    .flat_map(|write| write.commands(record.as_ref()).cmd_iter().cloned().collect::<Vec<_>>())
                    .collect()
            }
            Step::SetIfAbsent(key, value, ttl) => {
                let mut cmd = set(key, value);
                cmd.arg("NX").arg("PX").arg(ttl.as_millis().to_string());
                vec![cmd]
            }
            Step::Set(key, value) => vec![set(key, value)],
            Step::SetToken(name, score) => {
                vec![redis::cmd("ZADD").arg(TOKENS).arg(score).arg(format!("{namespace}{name}")).to_owned()]
            }
            Step::RemoveToken(name) => {
                vec![redis::cmd("ZREM").arg(TOKENS).arg(format!("{namespace}{name}")).to_owned()]
            }
            Step::OtherType(key) => {
                let key = key.within(namespace);
                vec![redis::cmd("DEL").arg(&key).to_owned(), redis::cmd("RPUSH").arg(&key).arg("x").to_owned()]
            }
            Step::OtherSet(key, member) => {
                let key = key.within(namespace);
                let add = redis::cmd("ZADD").arg(&key).arg(7).arg(member).to_owned();
                vec![redis::cmd("DEL").arg(&key).to_owned(), add]
            }
            Step::Delete(key) => vec![redis::cmd("DEL").arg(key.within(namespace)).to_owned()],
            Step::Persist(key) => vec![redis::cmd("PERSIST").arg(key.within(namespace)).to_owned()],
            Step::Expire(key, ttl) => {
                vec![redis::cmd("PEXPIRE").arg(key.within(namespace)).arg(ttl.as_millis().to_string()).to_owned()]
            }
        }
    }

    /// What the answers to `commands` mean for the requests of a step.
    pub(crate) fn raws(
        &self,
        asks: &[Ask],
        record: Option<&AdmissionRecord>,
        all_end: bool,
        answers: &mut IntoIter<Wire>,
    ) -> Vec<RawReply> {
        let replies = |write: &Write| {
            let count = write.commands(record).len();
            write.replies(record, answers.by_ref().take(count).collect())
        };
        self.writes("", asks, all_end).iter().flat_map(replies).collect()
    }
}

/// A server with one connection.
pub(crate) struct Real {
    pub(crate) server: Server,
    connection: Connection,
}

impl Real {
    pub(crate) fn start(server: Server) -> Self {
        let connection = redis::Client::open(server.address()).unwrap().get_connection().unwrap();
        let mut real = Self { server, connection };
        load().exec(&mut real.connection).unwrap();
        real
    }

    /// Empties it and writes the record, if there is one.
    pub(crate) fn reset(&mut self, record: Option<&AdmissionRecord>) {
        redis::cmd("FLUSHALL").exec(&mut self.connection).unwrap();
        if let Some(record) = record {
            redis::cmd("SET").arg(ADMISSION_KEY).arg(record.to_wire()).exec(&mut self.connection).unwrap();
        }
    }

    /// Sends all commands at once and waits for all answers.
    pub(crate) fn send(&mut self, commands: &[Cmd]) -> IntoIter<Wire> {
        let packed: Vec<u8> = commands.iter().flat_map(Cmd::get_packed_command).collect();
        self.connection.req_packed_commands(&packed, 0, commands.len()).unwrap().into_iter()
    }

    /// What is under the keys of each namespace, in the order of `Key::all`.
    pub(crate) fn look(&mut self, namespaces: &[String]) -> Vec<Vec<Content>> {
        let look = |namespace: &String| {
            let keys: Vec<String> = Key::all().map(|key| key.within(namespace)).collect();
            let kinds: Vec<&str> =
                Key::all().map(|key| if matches!(key, Key::Fence(_)) { "token" } else { "" }).collect();
            redis::cmd("EVAL").arg(LOOK.replace("{tokens}", TOKENS)).arg(keys.len()).arg(keys).arg(kinds).to_owned()
        };
        let commands: Vec<Cmd> = namespaces.iter().map(look).collect();
        self.send(&commands).map(contents).collect()
    }

    /// How many keys and tokens there are, the record left out.
    pub(crate) fn count(&mut self) -> usize {
        let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut self.connection).unwrap();
        let tokens: usize = redis::cmd("ZCARD").arg(TOKENS).query(&mut self.connection).unwrap();
        tokens + keys.iter().filter(|key| ![ADMISSION_KEY, TOKENS].contains(&key.as_str())).count()
    }
}

/// Mirrors what `reset` writes.
pub(crate) fn write_record(store: &mut Store, record: &AdmissionRecord) {
    store.set(ADMISSION_KEY.as_bytes(), record.to_wire().as_bytes(), None);
}

fn contents(seen: Wire) -> Vec<Content> {
    let Wire::Array(seen) = seen else { panic!("{seen:?}") };
    let content = |key: Wire| {
        let mut parts: Vec<Wire> = redis::from_redis_value(key).unwrap();
        let members: Vec<(Vec<u8>, f64)> = match parts.len() {
            4 => redis::from_redis_value(parts.remove(3)).unwrap(),
            _ => Vec::new(),
        };
        let (kind, text, ttl_ms): (String, Vec<u8>, i64) = redis::from_redis_value(Wire::Array(parts)).unwrap();
        let ttl = u64::try_from(ttl_ms).ok().map(std::time::Duration::from_millis);
        match kind.as_str() {
            "none" => Content::Nothing,
            "string" => Content::Text(text, ttl),
            "zset" => Content::Scores(members, ttl),
            _ => Content::OtherType,
        }
    };
    seen.into_iter().map(content).collect()
}
