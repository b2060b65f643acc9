//! The status of all instances at one moment, for people and for programs.

use std::process::ExitCode;
use std::time::Duration;

use redquorum::operator::{ClockOffset, ServerDetails};
use redquorum::{AdmissionStatus, Redlock};
use serde_json::{Value, json};

use super::observed::{Observed, observe};
use super::problems::{Problem, is_full};
use crate::exit::{Code, Failure};
use crate::output::{Look, Table, offset, painted, time, with_options};
use crate::settings::Settings;

/// How all instances do.
pub(super) struct Status {
    instances: Vec<Observed>,
    quorum: usize,
}

impl Status {
    pub(super) async fn gather(redlock: &Redlock, settings: &Settings) -> Self {
        let instances = observe(redlock, settings).await;
        let quorum = settings.quorum_of(instances.len());
        Self { instances, quorum }
    }

    fn may_vote(&self) -> usize {
        self.instances.iter().filter(|instance| instance.may_vote()).count()
    }

    /// Whether a quorum could vote now, and set the key.
    pub(super) fn can_lock(&self) -> bool {
        self.may_vote() >= self.quorum
    }

    /// Whether all that would vote and set no key are full.
    fn is_for_memory(&self) -> bool {
        let mut refusing = self.instances.iter().filter(|instance| instance.is_admitted() && !instance.takes_writes);
        refusing.all(|instance| instance.details.as_ref().is_some_and(is_full))
    }

    fn is_refused(&self) -> bool {
        self.instances.iter().any(|instance| instance.seen.admission == AdmissionStatus::Refused)
    }

    pub(super) fn in_words(&self, colours: bool) -> String {
        let heading = [
            "INSTANCE",
            "STATE",
            "ROLE",
            "VERSION",
            "VOTES",
            "PERSISTENCE",
            "EVICTION",
            "TOKENS",
            "CLOCK",
            "ROUND TRIP",
        ];
        let mut table = Table::new(&heading);
        self.instances.iter().for_each(|instance| table.row(instance.cells()));
        let mut text = table.render(colours);
        for (addresses, problem) in self.problems() {
            let look = if problem.is_severe { Look::Bad } else { Look::Doubtful };
            text.push_str(&painted(&format!("{}: {}", addresses.join(", "), problem.text), look, colours));
            text.push('\n');
        }
        let look = if self.can_lock() { Look::Good } else { Look::Bad };
        text.push_str(&format!("{}: {}\n", self.votes(), painted(self.in_short(), look, colours)));
        text
    }

    fn votes(&self) -> String {
        format!("{} of {} may vote, {} needed", self.may_vote(), self.instances.len(), self.quorum)
    }

    fn in_short(&self) -> &'static str {
        let too_few = self.instances.iter().filter(|instance| instance.is_admitted()).count() < self.quorum;
        match self.can_lock() {
            true => "locks can be acquired",
            false if too_few && self.is_refused() => "no lock can be acquired with these settings",
            false if too_few => "no lock can be acquired",
            false if self.is_for_memory() => "too many are full, no lock can be acquired",
            false => "too many carry out no write, no lock can be acquired",
        }
    }

    /// For a probe.
    pub(super) fn verdict(&self) -> Result<ExitCode, Failure> {
        if self.can_lock() {
            return Ok(ExitCode::SUCCESS);
        }
        let problems =
            self.problems().into_iter().map(|(addresses, it)| format!("; {}: {}", addresses.join(", "), it.text));
        let why = problems.collect::<String>();
        Err(Failure::new(Code::NoQuorum, format!("{}: {}{why}", self.votes(), self.in_short())))
    }

    /// What is the matter with several instances, once, with all of their addresses.
    fn problems(&self) -> Vec<(Vec<&str>, &Problem)> {
        let mut found: Vec<(Vec<&str>, &Problem)> = Vec::new();
        for instance in &self.instances {
            for problem in &instance.problems {
                let address = instance.seen.address.as_str();
                match found.iter_mut().find(|(_, other)| *other == problem) {
                    Some((addresses, _)) => addresses.push(address),
                    None => found.push((vec![address], problem)),
                }
            }
        }
        found
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "instances": self.instances.iter().map(Observed::to_json).collect::<Vec<_>>(),
            "may_vote": self.may_vote(),
            "quorum": self.quorum,
            "can_lock": self.can_lock(),
        })
    }
}

impl Observed {
    fn version(&self) -> Option<&str> {
        let asked = self.details.as_ref().map(|details| details.version.as_str());
        self.seen.version.as_deref().or(asked)
    }

