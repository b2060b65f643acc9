//! The waiters for each key, in the order in which they came (P25). All of it is advice: what is lost, late,
//! doubled or forged only costs time, and no rule of exclusion reads it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::protocol::client_id::ClientId;
use crate::protocol::readers::Access;
use crate::protocol::time::Instant;

/// For how long anything is remembered. A waiter announces itself again before that (P27), so one that is gone
/// is forgotten.
const REMEMBERED: Duration = Duration::from_secs(3);

/// The most waiters that are known for one key, and the most keys. Other waiters only poll.
pub const MAX_WAITERS: usize = 64;
const MAX_KEYS: usize = 1024;

/// A client that waits. The smaller ticket is served first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Waiter {
    /// When it began to wait: the clock by which it proposes tokens, in microseconds. It stays the same for the
    /// whole wait.
    pub ticket: u64,
    /// The waiter's client.
    pub client: ClientId,
    /// What for.
    pub access: Access,
}

impl Waiter {
    /// How many of these, from the first on, are woken together: a writer alone, and all readers up to the next writer (P34).
    pub fn woken_together(waiters: &[Self]) -> usize {
        let readers = waiters.iter().take_while(|waiter| waiter.access == Access::Read).count();
        readers.max(1).min(waiters.len())
    }

    /// Whether this is an announcement of the same wait, sooner or later.
    fn is_of_same(&self, other: &Self) -> bool {
        (self.client, self.access) == (other.client, other.access)
    }
}

/// The result of an announcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announcement {
    /// It is in the table.
    Kept,
    /// The key was passed on to this client, which gets the announcement.
    Forward(ClientId),
    /// Its ticket was served, the client to which the key was passed on has it already, or there is no room.
    Dropped,
}

/// The waiters that a client knows of, by key. Bounded, and empty again once no client announces anything.
#[derive(Clone, Debug, Default)]
pub struct Waiters {
    keys: BTreeMap<Box<[u8]>, KeyWaiters>,
}

#[derive(Clone, Debug, Default)]
struct KeyWaiters {
    /// In order, each client once.
    waiting: Vec<Remembered>,
    /// Who was served last, of each client the latest: a slower instance may announce them once more.
    served: Vec<Remembered>,
    /// Set when the key is released for another client, until it is held here again.
    passed_on: Option<PassedOn>,
}

/// That a client was woken, for which the key was released.
#[derive(Clone, Debug)]
struct PassedOn {
    to: ClientId,
    at: Instant,
    /// Until then this client leaves the key to it.
    backs_off_until: Instant,
    /// Whose announcements went on to it: one comes over several instances.
    forwarded: Vec<Waiter>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Remembered {
    waiter: Waiter,
    until: Instant,
}

impl Waiters {
    /// Takes in the announcement of a waiter; the last one of a client counts.
    pub fn announce(&mut self, key: &[u8], waiter: Waiter, now: Instant) -> Announcement {
        let Some(known) = self.entry(key) else { return Announcement::Dropped };
        if known.was_served(waiter) {
            return Announcement::Dropped;
        }
        if let Some(passed_on) = known.passed_on.as_mut().filter(|passed_on| passed_on.is_remembered(now)) {
            if passed_on.forwarded.contains(&waiter) || passed_on.forwarded.len() >= MAX_WAITERS {
                return Announcement::Dropped;
            }
            passed_on.forwarded.push(waiter);
            return Announcement::Forward(passed_on.to);
        }
        known.waiting.retain(|other| !other.waiter.is_of_same(&waiter));
        known.insert(waiter, now)
    }

    /// Takes in what another client knew that has woken this one, `own`: what is known here already is newer.
    pub fn take_in(&mut self, key: &[u8], waiters: &[Waiter], own: ClientId, now: Instant) {
        let Some(known) = self.entry(key) else { return };
        for waiter in waiters.iter().filter(|waiter| waiter.client != own) {
            let is_known = known.waiting.iter().any(|other| other.waiter.is_of_same(waiter));
            if !is_known && !known.was_served(*waiter) {
                known.insert(*waiter, now);
            }
        }
        self.forget_if_empty(key);
    }

