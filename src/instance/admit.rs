//! Admission over one connection: read what the instance says, apply the rule, write the record if
//! the rule asks for it (P15).

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, RedisError, RedisResult, Value};

use super::classify::failed;
use super::facts::{self, About};
use super::scripts::Scripts;
use crate::clock::Clock;
use crate::protocol::{Cause, ClockWatch, Facts, Instant, Origin, Record, Standing, Step, admit};
use crate::resource::ADMISSION_KEY;

/// Losing the race for the record this often in a row means that something else is wrong.
const MAX_RACES: usize = 10;

/// What admission needs to know.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    pub(super) max_ttl: Duration,
    pub(super) drift_ppm: u32,
    pub(super) clock: Arc<dyn Clock>,
}

/// The record with a sample of the instance's clock.
pub(super) struct Reading {
    pub(super) record: Option<Vec<u8>>,
    pub(super) instance_us: u64,
    pub(super) sent: Instant,
    pub(super) received: Instant,
}

/// One connection, as far as admission is concerned.
pub(super) struct Admitting<'a> {
    pub(super) connection: MultiplexedConnection,
    pub(super) scripts: &'static Scripts,
    pub(super) rules: &'a Rules,
    /// Whether changes of the record are pushed to this connection.
    pub(super) tracking: bool,
    /// Whether this connection has known a record before: what is written now follows on a loss.
    pub(super) again: bool,
}

impl Admitting<'_> {
    /// Finds or writes the record for the process behind the connection.
    ///
    /// `doubted` is a record that must not stand although it names the process: its data was
    /// replaced, or its clock stepped.
    pub(super) async fn admit(&mut self, doubted: Option<&Record>) -> Result<(Standing, About), Cause> {
        let (facts, about) = facts::read(&mut self.connection).await.map_err(|error| no_info(&error))?;
        for _ in 0..MAX_RACES {
            let reading = self.read().await.map_err(|error| failed(&error))?;
            let facts = facts.at(reading.instance_us / 1_000);
            let step = admit(&facts, reading.record.as_deref(), self.rules.max_ttl).map_err(Cause::NotUsable)?;
            let (vote_from_ms, origin) = match step {
                Step::Keep(record) if doubted != Some(&record) => return Ok((self.standing(record, &reading), about)),
                Step::Keep(_) => (None, Origin::Waits),
                Step::Write { .. } if self.again => (None, Origin::Waits),
                Step::Write { vote_from_ms, origin } => (vote_from_ms, origin),
            };
            self.write(&facts, reading.record.as_deref(), vote_from_ms, origin)
                .await
                .map_err(|error| failed(&error))?;
        }
        Err(Cause::Server(format!("its admission record ({ADMISSION_KEY}) keeps changing")))
    }

    fn standing(&self, record: Record, reading: &Reading) -> Standing {
        let watch = ClockWatch::begin(self.rules.drift_ppm, reading.sent, reading.received, reading.instance_us);
        Standing::new(record, watch)
    }

    /// Reads the record, and asks to be told when it changes.
    pub(super) async fn read(&mut self) -> RedisResult<Reading> {
        let mut ask = redis::pipe();
        if self.tracking {
            ask.cmd("CLIENT").arg("CACHING").arg("YES").ignore();
        }
        ask.cmd("GET").arg(ADMISSION_KEY);
        ask.cmd("TIME");
        let sent = self.rules.clock.now();
        let (record, (seconds, micros)): (Value, (u64, u64)) = ask.query_async(&mut self.connection).await?;
        let received = self.rules.clock.now();
        let record = match record {
            Value::Nil => None,
            Value::BulkString(bytes) => Some(bytes),
            other => Some(format!("{other:?}").into_bytes()),
        };
        Ok(Reading { record, instance_us: seconds.saturating_mul(1_000_000).saturating_add(micros), sent, received })
    }

    /// Writes a record if `found` is still there.
    async fn write(
        &mut self,
        facts: &Facts,
        found: Option<&[u8]>,
        vote_from_ms: Option<u64>,
        origin: Origin,
    ) -> RedisResult<()> {
        let found = found.unwrap_or_default();
        let command = self.scripts.admit(found, &facts.identity, self.rules.max_ttl, (vote_from_ms, origin));
        Value::from_redis_value(self.connection.send_packed_command(&command).await?.extract_error()?)?;
        Ok(())
    }

    /// Lets an instance vote at once that nobody has ever used, if its record is still `blank`.
    pub(super) async fn open(&mut self, blank: &Record) -> RedisResult<()> {
        let step = (None, Origin::Opened);
        let command = self.scripts.admit(blank.to_wire().as_bytes(), &blank.identity, self.rules.max_ttl, step);
        self.connection.send_packed_command(&command).await?.extract_error()?;
        Ok(())
    }
}

fn no_info(error: &RedisError) -> Cause {
    match failed(error) {
        Cause::NoPermission(denied) => Cause::NoPermission(format!(
            "admission needs INFO and TIME ({denied}); grant them, or turn admission off with Admission::Off"
        )),
        cause => cause,
    }
}
