//! What the scripts do, step by step as in `acquire.lua`, `extend.lua` and `release.lua`. A change of one of those changes its mirror here.

use std::time::Duration;

use super::readers::Published;
use super::store::{Store, WrongType};
use crate::instance::{Claim, Request};
use crate::protocol::{Access, AttachedRecord, Cause, FencingToken, Instant, Refusal, Reply};
use crate::resource::{ADMISSION_KEY, FLOOR_KEY, TOKENS_KEY};

/// How much of the rival's value is reported.
const MOST_OF_A_VALUE: usize = 2048;

/// Carries a request out at `now`, when the instance's wall clock reads `wall_us`. `attached` is the
/// admission record that the request names, if any; an extend sets a key that is missing only if it `repairs`. Where memory
/// `is_full`, what adds something is refused, and what keeps is not.
pub(crate) fn run(
    store: &mut Store,
    request: &Request,
    (attached, is_full): (Option<&AttachedRecord>, bool),
    (now, wall_us): (Instant, u64),
) -> (Reply, Published) {
    store.expire(now);
    let left = quarantine_left(store, attached, wall_us);
    let claim = request.claim();
    let mut script = Script { store, claim, key: claim.resource.key(), left, is_full, now, wall_us };
    let ended = match request {
        Request::Release(..) if claim.access == Access::Read => return script.leave(),
        Request::Acquire(_) if claim.access == Access::Read => script.read(false),
        Request::Extend(_) | Request::Keep(_) if claim.access == Access::Read => script.read(true),
        Request::Acquire(_) => script.acquire(),
        Request::Extend(_) => script.extend(true),
        Request::Keep(_) => script.extend(false),
        Request::Release(..) => Ok(script.release()),
    };
    let reply = ended.unwrap_or_else(|WrongType| {
        let text = "WRONGTYPE Operation against a key holding the wrong kind of value";
        Reply::Unknown(Cause::Server(text.to_owned()))
    });
    (reply, None)
}

/// How long the instance is still in quarantine, `None` under another record (P14).
pub(crate) fn quarantine_left(store: &Store, attached: Option<&AttachedRecord>, wall_us: u64) -> Option<Duration> {
    let Some(attached) = attached else { return Some(Duration::ZERO) };
    let record = &attached.record;
    if store.get(ADMISSION_KEY.as_bytes()) != Some(attached.wire().as_bytes()) {
        None
    } else {
        Some(Duration::from_millis(record.vote_from_ms.saturating_mul(1000).saturating_sub(wall_us).div_ceil(1000)))
    }
}

/// The floor, if it counts (P13).
pub(crate) fn floor(store: &Store, wall_us: u64) -> Option<FencingToken> {
    let floor = store.get(FLOOR_KEY.as_bytes()).and_then(FencingToken::from_wire);
    floor.filter(|floor| !floor.is_ahead_of(wall_us))
}

/// What is left of a lease that was released (P6).
fn tombstone(key: &[u8], value: &[u8]) -> Vec<u8> {
    [value, b" ", key].concat()
}

/// Whether a lease was released, and something of it may come late.
pub(crate) fn has_tombstone(store: &Store, key: &[u8], value: &[u8]) -> Result<bool, WrongType> {
    Ok(store.score(TOKENS_KEY.as_bytes(), &tombstone(key, value))?.is_some())
}

pub(super) struct Script<'a> {
    pub(super) store: &'a mut Store,
    pub(super) claim: &'a Claim,
    pub(super) key: &'a [u8],
    pub(super) left: Option<Duration>,
    pub(super) is_full: bool,
    pub(super) now: Instant,
    pub(super) wall_us: u64,
}

