//! What a client records for the facade `metrics`, and the list of all that it records.

use metrics::Unit;

use crate::error::AcquireError;
use crate::instance::{AdmissionStatus, InstanceStatus, ReplyKind};
use crate::runtime::Shared;
use crate::stats::stats;

enum Kind {
    Counter,
    Gauge,
    Histogram,
}

use Kind::{Counter, Gauge, Histogram};

/// Every metric, with the help text that exporters show.
const METRICS: &[(Kind, &str, Unit, &str)] = &[
    (Counter, "redquorum_acquires_total", Unit::Count, "Acquires that have ended, by outcome"),
    (Histogram, "redquorum_acquire_seconds", Unit::Seconds, "How long acquires took, by outcome"),
    (Counter, "redquorum_acquire_rounds_total", Unit::Count, "Rounds sent to acquire a lock"),
    (Counter, "redquorum_hand_overs_total", Unit::Count, "Hand-offs of a lock within a client"),
    (Counter, "redquorum_renewals_total", Unit::Count, "Renewals, by result"),
    (Counter, "redquorum_losses_total", Unit::Count, "Locks lost, by cause"),
    (Gauge, "redquorum_held", Unit::Count, "Locks held"),
    (Gauge, "redquorum_read", Unit::Count, "Of the locks held, those that are read"),
    (Gauge, "redquorum_waiting", Unit::Count, "Acquires that wait"),
    (Gauge, "redquorum_quorum", Unit::Count, "How many instances a lock needs"),
    (Gauge, "redquorum_pending_releases", Unit::Count, "Releases that the instance has not confirmed"),
    (Gauge, "redquorum_instance_connected", Unit::Count, "1 if connected"),
    (Gauge, "redquorum_instance_may_vote", Unit::Count, "1 if connected and not in quarantine"),
    (Gauge, "redquorum_instance_quarantine_seconds", Unit::Seconds, "How long its quarantine still lasts"),
    (Gauge, "redquorum_instance_round_trip_seconds", Unit::Seconds, "Round trip of its last answer"),
    (Gauge, "redquorum_instance_tokens", Unit::Count, "Fencing tokens that it keeps"),
    (Gauge, "redquorum_instance_floor_lag_seconds", Unit::Seconds, "Its clock minus its largest forgotten token"),
    (Gauge, "redquorum_instance_clock_steps", Unit::Count, "Steps of its clock"),
    (Counter, "redquorum_instance_connections_total", Unit::Count, "Connections made to it"),
    (Counter, "redquorum_instance_commands_total", Unit::Count, "Commands sent to it"),
    (Counter, "redquorum_instance_requests_total", Unit::Count, "Requests in these commands"),
    (Counter, "redquorum_instance_replies_total", Unit::Count, "How requests have ended, by reply"),
];

/// Records what is now, and what was sent to each instance since the last time.
pub(crate) fn record(shared: &Shared) {
    describe();
    shared.counters.record(&AcquireError::FAILURES.split(' ').collect::<Vec<_>>());
    let now = stats(shared);
    metrics::gauge!("redquorum_held").set(now.held as f64);
    metrics::gauge!("redquorum_read").set(now.read as f64);
    metrics::gauge!("redquorum_waiting").set(now.waiting as f64);
    metrics::gauge!("redquorum_quorum").set(shared.quorum.votes() as f64);
    let pending = shared.releaser.pending();
    for (index, (instance, pending)) in shared.instances.iter().zip(pending).enumerate() {
        record_instance(shared, index, &instance.status(), pending);
    }
}

fn record_instance(shared: &Shared, index: usize, status: &InstanceStatus, pending: usize) {
    let address = status.address.as_str();
    let set = |name: &'static str, value: f64| metrics::gauge!(name, "address" => address.to_owned()).set(value);
    let is = |what: bool| f64::from(u8::from(what));
    let (votes, quarantine) = match status.admission {
        AdmissionStatus::Admitted | AdmissionStatus::Off => (status.connected, 0.0),
        AdmissionStatus::Quarantine(left) => (false, left.as_secs_f64()),
        AdmissionStatus::Unknown | AdmissionStatus::Unrecorded | AdmissionStatus::Refused => (false, 0.0),
    };
    set("redquorum_pending_releases", pending as f64);
    set("redquorum_instance_connected", is(status.connected));
    set("redquorum_instance_may_vote", is(votes));
    set("redquorum_instance_quarantine_seconds", quarantine);
    set("redquorum_instance_clock_steps", f64::from(status.clock_steps));
    if let (Some(tokens), Some(lag)) = (status.tokens, status.floor_lag) {
        set("redquorum_instance_tokens", tokens as f64);
        set("redquorum_instance_floor_lag_seconds", lag.as_secs_f64());
    }
    if let Some(round_trip) = status.round_trip {
        set("redquorum_instance_round_trip_seconds", round_trip.as_secs_f64());
    }

    let rise = |name, label, now| shared.counters.recorded.rise((index, name, label), now);
    let counts = &status.counts;
    for (name, now) in [
        ("redquorum_instance_connections_total", counts.connections),
        ("redquorum_instance_commands_total", counts.commands),
        ("redquorum_instance_requests_total", counts.requests),
    ] {
        metrics::counter!(name, "address" => address.to_owned()).increment(rise(name, "", now));
    }
    const REPLIES: &str = "redquorum_instance_replies_total";
    for reply in ReplyKind::ALL {
        let counter = metrics::counter!(REPLIES, "address" => address.to_owned(), "reply" => reply.name());
        counter.increment(rise(REPLIES, reply.name(), counts.of(reply)));
    }
}

fn describe() {
    for (kind, name, unit, text) in METRICS {
        match kind {
            Counter => metrics::describe_counter!(*name, *unit, *text),
            Gauge => metrics::describe_gauge!(*name, *unit, *text),
            Histogram => metrics::describe_histogram!(*name, *unit, *text),
        }
    }
}
