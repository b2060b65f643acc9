//! What several files of a layer may import.

pub(super) const ROUND: &[&str] = &[
    "protocol::fencing",
    "protocol::instance_set",
    "protocol::quorum",
    "protocol::round::cause",
    "protocol::round::reply",
    "protocol::terms",
    "protocol::time",
];

pub(super) const LEASE: &[&str] = &[
    "protocol::fencing",
    "protocol::instance_set",
    "protocol::lease::key_presence",
    "protocol::quorum",
    "protocol::round::*",
    "protocol::terms",
    "protocol::time",
];

pub(super) const INSTANCE: &[&str] = &[
    "protocol",
    "resource",
    "instance::key_check",
    "instance::relay",
    "instance::command_size",
    "instance::examination",
    "instance::requests",
    "instance::status",
    "instance::stored_key",
];

pub(super) const ADMISSION_STATE: &[&str] =
    &["protocol::admission::clock_watch", "protocol::admission::record", "protocol::round::reply", "protocol::time"];

pub(super) const SHARED: &[&str] = &[
    "protocol",
    "instance",
    "clock",
    "resource",
    "token",
    "runtime::acquire::ask_limit",
    "runtime::acquire::limiter",
    "runtime::acquire::line::lines",
    "runtime::acquire::reentry_table",
    "runtime::acquire::tracker",
    "runtime::background_release",
    "runtime::counters",
    "foreign",
    "runtime::held_lease",
    "runtime::keep_alive",
    "runtime::succession",
    "runtime::wait_events",
];

pub(super) const KEEP_ALIVE: &[&str] = &[
    "protocol",
    "instance",
    "clock",
    "runtime::counters",
    "foreign",
    "runtime::held_lease",
    "runtime::lasting_task",
    "runtime::keep_alive::*",
];

/// What asks all instances is `examine`'s.
pub(super) const INSPECT: &[&str] =
    &["protocol", "instance", "resource", "runtime::client_task", "runtime::examine", "runtime::shared"];

pub(super) const ROUNDS: &[&str] =
    &["protocol", "instance", "runtime::client_task", "runtime::held_lease", "runtime::in_flight", "runtime::shared"];

pub(super) const LINE: &[&str] = &[
    "protocol",
    "clock",
    "resource",
    "runtime::acquire::failure",
    "runtime::acquire::line::*",
    "runtime::acquire::params",
    "runtime::client_task",
    "foreign",
    "runtime::held_lease",
    "runtime::wait_events",
];

pub(super) const ACQUIRE: &[&str] = &[
    "protocol",
    "random",
    "resource",
    "instance",
    "runtime::acquire::*",
    "runtime::client_task",
    "runtime::extend",
    "foreign",
    "runtime::held_lease",
    "runtime::in_flight",
    "runtime::shared",
    "runtime::succession",
    "runtime::wait_events",
];

pub(super) const STREAM: &[&str] = &[
    "instance::redis::address",
    "instance::redis::byte_stream",
    "instance::redis::classify",
    "instance::redis::reply_limit",
    "instance::redis::tls",
    "protocol",
];

pub(super) const SUCCESSION: &[&str] = &[
    "protocol",
    "random",
    "resource",
    "instance",
    "clock",
    "foreign",
    "runtime::held_lease",
    "runtime::lasting_task",
    "runtime::succession::*",
    "runtime::wait_events",
];
