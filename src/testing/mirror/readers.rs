//! What `read.lua` does, and `acquire.lua` where readers have the lock. A change of one of those changes its mirror here.

use std::time::Duration;

use super::scripts::Script;
use super::store::WrongType;
use crate::protocol::{Cause, ClientId, Message, READERS, Refusal, Reply, WriterMark};

/// For how long a mark counts, and is given.
const LONGEST_MARK_MS: f64 = 3_000.0;

/// What is published: over which channel, and what.
pub(crate) type Published = Option<(String, Vec<u8>)>;

impl Script<'_> {
    pub(super) fn read(&mut self, renews: bool) -> Result<Reply, WrongType> {
        let Some(left) = self.left.filter(|left| renews || left.is_zero()) else {
            return Ok(Reply::NotAdmitted { remaining: self.left }); // P14
        };
        let is_ours = self.is_set_of_readers();
        if !is_ours && self.store.contains(self.key) {
            return Ok(self.refused_by(self.store.get(self.key).map(<[u8]>::to_vec)));
        }
        let now_ms = self.now_ms();
        let value = self.claim.value.as_bytes();
        let is_there = is_ours && self.store.score(self.key, value)?.is_some_and(|end| end > now_ms);
        if renews && !is_there && !left.is_zero() {
            return Ok(self.refused_by(None)); // P10
        }
        if !renews
            && !is_there
            && let Some(mark) = self.first_mark()
        {
            return Ok(self.refused_by(Some(mark))); // P34
        }
        if self.is_full && !renews {
            return Ok(Reply::Unknown(Cause::OutOfMemory)); // P10
        }
        self.add_reader()?;
        Ok(match left {
            Duration::ZERO if is_there || !renews => Reply::Granted,
            Duration::ZERO => Reply::Repaired,
            remaining => Reply::Kept { remaining },
        })
    }

    /// Whether it was there; and the client to wake, if it was the last.
    pub(super) fn leave(&mut self) -> (Reply, Published) {
        if !self.is_set_of_readers() || !self.store.remove_score(self.key, self.claim.value.as_bytes()) {
            return (Reply::Refused(Refusal::default()), None);
        }
        let next = self.first_mark().filter(|_| !self.has_readers());
        self.settle();
        let next = next.and_then(|mark| ClientId::of_mark(&mark));
        (Reply::Granted, next.and_then(|next| wake(next, self.key)))
    }

    /// What of a set of readers refuses a lock.
    pub(super) fn beside_readers(&mut self) -> Result<Option<Vec<u8>>, WrongType> {
        let (has_readers, first) = (self.has_readers(), self.first_mark());
        let mark = self.claim.mark.as_deref().map(WriterMark::as_bytes);
        let is_next = first.as_deref().is_none_or(|first| mark.is_some_and(|mark| mark <= first));
        if !has_readers && is_next {
            return Ok(None);
        }
        if let Some(mark) = mark {
            self.store.set_score(self.key, mark, -self.now_ms() - LONGEST_MARK_MS)?;
            let end = self.now.saturating_add(Duration::from_millis(LONGEST_MARK_MS as u64));
            if self.store.end(self.key).flatten().is_some_and(|present| present < end) {
                self.store.expire_at(self.key, end);
            }
        }
        Ok(if has_readers { Some(READERS.to_vec()) } else { first })
    }

    pub(super) fn is_set_of_readers(&self) -> bool {
        self.store.score(self.key, READERS).is_ok_and(|score| score == Some(f64::INFINITY))
    }

    fn has_readers(&self) -> bool {
        let now_ms = self.now_ms();
        self.store.scores(self.key).iter().any(|(_, score)| now_ms < *score && score.is_finite())
    }

    /// The oldest that counts.
    fn first_mark(&self) -> Option<Vec<u8>> {
        let now_ms = self.now_ms();
        let counts = |score: f64| now_ms < -score && -score <= now_ms + LONGEST_MARK_MS;
        let marks = self.store.scores(self.key).into_iter().filter(|(_, score)| counts(*score));
        marks.map(|(mark, _)| mark).min()
    }

    fn add_reader(&mut self) -> Result<(), WrongType> {
        let value = self.claim.value.as_bytes();
        let end = self.now_ms() + self.claim.ttl.as_millis() as f64;
        let end = self.store.score(self.key, value)?.unwrap_or(f64::NEG_INFINITY).max(end);
        self.store.set_score(self.key, READERS, f64::INFINITY)?;
        self.store.set_score(self.key, value, end)?;
        self.settle();
        Ok(())
    }

    /// Removes what has ended, and gives the key the end of what is left.
    fn settle(&mut self) {
        let now_ms = self.now_ms();
        let mut last = now_ms;
        for (member, score) in self.store.scores(self.key) {
            if score.abs() <= now_ms {
                self.store.remove_score(self.key, &member);
            } else if score.is_finite() {
                last = last.max(score).max((-score).min(now_ms + LONGEST_MARK_MS));
            }
        }
        if last > now_ms {
            let left = Duration::from_millis((last - now_ms) as u64);
            self.store.expire_at(self.key, self.now.saturating_add(left));
        } else {
            self.store.remove(self.key);
        }
    }

    fn now_ms(&self) -> f64 {
        (self.wall_us / 1_000) as f64
    }
}

fn wake(next: ClientId, key: &[u8]) -> Published {
    let message =
        Message::Next { access: crate::protocol::Access::Write, then: Vec::new(), key: key.to_vec() }.to_wire()?;
    Some((next.channel(), message))
}
