//! What one connection knows of the instance's right to vote, and what it makes of a reply.

use std::sync::Arc;
use std::time::Duration;

use crate::protocol::admission::clock_watch::{ClockWatch, Observation};
use crate::protocol::admission::record::{AdmissionRecord, ProcessIdentity, RecordOrigin};
use crate::protocol::fencing::FencingToken;
use crate::protocol::round::cause::NotUsable;
use crate::protocol::round::reply::Reply;
use crate::protocol::time::Instant;

/// A reply as it came, with what the instance's clock read when it was carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawReply {
    /// The reply.
    pub reply: Reply,
    /// Microseconds since the Unix epoch by the instance's clock, if the reply carried it.
    pub instance_us: Option<u64>,
}

/// The record as a request names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachedRecord {
    /// The record.
    pub record: Arc<AdmissionRecord>,
    wire: Arc<str>,
    /// Whether the instance's clock shows the record's instant by now, as far as this connection knows.
    pub quarantine_over: bool,
}

impl AttachedRecord {
    /// A record that is named for the first time.
    pub fn new(record: AdmissionRecord, quarantine_over: bool) -> Self {
        let wire = record.to_wire().into();
        Self { record: Arc::new(record), wire, quarantine_over }
    }

    /// The same at another time.
    pub fn at(&self, quarantine_over: bool) -> Self {
        Self { quarantine_over, ..self.clone() }
    }

    /// P28: whether plain commands may propose this token where the instance's clock shows at least `wall_us`. They compare neither the
    /// record's instant nor how far a token is ahead, so both must be known (P12, P14).
    pub fn lets_plain(&self, token: FencingToken, wall_us: u64) -> bool {
        self.quarantine_over && !token.is_ahead_of(wall_us)
    }

    /// The record as it is stored.
    pub fn wire(&self) -> &str {
        &self.wire
    }
}

/// What the instance's record means for this client. No vote is requested unless it is
/// [`Recorded`](Self::Recorded).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordMeaning {
    /// The record is valid.
    Recorded,
    /// There is no valid record. A client that wants locks writes one (P15).
    Unrecorded,
    /// It gives no vote to a client with these settings (P16, P29).
    Refused(NotUsable),
}

/// The state of an instance as one connection knows it (P14, P17).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmissionState {
    attached: AttachedRecord,
    meaning: RecordMeaning,
    /// How long it had to sit out when its record was read, in milliseconds.
    most_left_ms: u64,
    watch: ClockWatch,
    /// Whether the data is in doubt; the watch knows whether the clock is.
    suspended: bool,
    /// Until when nothing counts, by the client's clock, because that had stood still.
    withheld_until: Instant,
}

impl AdmissionState {
    /// Begins with the record that names this process, and the first sample of its clock.
    pub fn new(record: AdmissionRecord, watch: ClockWatch) -> Self {
        Self {
            attached: AttachedRecord::new(record, false),
            meaning: RecordMeaning::Recorded,
            most_left_ms: u64::MAX,
            watch,
            suspended: false,
            withheld_until: Instant::ZERO,
        }
    }

    /// The same where the instance's clock showed `read_ms` when its record was read.
    #[must_use]
    pub fn read_at(self, read_ms: u64) -> Self {
        Self { most_left_ms: self.record().vote_from_ms.saturating_sub(read_ms), ..self }
    }

    /// Begins without a valid record. Commands that are sent all the same name one that no instance ever has.
    pub fn without_record(identity: ProcessIdentity, meaning: RecordMeaning, watch: ClockWatch) -> Self {
        let origin = RecordOrigin::Waits;
        let none = AdmissionRecord { identity, vote_from_ms: u64::MAX, longest_ttl_ms: 0, origin, order: 0 };
        Self { meaning, ..Self::new(none, watch) }
    }

    /// What the record means for this client.
    pub const fn meaning(&self) -> &RecordMeaning {
        &self.meaning
    }

