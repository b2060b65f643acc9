//! What the scripts `write_record.lua`, `open.lua` and `forget_tokens.lua` do. A change of one of those changes its mirror here.

use super::scripts::floor;
use super::store::Store;
use crate::instance::Trace;
use crate::protocol::{AdmissionRecord, FencingToken, MAX_AHEAD, ProcessIdentity, RecordOrigin};
use crate::resource::{ADMISSION_KEY, FLOOR_KEY, NO_LOCK, TOKENS_KEY};

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
    /// The least and the most of the floor where it waits from now, in microseconds since 2025.
    pub floor_us: (u64, u64),
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
    if new.wait_ms.is_some() {
        let (least, most) = new.floor_us;
        let by_clock = FencingToken::propose(vote_from_ms.saturating_mul(1_000), None).proposed_us();
        let ahead_us = MAX_AHEAD.as_secs() * 1_000_000;
        let latest = FencingToken::since_epoch_us(wall_us / 1_000 * 1_000).saturating_add_unsigned(ahead_us);
        let latest = u64::try_from(latest).unwrap_or(0); // above it would count as none (P12)
        let stored = store.get(FLOOR_KEY.as_bytes()).and_then(FencingToken::from_wire);
        let new = least.max(most.min(by_clock)).min(latest);
        if stored.is_some_and(|stored| stored.is_ahead_of(wall_us)) {
            store.set(FLOOR_KEY.as_bytes(), new.to_string().as_bytes(), None);
        }
        raise_floor(store, new, wall_us);
    }
    let record = AdmissionRecord { identity, vote_from_ms, longest_ttl_ms, origin, order }.to_wire();
    store.set(key, record.as_bytes(), None);
    Some(record.into_bytes())
}

/// As `open.lua`: the trace of use that is found, of `others` what the store does not know. Where there is none the record is written.
pub(crate) fn open(
    store: &mut Store,
    (identity, longest_ttl_ms, writes): (ProcessIdentity, u64, bool),
    (listener, flushed): (Option<Trace>, Option<Trace>),
    wall_us: u64,
) -> Trace {
    let key = ADMISSION_KEY.as_bytes();
    if store.contains(key) {
        let record = store.get(key).unwrap_or(b"no string");
        return Trace::Record(String::from_utf8_lossy(record).into_owned());
    }
    let mut tokens = store.scores(TOKENS_KEY.as_bytes()).into_iter().map(|(lock, _)| lock).take(2);
    if let Some(lock) = tokens.find(|lock| lock != NO_LOCK.as_bytes()) {
        return Trace::Token(String::from_utf8_lossy(&lock).into_owned());
    }
    let has_floor = store.get(FLOOR_KEY.as_bytes()).is_some();
    let there_were_tokens = || has_floor.then(|| Trace::Token(FLOOR_KEY.to_owned()));
    if let Some(trace) = listener.or_else(there_were_tokens).or(flushed) {
        return trace;
    }
    if writes {
        let (now_ms, origin) = (wall_us / 1_000, RecordOrigin::Opened);
        let record = AdmissionRecord { identity, vote_from_ms: now_ms, longest_ttl_ms, origin, order: now_ms };
        store.set(key, record.to_wire().as_bytes(), None);
    }
    Trace::Unused
}

/// How many tokens are forgotten in one go, of those that are old and of those that no clock has made (`forget_tokens.lua`).
const MOST_TOKENS: usize = 256;

/// As `forget_tokens.lua`: how many tokens are left, and how many of them are below the floor.
pub fn forget_tokens(store: &mut Store, up_to_us: i64, retention_us: u64, wall_us: u64) -> (usize, usize) {
    let tokens = TOKENS_KEY.as_bytes();
    let own_us = FencingToken::since_epoch_us(wall_us).saturating_sub_unsigned(retention_us);
    raise_floor(store, u64::try_from(own_us.min(up_to_us)).unwrap_or(0), wall_us);
    let is_ahead = |score: f64| FencingToken::from_score(score).is_none_or(|token| token.is_ahead_of(wall_us));
    let ahead = store.scores(tokens).into_iter().rev().take_while(|(_, score)| *score >= 1.0 && is_ahead(*score));
    ahead.take(MOST_TOKENS).for_each(|(member, _)| _ = store.remove_score(tokens, &member));
    let _ = store.set_score(tokens, NO_LOCK.as_bytes(), 0.0);
    let floor = floor(store, wall_us).map_or(0.0, FencingToken::to_score);
    let old: Vec<_> = store.scores(tokens).into_iter().filter(|(_, score)| 0.0 < *score && *score <= floor).collect();
    old.iter().take(MOST_TOKENS).for_each(|(member, _)| _ = store.remove_score(tokens, member));
    let left = store.scores(tokens).into_iter().filter(|(_, score)| *score > 0.0).count();
    (left, old.len().saturating_sub(MOST_TOKENS))
}

/// The floor never falls, unless no clock can have made it (P13).
fn raise_floor(store: &mut Store, to_us: u64, wall_us: u64) {
    if floor(store, wall_us).map_or(0, FencingToken::proposed_us) < to_us {
        store.set(FLOOR_KEY.as_bytes(), to_us.to_string().as_bytes(), None);
    }
}
