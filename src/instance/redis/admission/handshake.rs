//! Admission over one connection: read the instance's record, apply the rule, write the record if
//! the rule asks for it (P15).

use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, RedisResult, Value};

use super::server_info::{ServerInfo, ServerReport};
use crate::clock::Clock;
use crate::instance::redis::classify::failed;
use crate::instance::redis::flushes::FlushCount;
use crate::instance::redis::forget_tokens::LONG_NAME;
use crate::instance::redis::health::InstanceHealth;
use crate::instance::redis::scripts::Scripts;
use crate::instance::redis::scripts::command::RecordWrite;
use crate::protocol::{
    AdmissionRecord, AdmissionState, AdmissionTerms, Cause, ClockWatch, ClusterTerms, Instant, ProcessFacts,
    ProcessIdentity, RecordAction, RecordOrigin, decide_record, least_left_ms,
};
use crate::resource::{ADMISSION_KEY, TOKENS_KEY};

/// Losing the race for the record this often in a row means that something else is wrong.
const MAX_RACES: usize = 10;

/// What admission goes by.
#[derive(Clone, Debug)]
pub(crate) struct AdmissionConfig {
    pub(crate) terms: AdmissionTerms,
    /// What its clients agree on, if their cluster has a name.
    pub(crate) cluster: Option<ClusterTerms>,
    pub(crate) drift_ppm: u32,
    pub(crate) clock: Arc<dyn Clock>,
    /// What previous connections left behind.
    pub(crate) health: Arc<InstanceHealth>,
}

/// The result of admission over a connection.
pub(crate) struct HandshakeOutcome {
    pub(crate) state: AdmissionState,
    pub(crate) info: ServerInfo,
    /// How many flushes had been reported when the record's key was being watched; `None` if it is not.
    pub(crate) watched_since: Option<u32>,
}

/// The record with a sample of the instance's clock.
pub(crate) struct RecordReading {
    pub(crate) record: Option<Vec<u8>>,
    pub(crate) instance_us: u64,
    pub(crate) sent: Instant,
    pub(crate) received: Instant,
    /// Whether the record's key is being watched since before it was read.
    watched: bool,
}

/// What a reading does about the watch over the record's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    /// Begins it anew.
    Anew,
    /// Leaves it as it is.
    GoesOn,
}

/// One connection, as far as admission is concerned.
pub(crate) struct AdmissionHandshake<'a> {
    pub(crate) connection: MultiplexedConnection,
    pub(crate) scripts: &'static Scripts,
    pub(crate) config: &'a AdmissionConfig,
    /// Whether changes of the record are pushed over this connection.
    pub(crate) tracking: bool,
    /// Whether the connection was admitted before: a record that is written now follows on a loss.
    pub(crate) was_admitted: bool,
    pub(crate) flushes: &'a FlushCount,
}