    /// A waiter waits no more: it counts as served, since its announcement may come again over a slower instance.
    pub fn leave(&mut self, key: &[u8], waiter: Waiter, now: Instant) {
        let Some(known) = self.keys.get_mut(key) else { return };
        let waiting = known.waiting.len();
        known.waiting.retain(|other| !other.waiter.is_of_same(&waiter) || other.waiter.ticket > waiter.ticket);
        if known.waiting.len() < waiting {
            known.note_served(&[waiter], now);
        }
    }

    /// The key is held here, or waited for: announcements are kept again.
    pub fn hold(&mut self, key: &[u8]) {
        if let Some(known) = self.keys.get_mut(key) {
            known.passed_on = None;
            self.forget_if_empty(key);
        }
    }

    /// Takes the waiters for a key that is released, in order; empty if none is known. Waiters that are woken together count as
    /// served, and what is announced later is for the client of the first.
    pub fn take(&mut self, key: &[u8], now: Instant) -> Vec<Waiter> {
        let Some(known) = self.keys.get_mut(key) else { return Vec::new() };
        let waiters: Vec<Waiter> = std::mem::take(&mut known.waiting)
            .into_iter()
            .filter(|remembered| now < remembered.until)
            .map(|remembered| remembered.waiter)
            .collect();
        if let Some(first) = waiters.first() {
            known.note_served(waiters.get(..Waiter::woken_together(&waiters)).unwrap_or_default(), now);
            known.passed_on = Some(PassedOn { to: first.client, at: now, backs_off_until: now, forwarded: Vec::new() });
        }
        self.forget_if_empty(key);
        waiters
    }

    /// Until when this client leaves the key to another one, for which it was released; `None` if it is held here again.
    pub fn passed_on(&self, key: &[u8], now: Instant) -> Option<Instant> {
        let passed_on = self.keys.get(key)?.passed_on.as_ref().filter(|passed_on| passed_on.is_remembered(now))?;
        Some(passed_on.backs_off_until)
    }

    /// This client leaves a key that was released for another one to that until then: once it is released, and whenever a single try was
    /// refused since.
    pub fn back_off(&mut self, key: &[u8], until: Instant) {
        if let Some(passed_on) = self.keys.get_mut(key).and_then(|known| known.passed_on.as_mut()) {
            passed_on.backs_off_until = until;
        }
    }

    /// The known waiters for a key, in order.
    pub fn waiting(&self, key: &[u8], now: Instant) -> impl Iterator<Item = Waiter> {
        let known = self.keys.get(key).map_or(&[][..], |known| &known.waiting);
        known.iter().filter(move |remembered| now < remembered.until).map(|remembered| remembered.waiter)
    }

    /// Whether a waiter for a key is known, or has been served lately.
    pub fn knows_of(&self, key: &[u8]) -> bool {
        self.keys.contains_key(key)
    }

    /// Whether anything is known.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// How many entries there are, of any kind.
    pub fn len(&self) -> usize {
        let entries = |known: &KeyWaiters| {
            let passed_on = known.passed_on.as_ref().map_or(0, |passed_on| 1 + passed_on.forwarded.len());
            known.waiting.len() + known.served.len() + passed_on
        };
        self.keys.values().map(entries).sum()
    }

    /// Forgets what is too old.
    pub fn expire(&mut self, now: Instant) {
        self.keys.retain(|_, known| {
            known.waiting.retain(|remembered| now < remembered.until);
            known.served.retain(|remembered| now < remembered.until);
            known.passed_on.take_if(|passed_on| !passed_on.is_remembered(now));
            !known.is_empty()
        });
    }

    /// What is known of a key, if there is room.
    fn entry(&mut self, key: &[u8]) -> Option<&mut KeyWaiters> {
        if self.keys.len() >= MAX_KEYS && !self.keys.contains_key(key) {
            return None;
        }
        Some(self.keys.entry(key.into()).or_default())
    }

    fn forget_if_empty(&mut self, key: &[u8]) {
        if self.keys.get(key).is_some_and(KeyWaiters::is_empty) {
            self.keys.remove(key);
        }
    }
}

impl KeyWaiters {
    fn insert(&mut self, waiter: Waiter, now: Instant) -> Announcement {
        let at = self.waiting.partition_point(|other| other.waiter < waiter);
        self.waiting.insert(at, Remembered { waiter, until: now.saturating_add(REMEMBERED) });
        self.waiting.truncate(MAX_WAITERS); // the last to come
        if at < MAX_WAITERS { Announcement::Kept } else { Announcement::Dropped }
    }

