//! What counts as the same. Times may differ by as much as the comparison took.

use std::mem::discriminant;
use std::time::Duration;

use redquorum::testing::conformance::Content;
use redquorum::testing::protocol::{Refusal, Reply};

pub(crate) fn same_reply(one: &Reply, other: &Reply, within: Duration) -> bool {
    match (one, other) {
        (Reply::Refused(one), Reply::Refused(other)) => {
            let timeless = |refusal: &Refusal| Refusal { expires_in: None, ..refusal.clone() };
            timeless(one) == timeless(other) && near(one.expires_in, other.expires_in, within)
        }
        (Reply::NotAdmitted { remaining: one }, Reply::NotAdmitted { remaining: other }) => near(*one, *other, within),
        (Reply::Kept { remaining: one }, Reply::Kept { remaining: other }) => one.abs_diff(*other) <= within,
        // The words are the server's own.
        (Reply::Unknown(one), Reply::Unknown(other)) => discriminant(one) == discriminant(other),
        _ => one == other,
    }
}

pub(crate) fn same_content(one: &Content, other: &Content, within: Duration) -> bool {
    match (one, other) {
        (Content::Text(one, one_ttl), Content::Text(other, other_ttl)) => {
            one == other && near(*one_ttl, *other_ttl, within)
        }
        // Members of nearly the same score may stand in any order.
        (Content::Scores(one, one_ttl), Content::Scores(other, other_ttl)) => {
            let is_there = |(member, score): &(Vec<u8>, f64)| {
                let found = other.iter().find(|(other, _)| other == member);
                found.is_some_and(|(_, other)| other == score || (other - score).abs() <= within.as_millis() as f64)
            };
            one.len() == other.len() && one.iter().all(is_there) && near(*one_ttl, *other_ttl, within)
        }
        _ => one == other,
    }
}

fn near(one: Option<Duration>, other: Option<Duration>, within: Duration) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one.abs_diff(other) <= within,
        (one, other) => one == other,
    }
}