    /// The record that requests name.
    pub const fn record(&self) -> &Arc<AdmissionRecord> {
        &self.attached.record
    }

    /// What a request names that is sent at this instant of the client's clock, and what the instance's clock shows at
    /// least, in microseconds.
    pub fn known_at(&self, now: Instant) -> (AttachedRecord, u64) {
        let wall_us = self.wall_us(now);
        let quarantine_over = wall_us / 1_000 >= self.attached.record.vote_from_ms;
        (self.attached.at(quarantine_over), wall_us)
    }

    /// What the instance's clock shows at least at this instant of the client's clock, in microseconds.
    pub fn wall_us(&self, now: Instant) -> u64 {
        self.watch.at_least_ms(now).saturating_mul(1_000)
    }

    /// The watch over its clock.
    pub const fn watch(&self) -> &ClockWatch {
        &self.watch
    }

    /// Begins a quarantine, since the data or the clock is in doubt: nothing counts until [`replace_record`](Self::replace_record).
    pub const fn begin_quarantine(&mut self) {
        self.suspended = true;
        self.watch.settle();
    }

    /// Uses another record from now on. Still nothing counts if the clock has stepped since the
    /// quarantine began: the record may be older than that.
    pub fn replace_record(&mut self, record: AdmissionRecord) {
        self.attached = AttachedRecord::new(record, false);
        self.meaning = RecordMeaning::Recorded;
        self.most_left_ms = u64::MAX;
        self.suspended = false;
    }

    /// As [`replace_record`](Self::replace_record), by what `found` was read to be.
    pub fn replace_meaning(&mut self, found: &Self) {
        self.replace_record((*found.attached.record).clone());
        (self.meaning, self.most_left_ms) = (found.meaning.clone(), found.most_left_ms);
    }

    /// Continues from how a previous connection left the same process; whether its clock has jumped
    /// forward since, so that the record must be replaced. A clock of another process, or of another
    /// life of this one, is not compared: that has a record of its own.
    #[must_use]
    pub fn continue_from(&mut self, previous: &Self) -> bool {
        if self.record().identity == previous.record().identity {
            let _ = self.watch.continue_from(&previous.watch); // what was not settled stays so
        }
        self.watch.jumped().is_some()
    }

    /// The client's clock had stood still, for so long at the most: the instance's did not jump. Still nothing counts until this
    /// instant of the client's clock, as all instances may have been stepped together: by then every connected
    /// client has noticed.
    pub fn own_clock_stood_still(&mut self, most: Duration, until: Instant) {
        self.watch.own_clock_stood_still(most);
        self.withhold_until(until);
    }

    /// Counts nothing until this instant of the client's clock.
    pub fn withhold_until(&mut self, until: Instant) {
        self.withheld_until = self.withheld_until.max(until);
    }

    /// Whether nothing counts at present.
    pub const fn votes_suspended(&self) -> bool {
        self.suspended || self.watch.jumped().is_some()
    }

    /// Counts nothing more until the record is replaced: the instance reported that its data was
    /// replaced, and the record may have come back with an old copy of it.
    pub const fn suspend_votes(&mut self) {
        self.suspended = true;
    }

    /// When at the latest, by the instance's clock, that happened which puts its record in doubt: by `now` if the
    /// data was replaced; where the clock jumped, by what it would show without that. It may have jumped more than once since this
    /// connection saw it go on as it may: no record is of after that which is older, by that clock, than the time since then.
    pub fn doubtful_by_ms(&self, now: Instant) -> u64 {
        let jumped = self.watch.last_jump().filter(|_| !self.suspended);
        let not_doubtful_ms = jumped.map_or(0, |jump| {
            let unwatched = now.saturating_since(jump.after).as_nanos();
            u64::try_from(jump.least.min(i128::try_from(unwatched).unwrap_or(i128::MAX)) / 1_000_000).unwrap_or(0)
        });
        self.watch.at_most_ms(now).saturating_sub(not_doubtful_ms)
    }