impl Script<'_> {
    fn acquire(&mut self) -> Result<Reply, WrongType> {
        if self.left != Some(Duration::ZERO) {
            return Ok(Reply::NotAdmitted { remaining: self.left }); // P14
        }
        if self.claim.token.is_ahead_of(self.wall_us) {
            return Ok(self.behind()); // P12
        }
        if self.is_full {
            return Ok(Reply::Unknown(Cause::OutOfMemory)); // P10: its SET comes first
        }
        let (key, value) = (self.key, self.claim.value.as_bytes());
        let expires_at = self.now.saturating_add(self.claim.ttl);
        let mut is_taken = self.store.set_if_absent(key, value, Some(expires_at));
        if !is_taken && self.is_set_of_readers() {
            if let Some(before) = self.beside_readers()? {
                return Ok(self.refused_by(Some(before))); // P33, P34
            }
            self.store.set(key, value, Some(expires_at));
            is_taken = true;
        }
        if !is_taken && self.is_own() {
            self.store.extend_ttl(key, expires_at); // P12
        } else if !is_taken {
            return Ok(self.refused());
        }
        if let Some(stored) = self.larger_token()? {
            if is_taken {
                self.store.remove(key);
            }
            return Ok(Reply::Stale { stored }); // P12
        }
        self.store_token(self.claim.token)?;
        Ok(Reply::Granted)
    }

    fn extend(&mut self, repairs: bool) -> Result<Reply, WrongType> {
        let Some(left) = self.left else {
            return Ok(Reply::NotAdmitted { remaining: None }); // P14
        };
        if self.claim.token.is_ahead_of(self.wall_us) {
            return Ok(self.behind()); // P12
        }
        let is_there = self.store.contains(self.key);
        if is_there && !self.is_own() {
            return Ok(self.refused()); // P8
        }
        let expires_at = self.now.saturating_add(self.claim.ttl);
        if is_there {
            self.store.extend_ttl(self.key, expires_at);
        } else if !left.is_zero() || !repairs || self.has_tombstone()? {
            // P10: in quarantine it keeps what it has, and sets nothing. P6: or it was released, and this extend is late.
            return Ok(self.refused());
        } else {
            self.store.set(self.key, self.claim.value.as_bytes(), Some(expires_at)); // P10
        }
        self.raise_token()?;
        Ok(match left {
            Duration::ZERO if is_there => Reply::Granted,
            Duration::ZERO => Reply::Repaired,
            remaining => Reply::Kept { remaining },
        })
    }

    fn release(&mut self) -> Reply {
        let own = self.is_own() && self.store.remove(self.key);
        if self.claim.resent || !own {
            self.bury(); // P6
        }
        if own { Reply::Granted } else { Reply::Refused(Refusal::default()) }
    }

    fn is_own(&self) -> bool {
        self.store.get(self.key) == Some(self.claim.value.as_bytes())
    }

    fn refused(&self) -> Reply {
        self.refused_by(self.store.get(self.key).map(<[u8]>::to_vec))
    }

    /// A refusal of readers has no token.
    pub(super) fn refused_by(&self, value: Option<Vec<u8>>) -> Reply {
        let reads = self.claim.access == Access::Read;
        Reply::Refused(Refusal {
            value: value.map(|value| value.into_iter().take(MOST_OF_A_VALUE).collect()),
            expires_in: self
                .store
                .contains(self.key)
                .then(|| self.store.ttl(self.key, self.now).unwrap_or(Duration::MAX)),
            token: self.stored().ok().flatten().filter(|_| !reads),
        })
    }

    /// What is stored for a lock ; nothing that is no token is ever larger than one.
    fn stored(&self) -> Result<Option<FencingToken>, WrongType> {
        Ok(self.store.score(TOKENS_KEY.as_bytes(), self.key)?.and_then(FencingToken::from_score))
    }

    /// The stored token, or the floor, if the larger of them is not smaller than the proposed one (P12, P13).
    fn larger_token(&self) -> Result<Option<FencingToken>, WrongType> {
        let largest = self.stored()?.filter(|stored| !stored.is_ahead_of(self.wall_us)).max(self.floor());
        Ok(largest.filter(|largest| *largest >= self.claim.token))
    }

    fn floor(&self) -> Option<FencingToken> {
        floor(self.store, self.wall_us)
    }

    fn behind(&self) -> Reply {
        let (clock_s, token_s) = (self.wall_us / 1_000_000, self.claim.token.clock_us() / 1_000_000);
        Reply::Unknown(Cause::ClockBehind { clock_s, token_s })
    }

    fn store_token(&mut self, token: FencingToken) -> Result<(), WrongType> {
        self.store.set_score(TOKENS_KEY.as_bytes(), self.key, token.to_score())
    }

    /// Stores the lease's token unless a larger one counts.
    fn raise_token(&mut self) -> Result<(), WrongType> {
        if self.larger_token()?.is_none() { self.store_token(self.claim.token) } else { Ok(()) }
    }

    fn has_tombstone(&self) -> Result<bool, WrongType> {
        has_tombstone(self.store, self.key, self.claim.value.as_bytes())
    }

    /// The release continues if this cannot be stored.
    fn bury(&mut self) {
        if self.is_full || self.claim.token.is_ahead_of(self.wall_us) || self.raise_token().is_err() {
            return;
        }
        let least = self.floor().map_or(0.0, |floor| floor.to_score() + 1.0);
        let time = FencingToken::propose(self.wall_us, None).to_score().max(least);
        let _ = self.store.set_score(TOKENS_KEY.as_bytes(), &tombstone(self.key, self.claim.value.as_bytes()), time);
    }
}
