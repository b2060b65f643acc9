//! Admission over one connection: read the instance's record, apply the rule, write the record if
//! the rule requires it (P15).

use redis::{FromRedisValue, RedisResult, Value};

use super::records::NewTimes;
use crate::instance::redis::classify::failed;
use crate::instance::redis::conn::Conn;
use crate::instance::redis::options::ConnectOptions;
use crate::instance::redis::scripts::{self, RecordWrite};
use crate::protocol::{
    AdmissionRecord, AdmissionState, Cause, ClockWatch, FencingToken, Instant, NotUsable, ProcessFacts,
    ProcessIdentity, RecordAction, RecordMeaning, RecordOrigin, decide_as_recorded, decide_record,
};
use crate::resource::ADMISSION_KEY;

/// Losing the race for the record this often in a row means that something else is wrong.
const MAX_RACES: usize = 10;

/// The record with a sample of the instance's clock.
pub(crate) struct RecordReading {
    pub(crate) record: Option<Vec<u8>>,
    pub(crate) instance_us: u64,
    pub(crate) sent: Instant,
    pub(crate) received: Instant,
}

/// One connection, as far as admission is concerned.
pub(crate) struct AdmissionHandshake<'a> {
    pub(crate) conn: &'a Conn,
    pub(crate) options: &'a ConnectOptions,
    /// Whether changes of the record are pushed over this connection.
    pub(crate) tracking: bool,
}

impl AdmissionHandshake<'_> {
    /// Finds the record for the process behind the connection, or writes it if this client wants locks: for a flush that
    /// was pushed, if `was_flushed`. Where the instance's clock shows something, `proposing_us` gives what the one shows by which this
    /// client proposes tokens, if it knows the clocks of a quorum. Else the record waits until it does.
    pub(crate) async fn run(
        &self,
        facts: &ProcessFacts,
        was_flushed: bool,
        proposing_us: impl Fn(u64) -> Option<u64>,
    ) -> Result<AdmissionState, Cause> {
        for _ in 0..MAX_RACES {
            let reading = self.read().await.map_err(|error| failed(&error))?;
            let action = self.decide(facts, &reading);
            if action != Ok(RecordAction::Write) || !self.options.records.are_to_be_written() {
                return self.state(action, &facts.identity, &reading);
            }
            // Of a record that only this client doubts all others must know at once: then the instance's own clock has to do.
            let found = reading.record.as_deref().and_then(AdmissionRecord::from_wire);
            let is_urgent = was_flushed || found.is_some_and(|found| found.identity == facts.identity);
            let by_its_own = is_urgent.then_some(reading.instance_us);
            let Some(proposing_us) = proposing_us(reading.instance_us).or(by_its_own) else {
                return self.state(action, &facts.identity, &reading);
            };
            let write = self.quarantine(&facts.identity, was_flushed, proposing_us);
            self.write(&facts.identity, reading.record.as_deref(), write).await.map_err(|error| failed(&error))?;
        }
        Err(Cause::Server(format!("its admission record ({ADMISSION_KEY}) keeps changing")))
    }

    /// Applies the rule to the record that was found, and remembers it.
    fn decide(&self, facts: &ProcessFacts, reading: &RecordReading) -> Result<RecordAction, NotUsable> {
        let (found, records) = ((reading.record.as_deref(), reading.instance_us / 1_000), &self.options.records);
        let record = found.0.and_then(AdmissionRecord::from_wire);
        record.iter().for_each(|record| records.note_read(self.options.id.index(), record.longest_ttl_ms));
        let mut last = self.options.standing.lock();
        let decide = if records.as_recorded { decide_as_recorded } else { decide_record };
        let action = decide(facts, found, records.terms, &last.seen);
        if let Some(record) = record.filter(|record| record.identity == facts.identity) {
            last.seen.note(&record);
        }
        action
    }

    /// What the present record means for this client, if it writes none.
    fn state(
        &self,
        action: Result<RecordAction, NotUsable>,
        identity: &ProcessIdentity,
        reading: &RecordReading,
    ) -> Result<AdmissionState, Cause> {
        let watch =
            ClockWatch::begin(self.options.client.drift_ppm, reading.sent, reading.received, reading.instance_us);
        let without_record = |meaning| AdmissionState::without_record(identity.clone(), meaning, watch);
        Ok(match action {
            Ok(RecordAction::Keep(record)) => AdmissionState::new(record, watch).read_at(reading.instance_us / 1_000),
            Ok(RecordAction::Write) => without_record(RecordMeaning::Unrecorded),
            Err(reason) if reason.is_of_settings() => without_record(RecordMeaning::Refused(reason)),
            Err(reason) => return Err(Cause::NotUsable(reason)),
        })
    }

    /// Reads the record, and requests a push when it changes.
    pub(crate) async fn read(&self) -> RedisResult<RecordReading> {
        let mut ask = redis::pipe();
        if self.tracking {
            ask.cmd("CLIENT").arg("CACHING").arg("YES");
        }
        ask.cmd("GET").arg(ADMISSION_KEY).cmd("TIME");
        let sent = self.options.now();
        let answers = self.conn.ask_all(&ask).replies_without_error().await?;
        let received = self.options.now();
        let mut answers = answers.into_iter().rev();
        let (seconds, micros): (u64, u64) = redis::from_redis_value(answers.next().unwrap_or(Value::Nil))?;
        let record = match answers.next().unwrap_or(Value::Nil) {
            Value::Nil => None,
            Value::BulkString(bytes) => Some(bytes),
            _ => Some(b"no string".to_vec()),
        };
        let instance_us = seconds.saturating_mul(1_000_000).saturating_add(micros);
        Ok(RecordReading { record, instance_us, sent, received })
    }

    /// A quarantine from now, after which no token is granted below those that clients proposed when it began (P13): by the instance's
    /// clock then, if that is about the one by which they propose.
    fn quarantine(&self, identity: &ProcessIdentity, was_flushed: bool, proposing_us: u64) -> RecordWrite {
        let order = self.options.standing.lock().seen.next_order(identity);
        let NewTimes { longest_ttl_ms, wait_ms } = self.options.records.to_write();
        let origin = if was_flushed { RecordOrigin::Flushed } else { RecordOrigin::Waits };
        let floor_us = FencingToken::floor_after(proposing_us, wait_ms);
        RecordWrite { longest_ttl_ms, origin, vote_from_ms: 0, wait_ms: Some(wait_ms), order, floor_us }
    }

    /// Writes a record if `found` is still there. Gives what is there afterwards.
    pub(super) async fn write(
        &self,
        identity: &ProcessIdentity,
        found: Option<&[u8]>,
        write: RecordWrite,
    ) -> RedisResult<Option<Vec<u8>>> {
        let command = scripts::write_record(found.unwrap_or_default(), identity, write);
        let there = self.conn.ask(&command).without_error().await?;
        Ok(<(Option<Vec<u8>>, u64)>::from_redis_value(there)?.0)
    }
}