    /// How long the instance must still sit out, as far as this connection knows.
    pub fn quarantine_left(&self, now: Instant) -> Duration {
        self.record().quarantine_left(self.about_ms(now)).max(self.withheld_until.saturating_since(now))
    }

    /// How long ago it was flushed, if its record says so.
    pub fn flushed_ago(&self, now: Instant) -> Option<Duration> {
        self.record().flushed_ago(self.about_ms(now))
    }

    /// What the instance's clock shows about then, in milliseconds.
    fn about_ms(&self, now: Instant) -> u64 {
        u64::try_from((i128::from(now.as_nanos()) + self.watch.offset_ns()) / 1_000_000).unwrap_or(0)
    }

    /// Judges a reply that was taken in, and leaves what it counts for; whether the record must be read again, for it is not the one that
    /// this connection knows. The reply is in doubt if the clock had jumped by then, or if a flush was pushed for which no quarantine has begun yet.
    pub fn judge(&self, raw: &mut RawReply, in_doubt: bool, record: &Arc<AdmissionRecord>, received: Instant) -> bool {
        let current = Arc::ptr_eq(record, self.record()) || record == self.record();
        // P14: the instance itself compares only if the request named the instant. Where this
        // connection knew that it had come, and the clock was set back since, the instance granted
        // before the instant by its own clock; that counts no more than if it had refused.
        let early = raw.instance_us.map_or(Duration::ZERO, |us| record.quarantine_left(us / 1_000));
        let (counts_for, is_unknown) = match raw.reply {
            // P17: the keys of others may have expired too early, this vote does not count. It may
            // have set the key, so it is released like any other.
            Reply::Granted | Reply::Repaired | Reply::Kept { .. } if in_doubt => (withheld(None), false),
            Reply::Granted | Reply::Repaired | Reply::Kept { .. } if self.votes_suspended() => (withheld(None), false),
            Reply::Granted | Reply::Repaired | Reply::Kept { .. } if received < self.withheld_until => {
                (withheld(Some(self.withheld_until.saturating_since(received))), false)
            }
            Reply::Granted | Reply::Repaired | Reply::Kept { .. } if !current => (withheld(None), false),
            Reply::Granted | Reply::Repaired if !early.is_zero() => self.not_yet(early),
            // P10: whether it is a vote depends on the lease.
            Reply::Kept { remaining } if self.was_set_back(remaining) => return true,
            Reply::NotAdmitted { remaining: None } if current && !self.votes_suspended() => (withheld(None), true),
            Reply::NotAdmitted { remaining: Some(left) } if !in_doubt => self.not_yet(left),
            _ => return false,
        };
        raw.reply = counts_for;
        is_unknown
    }

    /// An instance that must still sit out so long.
    fn not_yet(&self, left: Duration) -> (Reply, bool) {
        let was_set_back = self.was_set_back(left);
        (withheld(Some(left).filter(|_| !was_set_back)), was_set_back)
    }

    /// Whether that is longer than when its record was read: the instance's clock was set back.
    fn was_set_back(&self, left: Duration) -> bool {
        left.as_millis() > u128::from(self.most_left_ms)
    }

    /// Takes in a sample of the instance's clock; whether it jumped forward.
    pub fn observe(&mut self, sent: Instant, received: Instant, instance_us: u64) -> bool {
        matches!(self.watch.observe(sent, received, instance_us), Observation::SteppedForward(_))
    }
}

