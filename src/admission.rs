//! What operators do with the admission records of the instances: look at them, write the first ones, change the time in them.

use std::fmt;
use std::time::Duration;

use thiserror::Error;

use crate::client::Redlock;
use crate::instance::{FoundRecord, Trace};
use crate::names::display_name;
use crate::protocol::{AdmissionTerms, Cause, LONGEST_TTL, check_terms};
use crate::runtime::ask_all::{ask_all, carry_out, set_all};

impl Redlock {
    /// The admission records of the instances, for operators. The longest ttl that they will allow is this client's
    /// [`quarantine`](crate::Builder::quarantine), which is its `max_ttl` unless it is set.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use redquorum::testing::Cluster;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let cluster = Cluster::new(3);
    /// # let redlock = cluster.builder().connect().await?;
    /// for found in redlock.admission_records().show().await {
    ///     println!("{}: {:?} allows {:?}, votes in {:?}", found.address, found.record, found.longest_ttl, found.votes_in);
    /// }
    /// # Ok(()) }
    /// ```
    pub fn admission_records(&self) -> AdmissionRecords {
        AdmissionRecords { redlock: self.clone(), writes: true }
    }
}

/// The admission records of all instances of a client: which process may vote, from when on, and for which ttls. Given by
/// [`Redlock::admission_records`].
///
/// Build the client for it with [`Admission::AsRecorded`](crate::Admission::AsRecorded), so that it writes none by itself.
#[derive(Clone, Debug)]
#[must_use = "nothing is done until it is asked for"]
pub struct AdmissionRecords {
    redlock: Redlock,
    writes: bool,
}

/// The record of one instance.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ShownRecord {
    /// The address without credentials.
    pub address: String,
    /// The record as it is stored; `None` if there is none, or it could not be read.
    pub record: Option<String>,
    /// Whether it is for the process that runs. That of another process counts for nothing.
    pub is_of_this_process: bool,
    /// In how long the instance votes by it, zero if it does; `None` if it does not.
    pub votes_in: Option<Duration>,
    /// The longest ttl that it allows.
    pub longest_ttl: Option<Duration>,
    /// Why this client gets no votes under it, in words.
    pub misfit: Option<String>,
    /// Why it could not be read.
    pub unknown: Option<crate::Cause>,
}

/// An instance on which nothing was written, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordRefusal {
    /// The address without credentials.
    pub address: String,
    /// What was found there, in words.
    pub reason: String,
}

/// Why records were not written.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RecordsError {
    /// Locks may last for longer than the time for which the operator says that none was held. Nothing was written.
    #[error(
        "that no lock was held within {word:?} is not enough: locks may last for {longest_ttl:?}; nothing was written"
    )]
    ShortWord {
        /// What the operator says.
        word: Duration,
        /// The longest ttl that the records would allow.
        longest_ttl: Duration,
    },
    /// These instances do not permit it. Nothing was written anywhere.
    #[error("nothing was written: {}", reasons(.0))]
    Refused(Vec<RecordRefusal>),
    /// Not all instances were opened, as far as is known. The others vote a quarantine after a client first wants a lock, which is safe.
    /// They may be opened alone, by a client of them alone, as long as no client was started; one that was opened refuses that.
    #[error(
        "{0}; leave the others, which vote a quarantine after a client first wants a lock, or open them alone while no client has been \
         started ('redquorum admission open -i ADDRESS')"
    )]
    HalfOpened(Written),
    /// Not all records have the new time, as far as is known. Set it again: a record that has it stays as it is.
    #[error("{0}; once all can be reached, set it again: a record that has this time stays as it is")]
    HalfSet(Written),
}

/// What became of writes that not all instances have confirmed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Written {
    /// Where the record was written: the addresses without credentials.
    pub written: Vec<String>,
    /// Where it was not.
    pub refused: Vec<RecordRefusal>,
    /// Where it may have been: the request was sent, and not answered.
    pub unknown: Vec<RecordRefusal>,
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { written, refused, unknown } = self;
        match written.is_empty() {
            true => write!(f, "written on none for certain")?,
            false => write!(f, "written on {}", written.join(", "))?,
        }
        for (what, instances) in [("not written", refused), ("not known whether written", unknown)] {
            if !instances.is_empty() {
                write!(f, "; {what}: {}", reasons(instances))?;
            }
        }
        Ok(())
    }
}

