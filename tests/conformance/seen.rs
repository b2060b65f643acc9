//! What has happened in sequences: a comparison is worth nothing if the cases do not come up.

use std::ops::AddAssign;

use redquorum::testing::conformance::{Ask, Content, Kind};
use redquorum::testing::protocol::{Cause, Reply};

/// How often.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// An extend came to a key that lives for longer.
    not_shortened: usize,
    /// An extend came to a key without an end.
    ended: usize,
    /// An extend set a key that was missing.
    repaired: usize,
    /// An instance in quarantine extended a key that it kept.
    kept: usize,
    /// Such a one set none that was missing.
    not_repaired: usize,
    /// A key that was to be kept where it is there was extended.
    prolonged: usize,
    /// Such a one was missing, and not set.
    left_missing: usize,
    /// An instance with another record extended nothing.
    not_known: usize,
    /// Requests with a token that no clock can have made.
    ahead: usize,
    /// Such a token, or none at all, was stored, and a sane one took its place.
    healed: usize,
    /// A reader was let in beside others.
    let_in: usize,
    /// A reader was refused by the mark of a writer.
    behind_a_writer: usize,
    /// A reader was renewed.
    stays: usize,
    /// A reader that was missing reads again.
    comes_back: usize,
    /// One that was missing in quarantine does not.
    not_back: usize,
    /// A reader left.
    left: usize,
    /// A writer was refused by readers.
    read_already: usize,
    /// A writer took the place of a set whose readers had gone.
    after_readers: usize,
}

impl Seen {
    /// Takes in a reply; `before` is what was under the key.
    pub(crate) fn note(&mut self, ask: &Ask, before: &Content, reply: &Reply) {
        let value = ask.value();
        let own = value.as_bytes();
        let is_own = |content: &Content, fits: &dyn Fn(Option<std::time::Duration>) -> bool| match content {
            Content::Text(text, ttl) => text == own && fits(*ttl),
            _ => false,
        };
        let add = |count: &mut usize, happened: bool| *count += usize::from(happened);
        let is_set = matches!(before, Content::Scores(..));
        match (ask.kind, reply) {
            (Kind::Extend, Reply::Granted) => {
                let lives_longer = |ttl: Option<_>| ttl.is_some_and(|ttl| ttl > ask.ttl);
                add(&mut self.not_shortened, is_own(before, &lives_longer));
                add(&mut self.ended, is_own(before, &|ttl| ttl.is_none()));
            }
            (Kind::Extend, Reply::Repaired) => self.repaired += 1,
            (Kind::Extend | Kind::Keep, Reply::Kept { .. }) => self.kept += 1,
            (Kind::Extend | Kind::Keep, Reply::NotAdmitted { .. }) => self.not_known += 1,
            (Kind::Keep, Reply::Granted) => self.prolonged += 1,
            (Kind::Keep, Reply::Refused(_)) => add(&mut self.left_missing, *before == Content::Nothing),
            (Kind::Extend, Reply::Refused(refusal)) => {
                // In quarantine, or since its tombstone was there.
                add(&mut self.not_repaired, *before == Content::Nothing && refusal.value.is_none());
            }
            (Kind::Read, Reply::Granted) => self.let_in += usize::from(is_set),
            (Kind::Read, Reply::Refused(refusal)) => {
                add(&mut self.behind_a_writer, refusal.value.as_ref().is_some_and(|by| by.starts_with(b"writer ")));
            }
            (Kind::Renew, Reply::Granted) => self.stays += 1,
            (Kind::Renew, Reply::Repaired) => self.comes_back += 1,
            (Kind::Renew, Reply::Refused(_)) => add(&mut self.not_back, *before == Content::Nothing),
            (Kind::Leave, Reply::Granted) => self.left += 1,
            (Kind::Acquire, Reply::Refused(refusal)) => {
                add(&mut self.read_already, refusal.value.as_deref() == Some(b"redquorum"));
            }
            (Kind::Acquire, Reply::Granted) => self.after_readers += usize::from(is_set),
            _ => {}
        }
    }

    /// `odd` is whether what was stored for the lock was no token or that of no clock.
    pub(crate) fn note_token(&mut self, ask: &Ask, odd: bool, reply: &Reply) {
        self.ahead += usize::from(matches!(reply, Reply::Unknown(Cause::ClockBehind { .. })));
        self.healed += usize::from(odd && ask.kind == Kind::Acquire && *reply == Reply::Granted);
    }

    /// The rarest.
    pub(crate) fn least(&self) -> usize {
        let Self { not_shortened, ended, repaired, kept, not_repaired, .. } = *self;
        let Self { prolonged, left_missing, not_known, ahead, healed, .. } = *self;
        let Self { let_in, behind_a_writer, stays, comes_back, not_back, left, read_already, after_readers, .. } =
            *self;
        let readers = [let_in, behind_a_writer, stays, comes_back, not_back, left, read_already, after_readers];
        let extends = [not_shortened, ended, repaired, kept, not_repaired];
        extends
            .into_iter()
            .chain([prolonged, left_missing, not_known, ahead, healed])
            .chain(readers)
            .fold(usize::MAX, usize::min)
    }
}

impl AddAssign for Seen {
    fn add_assign(&mut self, other: Self) {
        self.not_shortened += other.not_shortened;
        self.ended += other.ended;
        self.repaired += other.repaired;
        self.kept += other.kept;
        self.not_repaired += other.not_repaired;
        self.prolonged += other.prolonged;
        self.left_missing += other.left_missing;
        self.not_known += other.not_known;
        self.ahead += other.ahead;
        self.healed += other.healed;
        self.let_in += other.let_in;
        self.behind_a_writer += other.behind_a_writer;
        self.stays += other.stays;
        self.comes_back += other.comes_back;
        self.not_back += other.not_back;
        self.left += other.left;
        self.read_already += other.read_already;
        self.after_readers += other.after_readers;
    }
}
