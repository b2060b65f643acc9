//! Admission over one connection: read the instance's record, apply the rule, write the record if
//! the rule asks for it (P15).

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, RedisResult, Value};

use super::records::Records;
use super::server_info::{ServerInfo, ServerReport};
use crate::clock::Clock;
use crate::foreign::contain;
use crate::instance::redis::classify::{beginning, failed};
use crate::instance::redis::health::InstanceHealth;
use crate::instance::redis::scripts::Scripts;
use crate::instance::redis::scripts::command::RecordWrite;
use crate::protocol::{
    AdmissionRecord, AdmissionState, AdmissionTerms, Cause, ClockWatch, FirstLook, Instant, NotUsable, ProcessFacts,
    ProcessIdentity, RecordAction, RecordMeaning, RecordOrigin, decide_as_recorded, decide_record,
};
use crate::resource::{ADMISSION_KEY, NO_LOCK, TOKENS_KEY};

/// Losing the race for the record this often in a row means that something else is wrong.
const MAX_RACES: usize = 10;

/// What admission goes by.
#[derive(Clone, Debug)]
pub(crate) struct AdmissionConfig {
    pub(crate) records: Arc<Records>,
    pub(crate) drift_ppm: u32,
    /// How long an acquire waits for the record, or until instances that were never used vote.
    pub(crate) instance_timeout: Duration,
    pub(crate) clock: Arc<dyn Clock>,
    /// What previous connections left behind.
    pub(crate) health: Arc<InstanceHealth>,
}

/// The result of admission over a connection.
pub(crate) struct HandshakeOutcome {
    pub(crate) state: AdmissionState,
    pub(crate) info: ServerInfo,
}

/// The record with a sample of the instance's clock.
pub(crate) struct RecordReading {
    pub(crate) record: Option<Vec<u8>>,
    pub(crate) instance_us: u64,
    pub(crate) sent: Instant,
    pub(crate) received: Instant,
}

/// One connection, as far as admission is concerned.
pub(crate) struct AdmissionHandshake<'a> {
    pub(crate) connection: MultiplexedConnection,
    pub(crate) scripts: &'static Scripts,
    pub(crate) config: &'a AdmissionConfig,
    /// Whether changes of the record are pushed over this connection.
    pub(crate) tracking: bool,
}