fn reasons(refusals: &[RecordRefusal]) -> String {
    let each: Vec<_> =
        refusals.iter().map(|RecordRefusal { address, reason }| format!("{address}: {reason}")).collect();
    each.join("; ")
}

impl AdmissionRecords {
    /// Does all of it but the writing.
    pub const fn dry_run(mut self) -> Self {
        self.writes = false;
        self
    }

    /// The record of each instance, in the configured order.
    ///
    /// # Cancel safety
    /// Safe: it only reads.
    pub async fn show(&self) -> Vec<ShownRecord> {
        let found = ask_all(&self.redlock.shared, |instance| instance.read_record()).await;
        let addresses = self.redlock.shared.instances.iter().map(|instance| instance.address().to_owned());
        addresses.zip(found).map(|(address, found)| self.shown(address, found)).collect()
    }

    fn shown(&self, address: String, found: Result<FoundRecord, Cause>) -> ShownRecord {
        let (found, unknown) = match found {
            Ok(found) => (Some(found), None),
            Err(cause) => (None, Some(cause.into())),
        };
        let stored = found.as_ref().and_then(|found| found.stored.as_deref());
        let record = found.as_ref().and_then(|found| Some((found.record()?, found)));
        let is_of_this_process = record.as_ref().is_some_and(|(record, found)| record.identity == found.identity);
        let ours = record.as_ref().filter(|_| is_of_this_process);
        ShownRecord {
            address,
            record: stored.map(display_name),
            is_of_this_process,
            votes_in: ours.map(|(record, found)| record.quarantine_left(found.now_ms)),
            longest_ttl: record.as_ref().map(|(record, _)| Duration::from_millis(record.longest_ttl_ms)),
            misfit: ours
                .and_then(|(record, _)| check_terms(record.longest_ttl_ms, self.terms()).err())
                .map(|reason| reason.to_string()),
            unknown,
        }
    }

    /// Writes the first record of each instance, so that new servers vote at once. Without it they wait for a quarantine from when a client
    /// wants a lock.
    ///
    /// The caller asserts that no lock was held on these servers within `no_lock_was_held_within`, which must be as long as
    /// locks may last. Servers cannot show that: all of them may have been restarted empty while a lock was held. So never put it
    /// into anything that starts servers; call it once, when a cluster is set up, before its clients start.
    ///
    /// An instance contradicts by a record, a fencing token, a subscribed client, or a flush since it started. All instances are checked
    /// first; if one cannot be reached or contradicts, nothing is written. Each write checks again, in the same script.
    ///
    /// # Cancel safety
    /// What was sent is carried out: some instances may have a record then, and a second call refuses them.
    ///
    /// # Errors
    /// [`RecordsError`] with what was found on which instance; [`RecordsError::HalfOpened`] where some have confirmed it, or may have
    /// carried it out, and not all.
    pub async fn open(&self, no_lock_was_held_within: Duration) -> Result<(), RecordsError> {
        let longest_ttl = Duration::from_millis(self.terms().quarantine_ms);
        if no_lock_was_held_within < longest_ttl {
            return Err(RecordsError::ShortWord { word: no_lock_was_held_within, longest_ttl });
        }
        let shared = &self.redlock.shared;
        let looked = ask_all(shared, |instance| instance.open_record(false)).await;
        let looked = self.refusals(looked.into_iter().map(of_trace));
        if !looked.is_empty() {
            return Err(RecordsError::Refused(looked));
        }
        if !self.writes {
            return Ok(());
        }
        tracing::warn!(?longest_ttl, "instances are opened: an operator asserts that no lock was held");
        let opened = carry_out(shared, shared.instances.iter().map(|instance| instance.open_record(true))).await;
        self.complete(
            opened.into_iter().map(|trace| (has_no_answer(&trace), of_trace(trace))),
            RecordsError::HalfOpened,
        )
    }

