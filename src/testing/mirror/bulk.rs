//! What the scripts `write_record.lua`, `extend_many.lua` and `forget_tokens.lua` do. Whoever changes one of those changes its mirror here.

use std::time::Duration;

use super::scripts::may_vote;
use super::store::Store;
use crate::protocol::{
    AdmissionRecord, AdmissionTerms, AttachedRecord, FencingToken, Instant, ProcessIdentity, RecordOrigin, Reply,
};
use crate::resource::{ADMISSION_KEY, TOKENS_KEY};

/// An admission record that is to be written.
#[derive(Clone, Debug)]
pub(crate) struct NewRecord {
    /// What must be there for it, empty for nothing.
    pub(crate) found: Vec<u8>,
    /// The process that it is for.
    pub(crate) identity: ProcessIdentity,
    /// What the process must sit out, and what is asked of it.
    pub(crate) terms: AdmissionTerms,
    /// From when on it may vote, if it follows what was found; `None` for a quarantine from now.
    pub(crate) vote_from_ms: Option<u64>,
    /// Why it is written.
    pub(crate) origin: RecordOrigin,
    /// Its order, or the least of it where a quarantine begins.
    pub(crate) order: u64,
}

/// As `write_record.lua`: what is under the record's key afterwards, or `no string`.
pub(crate) fn write_record(store: &mut Store, new: NewRecord, wall_us: u64) -> Option<Vec<u8>> {
    let key = ADMISSION_KEY.as_bytes();
    let is_other_type = store.contains(key) && store.get(key).is_none();
    let found = if is_other_type { Some(b"no string".as_slice()) } else { store.get(key) };
    if found.unwrap_or_default() != new.found {
        return found.map(<[u8]>::to_vec);
    }
    let NewRecord { identity, terms, origin, .. } = new;
    let now_ms = wall_us / 1_000;
    let (vote_from_ms, order) = match new.vote_from_ms {
        Some(from) => (from, new.order),
        None => (now_ms + new.terms.quarantine_ms, new.order.max(now_ms)),
    };
    let record = AdmissionRecord { identity, vote_from_ms, terms, origin, order }.to_wire();
    store.set(key, record.as_bytes(), None);
    Some(record.into_bytes())
}

/// As `extend_many.lua`: each key that holds its value lives for `ttl` from now on. Gives the places, from 0,
/// of the others, which are left as they are.
pub(crate) fn extend_many<'a>(
    store: &mut Store,
    leases: impl Iterator<Item = (&'a [u8], &'a [u8], Duration)>,
    attached: Option<&AttachedRecord>,
    (now, wall_us): (Instant, u64),
) -> Result<Vec<usize>, Reply> {
    store.expire(now);
    may_vote(store, attached, wall_us, false)?;
    let mut others = Vec::new();
    for (place, (key, value, ttl)) in leases.enumerate() {
        if store.get(key) == Some(value) {
            store.extend_ttl(key, now.saturating_add(ttl));
        } else {
            others.push(place);
        }
    }
    Ok(others)
}

/// How many tokens are looked at in one go (`forget_tokens.lua`).
const MOST_TOKENS: usize = 128;

/// As `forget_tokens.lua`: from which score on to go on, if there is more to look at.
pub(crate) fn forget_tokens(
    store: &mut Store,
    retention: Duration,
    is_looked_at: impl Fn(f64) -> bool,
    wall_us: u64,
) -> Option<f64> {
    let kept_us = u64::try_from(retention.as_micros()).unwrap_or(u64::MAX);
    let kept_from = FencingToken::propose((wall_us / 1_000 * 1_000).saturating_sub(kept_us), None).to_score();
    let all = store.scores(TOKENS_KEY.as_bytes());
    let is_ahead = |score: f64| FencingToken::from_score(score).is_none_or(|token| token.is_ahead_of(wall_us));
    let old: Vec<_> =
        all.iter().filter(|(_, score)| *score < kept_from && is_looked_at(*score)).take(MOST_TOKENS).collect();
    let ahead = all.iter().filter(|(_, score)| *score >= 1.0 && is_ahead(*score)).take(MOST_TOKENS);
    let gone: Vec<_> = old.iter().copied().filter(|(key, _)| !store.contains(key)).chain(ahead).collect();
    for (key, _) in gone {
        store.remove_score(TOKENS_KEY.as_bytes(), key);
    }
    old.last().filter(|_| old.len() == MOST_TOKENS).map(|(_, score)| *score)
}