impl AdmissionHandshake<'_> {
    /// Finds the record for the process behind the connection, or writes it if this client wants locks: for a flush that
    /// was pushed, if `was_flushed`.
    pub(crate) async fn run(&mut self, report: ServerReport, was_flushed: bool) -> Result<HandshakeOutcome, Cause> {
        let ServerReport { facts, info } = report;
        for _ in 0..MAX_RACES {
            let reading = self.read().await.map_err(|error| failed(&error))?;
            let facts = facts.at(reading.instance_us / 1_000);
            let write = match self.decide(&facts, &reading) {
                Ok(RecordAction::Raise(record)) if self.config.records.are_to_be_written() => Self::raising(record),
                Ok(RecordAction::Write { origin }) if self.config.records.are_to_be_written() => {
                    let origin = if was_flushed { RecordOrigin::Flushed } else { origin };
                    self.quarantine(&facts.identity, origin)
                }
                action => {
                    let state = self.state(action, &facts.identity, &reading)?;
                    return Ok(HandshakeOutcome { state, info });
                }
            };
            self.write(&facts.identity, reading.record.as_deref(), write).await.map_err(|error| failed(&error))?;
        }
        Err(Cause::Server(format!("its admission record ({ADMISSION_KEY}) keeps changing")))
    }

    /// Applies the rule to the record that was found, and remembers it.
    fn decide(&self, facts: &ProcessFacts, reading: &RecordReading) -> Result<RecordAction, NotUsable> {
        let (found, records) = (reading.record.as_deref(), &self.config.records);
        let record = found.and_then(AdmissionRecord::from_wire);
        record.iter().for_each(|record| records.note_seen(record.terms));
        // Where nothing is recorded a process is as old as it must be to have forgotten nothing of anybody.
        let terms = if found.is_none() { records.terms_to_write() } else { records.terms() };
        let mut last = self.config.health.lock();
        let action = match records.are_as_recorded() {
            true => decide_as_recorded(facts, found, terms, &last.seen),
            false => decide_record(facts, found, terms, &last.seen),
        };
        if let Some(record) = record.filter(|record| record.identity == facts.identity) {
            last.seen.note(&record);
        }
        action
    }

    /// What this client makes of the record as it stands, if it writes none.
    fn state(
        &self,
        action: Result<RecordAction, NotUsable>,
        identity: &ProcessIdentity,
        reading: &RecordReading,
    ) -> Result<AdmissionState, Cause> {
        let watch = ClockWatch::begin(self.config.drift_ppm, reading.sent, reading.received, reading.instance_us);
        let without_record = |meaning| AdmissionState::without_record(identity.clone(), meaning, watch);
        Ok(match action {
            Ok(RecordAction::Keep(record)) => AdmissionState::new(record, watch),
            Ok(RecordAction::Raise(raised)) => {
                let found = reading.record.as_deref().and_then(AdmissionRecord::from_wire);
                AdmissionState::to_be_raised(found.unwrap_or(raised), watch)
            }
            Ok(RecordAction::Write { origin }) => without_record(RecordMeaning::Unrecorded(origin)),
            Err(reason) if reason.is_of_settings() => without_record(RecordMeaning::Refused(reason)),
            Err(reason) => return Err(Cause::NotUsable(reason)),
        })
    }

    /// Reads the record, and asks for a push when it changes.
    pub(crate) async fn read(&mut self) -> RedisResult<RecordReading> {
        let mut ask = redis::pipe();
        if self.tracking {
            ask.cmd("CLIENT").arg("CACHING").arg("YES");
        }
        ask.cmd("GET").arg(ADMISSION_KEY).cmd("TIME");
        let sent = self.config.clock.now();
        let answers = self.connection.send_packed_commands(&ask, 0, ask.len()).await?;
        let received = self.config.clock.now();
        let mut answers = all_well(answers)?.into_iter().rev();
        let (seconds, micros): (u64, u64) = redis::from_redis_value(answers.next().unwrap_or(Value::Nil))?;
        let record = match answers.next().unwrap_or(Value::Nil) {
            Value::Nil => None,
            Value::BulkString(bytes) => Some(bytes),
            other => Some(beginning(&other).into_bytes()),
        };
        let instance_us = seconds.saturating_mul(1_000_000).saturating_add(micros);
        Ok(RecordReading { record, instance_us, sent, received })
    }

    /// Whether there is a fencing token of any lock: who has voted has one.
    pub(crate) async fn has_tokens(&mut self) -> RedisResult<bool> {
        let ask = redis::cmd("ZRANGE").arg(TOKENS_KEY).arg(0).arg(1).to_owned();
        let first: Vec<Vec<u8>> = ask.query_async(&mut self.connection).await?;
        Ok(first.iter().any(|name| name != NO_LOCK.as_bytes()))
    }

    /// A quarantine from now.
    fn quarantine(&self, identity: &ProcessIdentity, origin: RecordOrigin) -> RecordWrite {
        let order = self.config.health.lock().seen.next_order(identity);
        RecordWrite { vote_from_ms: None, terms: self.config.records.terms_to_write(), origin, order }
    }

    /// What takes the place of a record, and is the next in order: who doubts that one doubts this one as well.
    fn following(record: AdmissionRecord) -> RecordWrite {
        let AdmissionRecord { vote_from_ms, terms, origin, order, .. } = record;
        RecordWrite { vote_from_ms: Some(vote_from_ms), terms, origin, order: order.saturating_add(1) }
    }

    /// The record as it stands, with larger terms (P29).
    fn raising(record: AdmissionRecord) -> RecordWrite {
        let AdmissionTerms { max_ttl_ms, quarantine_ms } = record.terms;
        contain(|| tracing::info!(max_ttl_ms, quarantine_ms, "the admission record is raised to longer times"));
        Self::following(record)
    }

    /// Writes a record if `found` is still there.
    async fn write(&mut self, identity: &ProcessIdentity, found: Option<&[u8]>, write: RecordWrite) -> RedisResult<()> {
        let command = self.scripts.write_record(found.unwrap_or_default(), identity, write);
        Value::from_redis_value(self.connection.send_packed_command(&command).await?.extract_error()?)?;
        Ok(())
    }

    /// Lets an instance vote at once that nobody has ever used, if its record is still `blank`.
    pub(crate) async fn allow_votes(&mut self, look: &FirstLook) -> RedisResult<()> {
        let blank = &look.record;
        let opened = AdmissionRecord { vote_from_ms: look.now_ms, origin: RecordOrigin::Opened, ..blank.clone() };
        let command = self.scripts.write_record(blank.to_wire().as_bytes(), &blank.identity, Self::following(opened));
        self.connection.send_packed_command(&command).await?.extract_error()?;
        Ok(())
    }
}

fn all_well(answers: Vec<Value>) -> RedisResult<Vec<Value>> {
    answers.into_iter().map(Value::extract_error).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the instance's clock it would be later than what whoever saw a step of that clock, or a flush, doubts.
    #[test]
    fn a_record_that_follows_another_is_the_next_in_order() {
        let (terms, origin) = (AdmissionTerms::of_max_ttl(10_000), RecordOrigin::Opened);
        let identity = ProcessIdentity::new("run", "replication");
        let record = AdmissionRecord { identity, vote_from_ms: 5, terms, origin, order: 7 };
        let write = AdmissionHandshake::raising(record);
        assert_eq!((write.vote_from_ms, write.order, write.origin), (Some(5), 8, origin));
    }
}