    /// Sets the longest ttl of each record to this client's quarantine, and leaves the rest. If that is shorter than
    /// before, the instance also waits for the former time.
    ///
    /// To allow longer ttls: give all clients the longer quarantine, call this, give them the longer `max_ttl`. To allow
    /// shorter ones: give all clients the shorter `max_ttl`, wait for as long as locks could last before, call this with a client of one
    /// instance after the other, each once the former one votes again and a renewal has followed, give clients the shorter quarantine.
    ///
    /// # Cancel safety
    /// What was sent is carried out. It may be called again.
    ///
    /// # Errors
    /// [`RecordsError`] where an instance cannot be reached, has no record, or has that of another process; [`RecordsError::HalfSet`]
    /// where a record changed meanwhile, or an instance did not answer.
    pub async fn set(&self) -> Result<(), RecordsError> {
        let shared = &self.redlock.shared;
        let found = ask_all(shared, |instance| instance.read_record()).await;
        let looked = self.refusals(found.iter().map(|found| match found {
            Ok(found) => self.obstacle_to_set(found),
            Err(cause) => Some(cause.to_string()),
        }));
        if !looked.is_empty() {
            return Err(RecordsError::Refused(looked));
        }
        if !self.writes {
            return Ok(());
        }
        let found: Vec<FoundRecord> = found.into_iter().flatten().collect();
        let longest_ttl = Duration::from_millis(self.terms().quarantine_ms);
        tracing::warn!(?longest_ttl, "the time in the admission records is set");
        let set = set_all(shared, found).await.into_iter().map(|set| {
            let unknown = has_no_answer(&set);
            match set {
                Ok(true) => (unknown, None),
                Ok(false) => (unknown, Some("it has another record now".to_owned())),
                Err(cause) => (unknown, Some(cause.to_string())),
            }
        });
        self.complete(set, RecordsError::HalfSet)
    }

    fn obstacle_to_set(&self, found: &FoundRecord) -> Option<String> {
        let Some(stored) = &found.stored else {
            return Some("it has no admission record; a client writes it as it wants a lock".to_owned());
        };
        let Some(record) = found.record() else {
            return Some(format!("it has something else in place of the admission record: {}", display_name(stored)));
        };
        if record.identity != found.identity {
            return Some(format!(
                "it has the record of another process, {}, and is {}; the next client that wants a lock replaces it",
                record.identity.as_str(),
                found.identity.as_str()
            ));
        }
        (u128::from(record.longest_ttl_ms) > LONGEST_TTL.as_millis()).then(|| {
            let recorded_ms = record.longest_ttl_ms;
            format!(
                "it has a record for ttls up to {recorded_ms} ms, longer than any client can use; restart the instance: the next client \
                 that wants a lock replaces the record"
            )
        })
    }

    fn terms(&self) -> AdmissionTerms {
        self.redlock.settings.admission_terms()
    }

    fn refusals(&self, found: impl Iterator<Item = Option<String>>) -> Vec<RecordRefusal> {
        let instances = self.redlock.shared.instances.iter().zip(found);
        instances
            .filter_map(|(instance, reason)| {
                Some(RecordRefusal { address: instance.address().to_owned(), reason: reason? })
            })
            .collect()
    }

    /// Of each instance whether it is not known if it has written, and why it has not, or may not have.
    fn complete(
        &self,
        outcomes: impl Iterator<Item = (bool, Option<String>)>,
        incomplete: fn(Written) -> RecordsError,
    ) -> Result<(), RecordsError> {
        let mut all = Written::default();
        for (instance, (is_unknown, reason)) in self.redlock.shared.instances.iter().zip(outcomes) {
            let address = instance.address().to_owned();
            match reason {
                None => all.written.push(address),
                Some(reason) if is_unknown => all.unknown.push(RecordRefusal { address, reason }),
                Some(reason) => all.refused.push(RecordRefusal { address, reason }),
            }
        }
        match all {
            Written { refused, unknown, .. } if refused.is_empty() && unknown.is_empty() => Ok(()),
            Written { written, unknown, refused } if written.is_empty() && unknown.is_empty() => {
                Err(RecordsError::Refused(refused))
            }
            all => Err(incomplete(all)),
        }
    }
}

/// Whether a write was sent that has no answer: it may have been carried out (P5).
const fn has_no_answer<T>(answer: &Result<T, Cause>) -> bool {
    matches!(answer, Err(Cause::TimedOut | Cause::Disconnected(_) | Cause::OddReply(_)))
}

/// Why an instance with this trace is not opened.
fn of_trace(found: Result<Trace, Cause>) -> Option<String> {
    Some(match found {
        Ok(Trace::Unused) => return None,
        Ok(Trace::Record(record)) => format!("it has an admission record: {record}"),
        Ok(Trace::Token(lock)) => format!("it has a fencing token, of {lock:?}"),
        Ok(Trace::Listener(channel)) => format!("it has a client that listens: {channel}"),
        Ok(Trace::Flushed) => "it was flushed since it started".to_owned(),
        Err(cause) => cause.to_string(),
    })
}
