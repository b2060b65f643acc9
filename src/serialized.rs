//! The form of times and words in what is serialised. Programs rely on the names.

use std::fmt::Display;
use std::time::Duration;

use serde::Serializer;

/// In whole milliseconds.
pub(crate) fn millis<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(in_millis(*time))
}

pub(crate) fn optional_millis<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => serializer.serialize_some(&in_millis(*time)),
        None => serializer.serialize_none(),
    }
}

pub(crate) fn text<S: Serializer>(value: &impl Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

fn in_millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