impl AdmissionHandshake<'_> {
    /// Finds or writes the record for the process behind the connection.
    pub(crate) async fn run(&mut self, report: ServerReport) -> Result<HandshakeOutcome, Cause> {
        let ServerReport { facts, info } = report;
        for _ in 0..MAX_RACES {
            let reading = self.read(Watch::Anew).await.map_err(|error| failed(&error))?;
            // Those reported until now may have been before the watch.
            let watched_since = reading.watched.then(|| self.flushes.count());
            let facts = facts.at(reading.instance_us / 1_000);
            let write = match self.decide(&facts, &reading)? {
                RecordAction::Keep(record) => {
                    return Ok(HandshakeOutcome { state: self.state(record, &reading), info, watched_since });
                }
                RecordAction::Raise(record) => Self::raising(record),
                RecordAction::Write { .. } if self.was_admitted => self.writing(None, RecordOrigin::Waits),
                RecordAction::Write { vote_from_ms, origin } => self.writing(vote_from_ms, origin),
            };
            self.write(&facts.identity, reading.record.as_deref(), write).await.map_err(|error| failed(&error))?;
        }
        Err(Cause::Server(format!("its admission record ({ADMISSION_KEY}) keeps changing")))
    }

    /// Applies the rule to the record that was found, and remembers it.
    fn decide(&self, facts: &ProcessFacts, reading: &RecordReading) -> Result<RecordAction, Cause> {
        let found = reading.record.as_deref();
        let mut last = self.config.health.lock();
        let action = decide_record(facts, found, self.config.terms, self.config.cluster.as_ref(), &last.seen);
        let action = action.map_err(Cause::NotUsable)?;
        if let Some(record) =
            found.and_then(AdmissionRecord::from_wire).filter(|record| record.identity == facts.identity)
        {
            last.seen.note(&record);
        }
        Ok(action)
    }

    fn state(&self, record: AdmissionRecord, reading: &RecordReading) -> AdmissionState {
        let watch = ClockWatch::begin(self.config.drift_ppm, reading.sent, reading.received, reading.instance_us);
        AdmissionState::new(record, watch)
    }

    /// Reads the record, and asks for a push when it changes.
    pub(crate) async fn read(&mut self, watch: Watch) -> RedisResult<RecordReading> {
        let mut ask = redis::pipe();
        if watch == Watch::Anew {
            // Without the right to it any flush counts as one of ours.
            ask.cmd("UNWATCH").cmd("WATCH").arg(ADMISSION_KEY);
        }
        if self.tracking {
            ask.cmd("CLIENT").arg("CACHING").arg("YES");
        }
        ask.cmd("GET").arg(ADMISSION_KEY).cmd("TIME");
        let sent = self.config.clock.now();
        let mut answers = self.connection.send_packed_commands(&ask, 0, ask.len()).await?;
        let received = self.config.clock.now();
        let needed = answers.split_off(if watch == Watch::Anew { 2 } else { 0 });
        let watched = !answers.is_empty() && all_well(answers).is_ok();
        let mut needed = all_well(needed)?.into_iter().rev();
        let (seconds, micros): (u64, u64) = redis::from_redis_value(needed.next().unwrap_or(Value::Nil))?;
        let record = match needed.next().unwrap_or(Value::Nil) {
            Value::Nil => None,
            Value::BulkString(bytes) => Some(bytes),
            other => Some(format!("{other:?}").into_bytes()),
        };
        let instance_us = seconds.saturating_mul(1_000_000).saturating_add(micros);
        Ok(RecordReading { record, instance_us, sent, received, watched })
    }

    /// Whether the record is the one that was there when the watch began, and has been all the while.
    pub(crate) async fn is_untouched(&mut self) -> bool {
        let ask = redis::cmd("CLIENT").arg("INFO").to_owned();
        let Ok(info) = ask.query_async::<String>(&mut self.connection).await else { return false };
        // As redis-cli shows it: `.. flags=td ..`; a `d` once a watched key was touched.
        let flags = info.split_whitespace().find_map(|word| word.strip_prefix("flags="));
        flags.is_some_and(|flags| !flags.contains('d'))
    }

    /// Whether there is a fencing token of any lock: who has voted has one.
    pub(crate) async fn has_tokens(&mut self) -> RedisResult<bool> {
        let ask = redis::cmd("ZRANGE").arg(TOKENS_KEY).arg(0).arg(1).to_owned();
        let first: Vec<Vec<u8>> = ask.query_async(&mut self.connection).await?;
        Ok(first.iter().any(|name| name != LONG_NAME.as_bytes()))
    }

    fn writing(&self, vote_from_ms: Option<u64>, origin: RecordOrigin) -> RecordWrite {
        let (terms, cluster) = (self.config.terms, self.config.cluster.clone());
        RecordWrite { vote_from_ms, least_left_ms: Some(least_left_ms(terms)), terms, origin, least_order: 0, cluster }
    }

    /// The record as it stands, with larger terms (P29, P30).
    fn raising(record: AdmissionRecord) -> RecordWrite {
        let AdmissionRecord { vote_from_ms, terms, origin, cluster, .. } = record;
        let AdmissionTerms { max_ttl_ms, quarantine_ms } = terms;
        let instances = ClusterTerms::described(cluster.as_ref());
        tracing::info!(
            max_ttl_ms,
            quarantine_ms,
            instances,
            "the admission record is raised to longer times or a longer list"
        );
        RecordWrite { vote_from_ms: Some(vote_from_ms), least_left_ms: None, terms, origin, least_order: 0, cluster }
    }

    /// Writes a record if `found` is still there.
    async fn write(&mut self, identity: &ProcessIdentity, found: Option<&[u8]>, write: RecordWrite) -> RedisResult<()> {
        let least_order = self.config.health.lock().seen.next_order(identity).max(write.least_order);
        let write = RecordWrite { least_order, ..write };
        let command = self.scripts.write_record(found.unwrap_or_default(), identity, write);
        Value::from_redis_value(self.connection.send_packed_command(&command).await?.extract_error()?)?;
        Ok(())
    }

    /// Lets an instance vote at once that nobody has ever used, if its record is still `blank`.
    pub(crate) async fn allow_votes(&mut self, blank: &AdmissionRecord) -> RedisResult<()> {
        let (terms, cluster, least_order) = (blank.terms, blank.cluster.clone(), blank.order.saturating_add(1));
        let write = RecordWrite { terms, cluster, least_order, ..self.writing(None, RecordOrigin::Opened) };
        let command = self.scripts.write_record(blank.to_wire().as_bytes(), &blank.identity, write);
        self.connection.send_packed_command(&command).await?.extract_error()?;
        Ok(())
    }
}

fn all_well(answers: Vec<Value>) -> RedisResult<Vec<Value>> {
    answers.into_iter().map(Value::extract_error).collect()
}
