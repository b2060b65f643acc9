//! What the scripts `write_record.lua`, `open.lua` and `forget_tokens.lua` do. A change of one of those changes its mirror here.

use std::time::Duration;

use super::store::Store;
use crate::instance::Trace;
use crate::protocol::{AdmissionRecord, FencingToken, ProcessIdentity, RecordOrigin};
use crate::resource::{ADMISSION_KEY, TOKENS_KEY};

/// An admission record that is to be written.
#[derive(Clone, Debug)]
pub struct Admission {
    /// What must be there for it, empty for nothing.
    pub found: Vec<u8>,
    /// The process that it is for.
    pub identity: ProcessIdentity,
    /// The longest ttl that it allows.
    pub longest_ttl_ms: u64,
    /// Why it is written.
    pub origin: RecordOrigin,
    /// The least instant from which the process may vote.
    pub vote_from_ms: u64,
    /// For how long it waits from now; `None` if it only follows what was found.
    pub wait_ms: Option<u64>,
    /// Its order, or the least of it where it waits from now.
    pub order: u64,
}

/// As `write_record.lua`: what is under the record's key afterwards, or `no string`.
pub fn write_record(store: &mut Store, new: &Admission, wall_us: u64) -> Option<Vec<u8>> {
    let key = ADMISSION_KEY.as_bytes();
    let is_other_type = store.contains(key) && store.get(key).is_none();
    let found = if is_other_type { Some(b"no string".as_slice()) } else { store.get(key) };
    if found.unwrap_or_default() != new.found {
        return found.map(<[u8]>::to_vec);
    }
    let Admission { identity, longest_ttl_ms, origin, .. } = new.clone();
    let now_ms = wall_us / 1_000;
    let (vote_from_ms, order) = match new.wait_ms {
        Some(wait_ms) => (new.vote_from_ms.max(now_ms + wait_ms), new.order.max(now_ms)),
        None => (new.vote_from_ms, new.order),
    };
    let record = AdmissionRecord { identity, vote_from_ms, longest_ttl_ms, origin, order }.to_wire();
    store.set(key, record.as_bytes(), None);
    Some(record.into_bytes())
}

/// As `open.lua`: the trace of use that is found, of `others` what the store does not know. Where there is none the record is written.
pub(crate) fn open(
    store: &mut Store,
    (identity, longest_ttl_ms, writes): (ProcessIdentity, u64, bool),
    others: impl FnOnce() -> Option<Trace>,
    wall_us: u64,
) -> Trace {
    let key = ADMISSION_KEY.as_bytes();
    if store.contains(key) {
        let record = store.get(key).unwrap_or(b"no string");
        return Trace::Record(String::from_utf8_lossy(record).into_owned());
    }
    if let Some((lock, _)) = store.scores(TOKENS_KEY.as_bytes()).first() {
        return Trace::Token(String::from_utf8_lossy(lock).into_owned());
    }
    if let Some(trace) = others() {
        return trace;
    }
    if writes {
        let (now_ms, origin) = (wall_us / 1_000, RecordOrigin::Opened);
        let record = AdmissionRecord { identity, vote_from_ms: now_ms, longest_ttl_ms, origin, order: now_ms };
        store.set(key, record.to_wire().as_bytes(), None);
    }
    Trace::Unused
}

/// How many tokens are looked at in one go (`forget_tokens.lua`).
const MOST_TOKENS: usize = 128;

/// As `forget_tokens.lua`: from which score on to continue, if there is more to look at.
pub fn forget_tokens(
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