    /// Whether it can be reached, and gives a client with these settings votes: for programs, and in words.
    fn state(&self) -> (&'static str, &'static str, Look) {
        match self.seen.admission {
            _ if !self.seen.connected => ("down", "down", Look::Bad),
            AdmissionStatus::Refused => ("refused", "unfit", Look::Bad),
            _ => ("up", "up", Look::Good),
        }
    }

    fn votes(&self) -> (String, Look) {
        match self.seen.admission {
            AdmissionStatus::Quarantine(left) => (format!("in {}", time(left)), Look::Doubtful),
            AdmissionStatus::Unrecorded => ("no record".to_owned(), Look::Doubtful),
            _ if self.may_vote() => ("yes".to_owned(), Look::Good),
            _ if self.is_admitted() && self.details.as_ref().is_some_and(is_full) => ("full".to_owned(), Look::Bad),
            _ if self.is_admitted() => ("refuses".to_owned(), Look::Bad),
            _ => ("no".to_owned(), Look::Bad),
        }
    }

    fn cells(&self) -> Vec<(String, Look)> {
        let role = match self.is_master() {
            Some(true) => "master",
            Some(false) => "replica",
            None => "-",
        };
        let (_, state, look) = self.state();
        let details = self.details.as_ref();
        let plain = |text: Option<String>| (text.unwrap_or_else(|| "-".to_owned()), Look::Plain);
        vec![
            plain(Some(self.seen.address.clone())),
            (state.to_owned(), look),
            plain(Some(role.to_owned())),
            plain(self.version().map(str::to_owned)),
            self.votes(),
            plain(details.map(|details| persistence(details).to_owned())),
            plain(details.map(|details| details.eviction_policy.clone())),
            plain(details.map(|details| details.tokens.to_string())),
            plain(details.map(|details| offset(details.clock_offset))),
            plain(details.map(|details| time(details.round_trip))),
        ]
    }

    fn to_json(&self) -> Value {
        let details = self.details.as_ref();
        let whole = |time: Duration, unit: u128| u64::try_from(time.as_micros() / unit).unwrap_or(u64::MAX);
        let quarantine_left_ms = match self.seen.admission {
            AdmissionStatus::Quarantine(left) => Some(whole(left, 1000)),
            _ => None,
        };
        json!({
            "address": self.seen.address,
            "connected": self.seen.connected,
            "state": self.state().0,
            "has_record": self.seen.max_ttl.is_some(),
            "max_ttl_ms": self.seen.max_ttl.map(|it| whole(it, 1000)),
            "is_master": self.is_master(),
            "version": self.version(),
            "may_vote": self.may_vote(),
            "quarantine_left_ms": quarantine_left_ms,
            "flushed_ago_ms": self.seen.flushed_ago.map(|it| whole(it, 1000)),
            "tokens": details.map(|it| it.tokens),
            "floor_lag_ms": details.and_then(|it| it.floor_lag).map(|it| whole(it, 1000)),
            "replicas": details.map(|it| it.replicas),
            "appends_to_file": details.map(|it| it.appends_to_file),
            "saves_snapshots": details.and_then(|it| it.saves_snapshots),
            "memory_limit": details.and_then(|it| it.memory_limit),
            "memory_used": details.map(|it| it.memory_used),
            "eviction_policy": details.map(|it| &it.eviction_policy),
            "refuses_writes": details.and_then(|it| it.refuses_writes.as_ref()).map(|it| with_options(&it.to_string())),
            "clock_offset_us": details.map(|it| offset_us(it.clock_offset)),
            "clock_steps": self.seen.clock_steps,
            "round_trip_us": details.map(|it| whole(it.round_trip, 1)),
            "problems": self.problems.iter().map(|it| json!({ "is_severe": it.is_severe, "text": it.text })).collect::<Vec<_>>(),
        })
    }
}

fn offset_us(offset: ClockOffset) -> i64 {
    let us = i64::try_from(offset.distance().as_micros()).unwrap_or(i64::MAX);
    if matches!(offset, ClockOffset::Behind(_)) { -us } else { us }
}

/// What of the data outlives the server.
pub(crate) fn persistence(details: &ServerDetails) -> &'static str {
    match (details.appends_to_file, details.saves_snapshots) {
        (true, Some(true)) => "aof, rdb",
        (true, _) => "aof",
        (false, Some(true)) => "rdb",
        (false, Some(false)) => "none",
        (false, None) => "no aof",
    }
}
