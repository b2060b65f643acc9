//! What a lock looks like from outside.

use std::sync::Arc;
use std::time::Duration;

use crate::error::{Unanswered, answered};
use crate::instance::StoredKey;
use crate::protocol::{CurrentHolder, FencingToken, HolderKind};
use crate::resource::Resource;
use crate::runtime::Shared;
use crate::runtime::ask_all::{read_all, take_away};

/// Who holds a lock, as the instances report; the result of [`Redlock::inspect`](crate::Redlock::inspect).
///
/// The instances are read one after the other's answer, and not at one moment: while a lock changes hands it may show both.
///
/// With the feature `serde` it can be serialised: the fields as they are named here, and `expires_in_ms` in milliseconds.
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Inspection {
    /// The resource, with the namespace.
    pub resource: String,
    /// All that have it on some instances: a writer or readers, and writers that wait for readers ([`CurrentHolder::kind`]), one for each value that is
    /// stored, and first the one on most instances. Two attempts of one client, or of others without an identity, look alike. Of readers the first 64.
    pub holders: Vec<FoundHolder>,
    /// The addresses of the instances on which it is free.
    pub free_on: Vec<String>,
    /// The instances that did not answer.
    pub unknown: Vec<Unanswered>,
    /// The largest fencing token that is stored: the last holder's, or a larger one of an attempt that was refused since. Every
    /// later holder has a larger one.
    pub largest_token: Option<FencingToken>,
    /// How many instances are needed for a lock.
    pub quorum: usize,
    /// How many of this client wait for it.
    pub waiting_here: usize,
    /// How many other clients have announced to this one that they wait for it, as in
    /// [`HeldBy::waiting_elsewhere`](crate::HeldBy::waiting_elsewhere).
    pub waiting_elsewhere: usize,
}

/// A client that has a lock on some instances.
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FoundHolder {
    /// Who it is, as far as the stored value shows.
    pub by: CurrentHolder,
    /// What is stored there, if it is no lock of this library: the server's type, as `hash`. A `string` may be a lock of another
    /// library. No command of this library deletes it.
    pub other_type: Option<String>,
    /// Whether it is a mark that [`Guard::keep_for`](crate::Guard::keep_for) has left, as its end shows: no lease lasts for so long. A
    /// mark that ends sooner looks like its former holder.
    pub is_mark: bool,
    /// When the first of the keys expires, unless it is renewed; `None` if one of them never does. Of readers: when the last of them ends.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "expires_in_ms", serialize_with = "crate::serialized::optional_millis")
    )]
    pub expires_in: Option<Duration>,
    /// The addresses of the instances.
    pub on: Vec<String>,
}

impl Inspection {
    /// Who has it on a quorum of instances; of readers, one of them. A client that has fewer is trying, or has lost it. A lock that is kept for
    /// a waiter has no holder.
    #[must_use]
    pub fn holder(&self) -> Option<&FoundHolder> {
        let has_it =
            |holder: &&FoundHolder| holder.on.len() >= self.quorum && holder.by.kind != HolderKind::WaitingWriter;
        self.holders.first().filter(has_it)
    }
}

/// The result of [`Redlock::force_release`](crate::Redlock::force_release).
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ForcedRelease {
    /// The addresses of the instances on which it was deleted.
    pub released_on: Vec<String>,
    /// Those on which another client, or none, had it.
    pub not_theirs_on: Vec<String>,
    /// Those of which it is not known: the address, and why.
    pub unknown: Vec<Unanswered>,
    /// How many instances are needed for a lock.
    pub quorum: usize,
}

impl ForcedRelease {
    /// Whether so many instances are without the holder's key that no quorum can have it any more.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.unknown.len() < self.quorum
    }
}

pub(crate) async fn inspect(shared: &Arc<Shared>, resource: &Resource) -> Inspection {
    let waiting = shared.known_waiters(resource);
    let (found, unknown) = answered(shared, read_all(shared, resource).await);
    let mut inspection = Inspection {
        resource: resource.display(),
        holders: Vec::new(),
        free_on: Vec::new(),
        unknown,
        largest_token: found.iter().filter_map(|(_, stored)| stored.token).max(),
        quorum: shared.quorum.votes(),
        waiting_here: waiting.here,
        waiting_elsewhere: waiting.elsewhere,
    };
    let mut values: Vec<Vec<u8>> = Vec::new(); // of the holders, in their order
    for (address, StoredKey { value, readers, expires_in, other_type, .. }) in found {
        if value.is_none() && readers.is_empty() && other_type.is_none() {
            inspection.free_on.push(address);
            continue;
        }
        let of_value = value.into_iter().map(|value| {
            let by = CurrentHolder::from_value(&value);
            (by.client.is_none().then(|| "string".to_owned()), by, value)
        });
        let of_readers = readers.into_iter().map(|value| (None, CurrentHolder::of_member(&value), value));
        let of_others = other_type.into_iter().map(|other| (Some(other), CurrentHolder::default(), Vec::new()));
        for (other_type, by, value) in of_value.chain(of_readers).chain(of_others) {
            let mut holders = inspection.holders.iter_mut().zip(&values);
            match holders.find(|(holder, known)| **known == value && holder.other_type == other_type) {
                Some((holder, _)) => {
                    holder.on.push(address.clone());
                    holder.expires_in = holder.expires_in.zip(expires_in).map(|(a, b)| a.min(b));
                }
                None => {
                    let on = vec![address.clone()];
                    inspection.holders.push(FoundHolder { by, other_type, is_mark: false, expires_in, on });
                    values.push(value);
                }
            }
        }
    }
    // P29: no lease lasts longer than every record allows.
    let longest = shared.instances.iter().filter_map(|instance| instance.status().max_ttl).max();
    for holder in &mut inspection.holders {
        let is_lock = holder.by.kind == HolderKind::Lock && holder.other_type.is_none();
        holder.is_mark = is_lock && longest.is_some() && holder.expires_in > longest;
    }
    let waits = |holder: &FoundHolder| holder.by.kind == HolderKind::WaitingWriter;
    inspection.holders.sort_by_key(|holder| (waits(holder), std::cmp::Reverse(holder.on.len())));
    inspection
}

pub(crate) async fn force_release(
    shared: &Arc<Shared>,
    resource: &Resource,
    expected: &CurrentHolder,
) -> ForcedRelease {
    let (taken, unknown) = answered(shared, take_away(shared, resource, expected).await);
    let on = |released: bool| -> Vec<String> {
        taken.iter().filter(|(_, was)| *was == released).map(|(address, _)| address.clone()).collect()
    };
    let (released_on, not_theirs_on) = (on(true), on(false));
    let resource = resource.display();
    let from = expected;
    if released_on.is_empty() {
        tracing::info!(resource, %from, ?unknown, "no instance is known to have had the lock that was to be taken away");
    } else {
        tracing::warn!(resource, %from, ?released_on, ?unknown, "a lock was taken away from its holder by force");
    }
    ForcedRelease { released_on, not_theirs_on, unknown, quorum: shared.quorum.votes() }
}
