//! What the scripts do, step by step as in `acquire.lua`, `extend.lua`, `release.lua` and
//! `pass_on.lua`. Whoever changes one of those changes its mirror here.

use std::time::Duration;

use super::store::{Store, WrongType};
use crate::instance::{Claim, Request, Successors};
use crate::protocol::{AttachedRecord, Cause, ClientId, FencingToken, Instant, Refusal, Reply};
use crate::resource::{ADMISSION_KEY, TOKENS_KEY};

/// How much of a value that stands in the way is reported (`refusal.lua`).
const MOST_OF_A_VALUE: usize = 2048;

/// Carries a request out at `now`, when the instance's wall clock reads `wall_us`. `attached` is the
/// admission record that the request names, if any.
pub(crate) fn run(
    store: &mut Store,
    request: &Request,
    attached: Option<&AttachedRecord>,
    (now, wall_us): (Instant, u64),
) -> Reply {
    store.expire(now);
    let instant_left_out =
        matches!(request, Request::Acquire(_)) && attached.is_some_and(|attached| attached.quarantine_over);
    let may_vote = may_vote(store, attached, wall_us, instant_left_out);
    let mut script = Script { store, claim: request.claim(), may_vote, now, wall_us };
    let ended = match request {
        Request::Acquire(_) => script.acquire(),
        Request::Extend(_) => script.extend(),
        Request::Release(_) => Ok(script.release()),
        Request::PassOn(_, successors) => Ok(script.pass_on(successors)),
    };
    ended.unwrap_or_else(|WrongType| {
        let text = "WRONGTYPE Operation against a key holding the wrong kind of value";
        Reply::Unknown(Cause::Server(text.to_owned()))
    })
}

/// As `admission.lua` and `clock.lua`: the refusal, unless the instance may vote (P14).
pub(crate) fn may_vote(
    store: &Store,
    attached: Option<&AttachedRecord>,
    wall_us: u64,
    instant_left_out: bool,
) -> Result<(), Reply> {
    let Some(attached) = attached else { return Ok(()) };
    let record = &attached.record;
    let remaining = if store.get(ADMISSION_KEY.as_bytes()) != Some(attached.wire().as_bytes()) {
        None
    } else if instant_left_out {
        Some(Duration::ZERO)
    } else {
        Some(Duration::from_millis(record.vote_from_ms.saturating_mul(1000).saturating_sub(wall_us).div_ceil(1000)))
    };
    if remaining == Some(Duration::ZERO) { Ok(()) } else { Err(Reply::NotAdmitted { remaining }) }
}

struct Script<'a> {
    store: &'a mut Store,
    claim: &'a Claim,
    may_vote: Result<(), Reply>,
    now: Instant,
    wall_us: u64,
}

impl<'a> Script<'a> {
    fn keys(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.claim.resources.lock_keys()
    }

    fn acquire(&mut self) -> Result<Reply, WrongType> {
        if let Err(refused) = &self.may_vote {
            return Ok(refused.clone()); // P14
        }
        if self.claim.token.is_ahead_of(self.wall_us) {
            return Ok(self.behind()); // P12
        }
        let expires_at = self.now.saturating_add(self.claim.ttl);
        let (mut taken, mut reserved) = (Vec::new(), Vec::new());
        for (index, key) in self.keys().enumerate() {
            if self.store.set_if_absent(key, self.claim.value.as_bytes(), Some(expires_at)) {
                taken.push(key);
            } else if self.is_own(key) {
                self.store.extend_ttl(key, expires_at); // P12
            } else if self.is_reserved(key) {
                reserved.push(key); // P26
            } else {
                self.roll_back(&taken); // P11
                return Ok(self.refused(index));
            }
        }
        if let Some(stored) = self.larger_token()? {
            self.roll_back(&taken);
            return Ok(Reply::Stale { stored }); // P12
        }
        for key in self.keys() {
            self.store_token(key, self.claim.token)?;
        }
        for key in reserved {
            self.store.set(key, self.claim.value.as_bytes(), Some(expires_at));
        }
        Ok(Reply::Granted)
    }

    fn extend(&mut self) -> Result<Reply, WrongType> {
        if let Err(refused) = &self.may_vote {
            return Ok(refused.clone()); // P10
        }
        if self.claim.token.is_ahead_of(self.wall_us) {
            return Ok(self.behind()); // P12
        }
        let blocked = |key| self.store.contains(key) && !self.is_own(key);
        if let Some(index) = self.keys().position(blocked) {
            return Ok(self.refused(index)); // P8
        }
        let expires_at = self.now.saturating_add(self.claim.ttl);
        let missing: Vec<_> = self.keys().filter(|key| !self.store.contains(key)).collect();
        for (index, key) in self.keys().enumerate() {
            if !self.store.contains(key) && self.stored(key)? == Some(self.claim.token.tombstone()) {
                return Ok(self.refused(index)); // P6: released, this extend is late
            }
        }
        for key in self.keys() {
            self.store.extend_ttl(key, expires_at);
        }
        let reply = if missing.is_empty() { Reply::Granted } else { Reply::Repaired };
        for key in missing {
            self.store.set(key, self.claim.value.as_bytes(), Some(expires_at)); // P10
        }
        for key in self.keys() {
            self.raise_token(key, self.claim.token)?;
        }
        Ok(reply)
    }