    fn note_served(&mut self, waiters: &[Waiter], now: Instant) {
        for waiter in waiters {
            self.served.retain(|other| !other.waiter.is_of_same(waiter));
            self.served.push(Remembered { waiter: *waiter, until: now.saturating_add(REMEMBERED) });
        }
        let surplus = self.served.len().saturating_sub(MAX_WAITERS);
        self.served.drain(..surplus);
    }

    fn was_served(&self, waiter: Waiter) -> bool {
        let same_wait =
            |served: &Remembered| served.waiter.is_of_same(&waiter) && waiter.ticket <= served.waiter.ticket;
        self.served.iter().any(same_wait)
    }

    const fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.served.is_empty() && self.passed_on.is_none()
    }
}

impl PassedOn {
    fn is_remembered(&self, now: Instant) -> bool {
        now < self.at.saturating_add(REMEMBERED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Instant = Instant::from_millis(10_000);
    const KEY: &[u8] = b"a";

    fn waiter(ticket: u64, client: u8) -> Waiter {
        Waiter { ticket, client: ClientId::new([client; 6]), access: Access::Write }
    }

    const OWN: u8 = 200;

    fn own() -> ClientId {
        ClientId::new([OWN; 6])
    }

    fn clients(waiters: &[Waiter]) -> Vec<u64> {
        waiters.iter().map(|waiter| waiter.ticket).collect()
    }

    #[test]
    fn waiters_are_served_in_the_order_of_their_tickets_whenever_they_are_heard_of() {
        let mut waiters = Waiters::default();
        for (ticket, client) in [(3, 3), (1, 1), (2, 2), (1, 1)] {
            assert_eq!(waiters.announce(KEY, waiter(ticket, client), NOW), Announcement::Kept);
        }
        waiters.take_in(KEY, &[waiter(0, OWN), waiter(9, 1), waiter(4, 4)], own(), NOW);
        assert_eq!(
            clients(&waiters.waiting(KEY, NOW).collect::<Vec<_>>()),
            [1, 2, 3, 4],
            "what is known here is newer"
        );
        assert_eq!(clients(&waiters.take(KEY, NOW)), [1, 2, 3, 4]);
        assert_eq!(waiters.waiting(KEY, NOW).count(), 0);
    }

    #[test]
    fn who_was_served_is_not_served_twice_for_one_wait() {
        let mut waiters = Waiters::default();
        waiters.announce(KEY, waiter(5, 1), NOW);
        waiters.take(KEY, NOW);
        waiters.hold(KEY);
        assert!(waiters.knows_of(KEY) && !waiters.knows_of(b"another"));
        assert_eq!(waiters.announce(KEY, waiter(5, 1), NOW), Announcement::Dropped, "a slower instance");
        waiters.take_in(KEY, &[waiter(5, 1), waiter(4, 1)], own(), NOW);
        assert!(waiters.take(KEY, NOW).is_empty());
        assert_eq!(waiters.announce(KEY, waiter(6, 1), NOW), Announcement::Kept, "the next wait");
    }

    #[test]
    fn who_leaves_is_not_waited_for_any_more_unless_it_waits_again() {
        let mut waiters = Waiters::default();
        waiters.leave(KEY, waiter(1, 1), NOW);
        assert!(waiters.is_empty(), "it is not known");
        for waiter in [waiter(5, 1), waiter(6, 2)] {
            assert_eq!(waiters.announce(KEY, waiter, NOW), Announcement::Kept);
        }
        waiters.leave(KEY, waiter(4, 1), NOW); // of the wait before
        waiters.leave(KEY, Waiter { access: Access::Read, ..waiter(5, 1) }, NOW);
        assert_eq!(waiters.waiting(KEY, NOW).count(), 2);
        waiters.leave(KEY, waiter(5, 1), NOW);
        assert_eq!(waiters.announce(KEY, waiter(5, 1), NOW), Announcement::Dropped, "a slower instance");
        assert_eq!(clients(&waiters.waiting(KEY, NOW).collect::<Vec<_>>()), [6]);
        assert_eq!(waiters.announce(KEY, waiter(7, 1), NOW), Announcement::Kept, "the next wait");
    }

    #[test]
    fn what_is_announced_after_the_key_was_passed_on_is_for_whom_it_went_to() {
        let mut waiters = Waiters::default();
        waiters.announce(KEY, waiter(1, 1), NOW);
        assert_eq!(clients(&waiters.take(KEY, NOW)), [1]);
        assert_eq!(waiters.announce(KEY, waiter(2, 2), NOW), Announcement::Forward(ClientId::new([1; 6])));
        assert_eq!(waiters.announce(KEY, waiter(2, 2), NOW), Announcement::Dropped, "over another instance");
        assert_eq!(waiters.passed_on(KEY, NOW), Some(NOW));
        let later = NOW.saturating_add(REMEMBERED / 2);
        waiters.back_off(KEY, later);
        assert_eq!(waiters.passed_on(KEY, later), Some(later));
        assert_eq!(waiters.passed_on(KEY, NOW.saturating_add(REMEMBERED)), None);
        waiters.hold(KEY);
        assert_eq!(waiters.passed_on(KEY, NOW), None);
        assert_eq!(waiters.announce(KEY, waiter(2, 2), NOW), Announcement::Kept);
    }

    #[test]
    fn what_nobody_announces_again_is_forgotten() {
        let mut waiters = Waiters::default();
        waiters.announce(b"a", waiter(1, 1), NOW);
        waiters.announce(b"b", waiter(1, 1), NOW);
        assert!(!waiters.take(b"b", NOW).is_empty());
        assert_eq!(waiters.len(), 3, "who waits, who was served, and that the key was passed on");
        let later = NOW.saturating_add(REMEMBERED);
        assert!(waiters.clone().take(b"a", later).is_empty());
        waiters.expire(later);
        assert_eq!((waiters.len(), waiters.is_empty()), (0, true));
    }

    #[test]
    fn a_table_without_entries_keeps_nothing_of_a_key() {
        let mut waiters = Waiters::default();
        waiters.take_in(KEY, &[waiter(1, OWN)], own(), NOW);
        assert!(waiters.take(KEY, NOW).is_empty());
        waiters.hold(KEY);
        assert!(waiters.is_empty());
    }

    #[test]
    fn readers_up_to_the_next_writer_are_woken_together_and_count_as_served() {
        let mut waiters = Waiters::default();
        let reader = |ticket, client| Waiter { access: Access::Read, ..waiter(ticket, client) };
        let all = [reader(1, 1), reader(2, 2), waiter(3, 1), reader(4, 3)];
        all.iter().rev().for_each(|waiter| assert_eq!(waiters.announce(b"a", *waiter, NOW), Announcement::Kept));
        let taken = waiters.take(b"a", NOW);
        assert_eq!((&*taken, Waiter::woken_together(&taken)), (&all[..], 2));
        assert_eq!(Waiter::woken_together(&all[2..]), 1);
        assert_eq!(Waiter::woken_together(&[]), 0);
        for late in [reader(1, 1), reader(2, 2)] {
            assert_eq!(waiters.announce(b"a", late, NOW), Announcement::Dropped, "a late copy");
        }
        assert_eq!(waiters.announce(b"a", waiter(2, 2), NOW), Announcement::Forward(all[0].client), "another wait");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]
        #[test]
        fn a_flood_is_bounded_and_keeps_those_who_came_first(
            flood in proptest::collection::vec((0_u64..1_000, any::<[u8; 6]>(), 0_u16..2_000), 0..4_000),
        ) {
            let mut waiters = Waiters::default();
            for (ticket, client, key) in &flood {
                let _ = waiters.announce(b"busy", Waiter { ticket: *ticket, client: ClientId::new(*client), access: Access::Write }, NOW);
                let _ = waiters.announce(&key.to_be_bytes(), waiter(*ticket, 1), NOW);
            }
            prop_assert!(waiters.keys.len() <= MAX_KEYS);
            prop_assert!(waiters.keys.values().all(|known| known.waiting.len() <= MAX_WAITERS));
            let kept = clients(&waiters.take(b"busy", NOW));
            prop_assert!(kept.is_sorted());
            let mut all: Vec<u64> = flood.iter().map(|(ticket, ..)| *ticket).collect();
            all.sort_unstable();
            all.truncate(MAX_WAITERS);
            prop_assert_eq!(kept, all);
            waiters.expire(NOW.saturating_add(REMEMBERED));
            prop_assert!(waiters.is_empty());
        }
    }
}