const fn withheld(remaining: Option<Duration>) -> Reply {
    Reply::NotAdmitted { remaining }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{ProcessIdentity, RecordOrigin};

    const MS: fn(u64) -> Instant = Instant::from_millis;

    fn record() -> AdmissionRecord {
        let identity = ProcessIdentity::new("r", "p");
        AdmissionRecord { identity, vote_from_ms: 5, longest_ttl_ms: 10, origin: RecordOrigin::Waits, order: 1 }
    }

    fn state() -> AdmissionState {
        AdmissionState::new(record(), ClockWatch::begin(10_000, MS(0), MS(1), 1_000_000))
    }

    fn granted(instance_us: u64) -> RawReply {
        RawReply { reply: Reply::Granted, instance_us: Some(instance_us) }
    }

    /// What a reply counts for that came at `ms`, a millisecond after its request, which named the record of the beginning; whether the record
    /// is to be read again.
    fn vote(state: &mut AdmissionState, mut raw: RawReply, ms: u64) -> (Reply, bool) {
        let record = Arc::new(record());
        let stepped = raw.instance_us.is_some_and(|us| state.observe(MS(ms - 1), MS(ms), us));
        let is_unknown = state.judge(&mut raw, stepped, &record, MS(ms));
        (raw.reply, is_unknown)
    }

    #[test]
    fn a_grant_of_an_instance_in_good_standing_counts() {
        let mut state = state();
        assert_eq!(vote(&mut state, granted(1_010_000), 11), (Reply::Granted, false));
    }

    /// A later connection begins with what the others know.
    #[test]
    fn what_is_withheld_for_longer_is_not_given_sooner() {
        let mut state = state();
        state.withhold_until(MS(50));
        state.withhold_until(MS(10));
        let early = vote(&mut state, granted(1_040_000), 41).0;
        assert_eq!(early, withheld(Some(Duration::from_millis(9))));
        assert_eq!(vote(&mut state, granted(1_050_000), 51).0, Reply::Granted);
    }

    #[test]
    fn a_grant_after_a_forward_step_does_not_count_and_neither_do_later_ones() {
        let mut state = state();
        let stepped = vote(&mut state, granted(9_010_000), 11);
        assert_eq!(stepped, (withheld(None), false));
        assert!(state.watch().jumped().is_some());
        let later = vote(&mut state, granted(9_020_000), 21);
        assert_eq!(later, (withheld(None), false));
        state.begin_quarantine();
        state.replace_record(AdmissionRecord { vote_from_ms: 99, ..record() });
        let old = vote(&mut state, granted(9_030_000), 31);
        assert_eq!(old.0, withheld(None), "a grant under the record of before the quarantine");
    }

    /// P10: what others set may have expired by the step, and one of them may have the lock.
    #[test]
    fn a_key_that_is_kept_does_not_count_if_the_clock_has_stepped() {
        let kept = |instance_us| RawReply {
            reply: Reply::Kept { remaining: Duration::from_millis(3) },
            ..granted(instance_us)
        };
        let mut state = state();
        assert!(matches!(vote(&mut state, kept(1_010_000), 11).0, Reply::Kept { .. }));
        assert_eq!(vote(&mut state, kept(9_020_000), 21).0, withheld(None), "by this answer");
        assert_eq!(vote(&mut state, kept(9_030_000), 31).0, withheld(None), "by an earlier one");
    }

    /// The record was read, the clock stepped again, and only then the record was put to use.
    #[test]
    fn a_step_while_a_remedy_is_on_its_way_is_not_forgotten() {
        let mut state = state();
        for instance_us in [9_000_000, 99_000_000] {
            state.begin_quarantine();
            assert!(state.observe(MS(10), MS(11), instance_us));
            state.replace_record(record());
            assert!(state.votes_suspended());
        }
        state.begin_quarantine();
        state.replace_record(record());
        assert!(!state.votes_suspended());
    }

    #[test]
    fn a_clock_that_stepped_between_two_connections_takes_the_vote() {
        let previous = state();
        let next = |identity: &str, instance_us| {
            let record = AdmissionRecord { identity: ProcessIdentity::new(identity, "p"), ..record() };
            AdmissionState::new(record, ClockWatch::begin(10_000, MS(500), MS(501), instance_us))
        };
        assert!(!next("r", 1_500_500).continue_from(&previous));
        assert!(next("r", 9_500_500).continue_from(&previous));
        assert!(!next("other", 9_500_500).continue_from(&previous));
    }

    #[test]
    fn a_vote_that_came_behind_a_flush_counts_for_nothing() {
        let state = state();
        let mut raw = granted(1_010_000);
        assert!(!state.judge(&mut raw, true, state.record(), MS(11)));
        assert_eq!(raw.reply, withheld(None));
    }

    #[test]
    fn the_age_of_a_flush_is_measured_by_the_instances_clock() {
        let mut state = state();
        assert_eq!(state.flushed_ago(MS(20)), None);
        let record = AdmissionRecord { origin: RecordOrigin::Flushed, order: 1_005, ..record() };
        state.replace_record(record);
        let ago = state.flushed_ago(MS(20)).unwrap();
        assert!(ago.abs_diff(Duration::from_millis(15)) <= Duration::from_millis(1), "{ago:?}");
    }

    #[test]
    fn an_instance_that_sits_out_longer_than_when_its_record_was_read_is_looked_at_again() {
        let found = state().read_at(1);
        let mut state = state();
        state.replace_meaning(&found);
        for (left, is_unknown) in [(4, false), (5, true)] {
            let left = Duration::from_millis(left);
            // Refused, and while it keeps the key (P10).
            for reply in [withheld(Some(left)), Reply::Kept { remaining: left }] {
                let raw = RawReply { reply: reply.clone(), instance_us: None };
                assert_eq!(vote(&mut state, raw, 2).1, is_unknown, "{reply:?}");
            }
        }
    }

    /// A record that was written before the jump, by what the clock would show without it, is in doubt.
    #[test]
    fn a_jump_puts_in_doubt_what_was_written_until_then_by_the_clock_without_it() {
        let mut state = state();
        assert!(state.observe(MS(10_000), MS(10_001), 19_010_000));
        let by_ms = state.doubtful_by_ms(MS(10_001));
        assert!((10_995..11_125).contains(&by_ms), "{by_ms}"); // with the drift since
        state.suspend_votes();
        let by_ms = state.doubtful_by_ms(MS(10_001));
        assert!((19_010..19_020).contains(&by_ms), "its data was replaced now: {by_ms}");
    }

    /// Counter-example: of two steps that were seen as one, another client had written its record between them.
    #[test]
    fn two_jumps_in_a_short_time_put_in_doubt_what_was_written_between_them() {
        let mut state = state();
        assert!(state.observe(MS(100), MS(101), 1_100_000 + 431_000 + 588_000));
        let between_ms = 1_050 + 431;
        let by_ms = state.doubtful_by_ms(MS(101));
        assert!((between_ms..1_050 + 431 + 588).contains(&by_ms), "{by_ms}");
        // Both were seen, one after the other: a record of before the second is no younger.
        let mut state = AdmissionState::new(record(), ClockWatch::begin(10_000, MS(0), MS(1), 1_000_000));
        assert!(state.observe(MS(1_000), MS(1_001), 2_000_000 + 400_000));
        assert!(state.observe(MS(1_400), MS(1_401), 2_400_000 + 800_000));
        let by_ms = state.doubtful_by_ms(MS(1_401));
        assert!((1_100 + 400 + 1_000..2_400 + 800).contains(&by_ms), "{by_ms}");
    }

    #[test]
    fn nothing_counts_after_the_data_was_replaced() {
        let mut state = state();
        state.suspend_votes();
        assert_eq!(vote(&mut state, granted(1_010_000), 11).0, withheld(None));
    }

    #[test]
    fn a_record_that_is_not_the_known_one_is_read_again_once() {
        let mut state = state();
        let refused = || RawReply { reply: withheld(None), instance_us: None };
        assert!(vote(&mut state, refused(), 2).1);
        state.replace_record(AdmissionRecord { vote_from_ms: 99, ..record() });
        assert!(!vote(&mut state, refused(), 2).1);
    }
}