    fn release(&mut self) -> Reply {
        let mut deleted = 0;
        for key in self.keys() {
            let own = self.is_own(key) && self.store.remove(key);
            deleted += usize::from(own);
            if self.claim.resent || !own {
                self.set_tombstone(key); // P6
            }
        }
        let all = deleted == self.claim.resources.len();
        if all { Reply::Granted } else { Reply::Refused(Refusal::default()) }
    }

    fn pass_on(&mut self, successors: &Successors) -> Reply {
        let mut all = true;
        for key in self.keys() {
            let own = give_up(self.store, key, Some(self.claim.value.as_bytes()), successors, self.now);
            if self.claim.resent || !own {
                self.set_tombstone(key); // P6
            }
            all &= own;
        }
        if all { Reply::Granted } else { Reply::Refused(Refusal::default()) }
    }

    /// As `reservation.lua`: whether a key is kept for the client that asks.
    fn is_reserved(&self, key: &[u8]) -> bool {
        let client = ClientId::of_value(self.claim.value.as_bytes());
        client.is_some_and(|client| self.store.get(key) == Some(&client.reservation()))
    }

    fn is_own(&self, key: &[u8]) -> bool {
        self.store.get(key) == Some(self.claim.value.as_bytes())
    }

    fn roll_back(&mut self, taken: &[&[u8]]) {
        for key in taken {
            self.store.remove(key);
        }
    }

    fn refused(&self, resource: usize) -> Reply {
        let key = self.keys().nth(resource).unwrap_or_default();
        Reply::Refused(Refusal {
            resource,
            value: self.store.get(key).map(|value| value.iter().take(MOST_OF_A_VALUE).copied().collect()),
            expires_in: self.store.ttl(key, self.now),
            token: self.stored(key).ok().flatten(),
        })
    }

    /// What is stored for a lock (`tokens.lua`); nothing that is no token is ever larger than one.
    fn stored(&self, key: &[u8]) -> Result<Option<FencingToken>, WrongType> {
        Ok(self.store.score(TOKENS_KEY.as_bytes(), key)?.and_then(FencingToken::from_score))
    }

    /// As `larger_token.lua`.
    fn larger_token(&self) -> Result<Option<FencingToken>, WrongType> {
        let stored: Result<Vec<_>, WrongType> = self.keys().map(|key| self.stored(key)).collect();
        let counts = |stored: &FencingToken| *stored >= self.claim.token && !stored.is_ahead_of(self.wall_us);
        Ok(stored?.into_iter().flatten().filter(counts).max())
    }

    fn behind(&self) -> Reply {
        let (clock_s, token_s) = (self.wall_us / 1_000_000, self.claim.token.clock_us() / 1_000_000);
        Reply::Unknown(Cause::ClockBehind { clock_s, token_s })
    }

    fn store_token(&mut self, key: &[u8], token: FencingToken) -> Result<(), WrongType> {
        self.store.set_score(TOKENS_KEY.as_bytes(), key, token.to_score())
    }

    /// As in `tokens.lua`.
    fn raise_token(&mut self, key: &[u8], token: FencingToken) -> Result<(), WrongType> {
        let larger = self.stored(key)?.filter(|stored| *stored >= token && !stored.is_ahead_of(self.wall_us));
        if larger.is_none() { self.store_token(key, token) } else { Ok(()) }
    }

    /// As `tombstone.lua`.
    fn set_tombstone(&mut self, key: &[u8]) {
        let tombstone = self.claim.token.tombstone();
        if !tombstone.is_ahead_of(self.wall_us) {
            let _ = self.raise_token(key, tombstone); // the release goes on
        }
    }
}

/// As in `pass_on.lua`: whether `value` was under the key, which is kept for a successor or deleted.
pub(crate) fn give_up(
    store: &mut Store,
    key: &[u8],
    value: Option<&[u8]>,
    successors: &Successors,
    now: Instant,
) -> bool {
    if store.get(key) != value {
        return false;
    }
    let mut clients = successors.clients.iter();
    match clients.find(|client| store.publish(&client.channel(), &successors.message)) {
        Some(next) => store.set(key, &next.reservation(), Some(now.saturating_add(successors.grace))),
        None => return store.remove(key),
    }
    true
}
