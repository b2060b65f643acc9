//! What one connection knows of the instance's right to vote, and what it makes of a reply.

use std::sync::Arc;
use std::time::Duration;

use crate::protocol::admission::clock_watch::{ClockWatch, Observation};
use crate::protocol::admission::record::Record;
use crate::protocol::round::reply::Reply;
use crate::protocol::time::Instant;

/// A reply as it came, with what the instance's clock read when it was carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raw {
    /// The reply.
    pub reply: Reply,
    /// Microseconds since the Unix epoch by the instance's clock, if it told.
    pub instance_us: Option<u64>,
    /// To how many whole microseconds that was cut off.
    pub unit_us: u64,
}

/// The record as a request names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The record.
    pub record: Arc<Record>,
    wire: Arc<str>,
    /// Whether the instance's clock shows the record's instant by now, as far as this connection knows.
    pub has_served: bool,
}

impl Named {
    /// A record that is named for the first time.
    #[must_use]
    pub fn new(record: Record, has_served: bool) -> Self {
        let wire = record.to_wire().into();
        Self { record: Arc::new(record), wire, has_served }
    }

    /// The record as it is stored.
    #[must_use]
    pub fn wire(&self) -> &str {
        &self.wire
    }
}

/// What must be done about an instance after a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Its record is not the one that this connection knows: read it again.
    Readmit,
    /// It may have forgotten locks without its record telling: put it into quarantine again.
    Quarantine,
}

/// The standing of an instance as one connection knows it (P14, P17).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    named: Named,
    watch: ClockWatch,
    /// Whether the data is in doubt; the watch knows whether the clock is.
    doubted: bool,
    /// Until when nothing counts, by the own clock, because that had stood still.
    withheld_until: Instant,
}

impl Standing {
    /// Begins with the record that names this process, and the first sample of its clock.
    #[must_use]
    pub fn new(record: Record, watch: ClockWatch) -> Self {
        Self { named: Named::new(record, false), watch, doubted: false, withheld_until: Instant::ZERO }
    }

    /// The record that requests name.
    #[must_use]
    pub const fn record(&self) -> &Arc<Record> {
        &self.named.record
    }

    /// What a request names that is sent at this instant of the own clock.
    #[must_use]
    pub fn named(&self, now: Instant) -> Named {
        let has_served = self.watch.at_least_ms(now) >= self.named.record.vote_from_ms;
        Named { has_served, ..self.named.clone() }
    }

    /// The watch over its clock.
    #[must_use]
    pub const fn watch(&self) -> &ClockWatch {
        &self.watch
    }

    /// Begins to set things right. If the data or the clock is in doubt, nothing counts until
    /// [`renew`](Self::renew); a record that only changed is compared by the instance itself.
    pub const fn begin_remedy(&mut self, remedy: Remedy) {
        if matches!(remedy, Remedy::Quarantine) {
            self.doubted = true;
            self.watch.settle();
        }
    }

    /// Goes by another record from now on. Still nothing counts if the clock has stepped since the
    /// remedy began: the record may be older than that.
    pub fn renew(&mut self, record: Record) {
        self.named = Named::new(record, false);
        self.doubted = false;
    }

    /// Goes on from how a former connection left the same process; whether its clock has jumped
    /// forward since, so that the record must not stand. A clock of another process, or of another
    /// life of this one, is not compared: that has a record of its own.
    #[must_use]
    pub fn follows_on(&mut self, former: &Self) -> bool {
        if self.record().identity == former.record().identity {
            let _ = self.watch.follow_on(&former.watch); // what was not settled stays so
        }
        self.watch.jumped().is_some()
    }

    /// The own clock had stood still, for so long at the most: the instance's did not jump. Still nothing counts until this
    /// instant of the own clock, as all instances may have been stepped together: by then everybody who is
    /// connected has noticed.
    pub fn own_clock_stood_still(&mut self, most: Duration, until: Instant) {
        self.watch.own_clock_stood_still(most);
        self.withheld_until = until;
    }

    /// Whether nothing counts at present.
    #[must_use]
    pub const fn is_doubted(&self) -> bool {
        self.doubted || self.watch.jumped().is_some()
    }

    /// Counts nothing more until the record is renewed: the instance said that its data was
    /// replaced, and the record may have come back with an old copy of it.
    pub const fn doubt(&mut self) {
        self.doubted = true;
    }

    /// The data that was replaced was not that of the locks.
    pub const fn spare(&mut self) {
        self.doubted = false;
    }

    /// How long the instance must still sit out, as far as this connection knows.
    #[must_use]
    pub fn quarantine_left(&self, now: Instant) -> Duration {
        let instance_ms = (i128::from(now.as_nanos()) + self.watch.offset_ns()) / 1_000_000;
        let left = self.record().quarantine_left(u64::try_from(instance_ms).unwrap_or(0));
        left.max(self.withheld_until.saturating_since(now))
    }

    /// Judges a reply to a request that was sent and whose reply was received at these instants of
    /// the own clock, and that named `record`.
    pub fn judge(
        &mut self,
        raw: Raw,
        record: &Arc<Record>,
        sent: Instant,
        received: Instant,
    ) -> (Reply, Option<Remedy>) {
        let stepped = raw.instance_us.is_some_and(|us| self.observe_cut(sent, received, (us, raw.unit_us)));
        let current = Arc::ptr_eq(record, self.record()) || record == self.record();
        // P14: the instance itself compares only if the request named the instant. Where this
        // connection knew that it had come, and the clock was set back since, the instance granted
        // before the instant by its own clock; that counts no more than if it had refused.
        let early = raw.instance_us.map_or(Duration::ZERO, |us| record.quarantine_left(us / 1_000));
        match raw.reply {
            // P17: the keys of others may have expired too early, this vote does not count. It may
            // have set the key, so it is released like any other.
            Reply::Granted | Reply::Repaired if stepped => (withheld(None), Some(Remedy::Quarantine)),
            Reply::Granted | Reply::Repaired if self.is_doubted() => (withheld(None), None),
            Reply::Granted | Reply::Repaired if received < self.withheld_until => {
                (withheld(Some(self.withheld_until.saturating_since(received))), None)
            }
            Reply::Granted | Reply::Repaired if !current => (withheld(None), None),
            Reply::Granted | Reply::Repaired if !early.is_zero() => self.not_yet(early),
            Reply::NotAdmitted { remaining: None } if current && !self.is_doubted() => {
                (withheld(None), Some(Remedy::Readmit))
            }
            Reply::NotAdmitted { remaining: Some(left) } if !stepped => self.not_yet(left),
            reply => (reply, stepped.then_some(Remedy::Quarantine)),
        }
    }

    /// An instance that must still sit out so long.
    fn not_yet(&self, left: Duration) -> (Reply, Option<Remedy>) {
        // Longer than any quarantine: its clock was set back.
        let set_back = left.as_millis() > u128::from(self.record().max_ttl_ms);
        if set_back { (withheld(None), Some(Remedy::Readmit)) } else { (withheld(Some(left)), None) }
    }

    /// Takes in a sample of the instance's clock; whether it jumped forward.
    pub fn observe(&mut self, sent: Instant, received: Instant, instance_us: u64) -> bool {
        self.observe_cut(sent, received, (instance_us, 1))
    }

    fn observe_cut(&mut self, sent: Instant, received: Instant, cut: (u64, u64)) -> bool {
        matches!(self.watch.observe_cut(sent, received, cut), Observation::SteppedForward(_))
    }
}

const fn withheld(remaining: Option<Duration>) -> Reply {
    Reply::NotAdmitted { remaining }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Identity, Origin};

    const MS: fn(u64) -> Instant = Instant::from_millis;

    fn standing() -> Standing {
        let identity = Identity::new("r", "p");
        let record = Record { identity, vote_from_ms: 5, max_ttl_ms: 10, origin: Origin::Waits, order: 1 };
        Standing::new(record, ClockWatch::begin(10_000, MS(0), MS(1), 1_000_000))
    }

    fn granted(instance_us: u64) -> Raw {
        Raw { reply: Reply::Granted, instance_us: Some(instance_us), unit_us: 1 }
    }

    #[test]
    fn a_grant_of_an_instance_in_good_standing_counts() {
        let mut standing = standing();
        let record = Arc::clone(standing.record());
        assert_eq!(standing.judge(granted(1_010_000), &record, MS(10), MS(11)), (Reply::Granted, None));
    }

    #[test]
    fn a_grant_after_a_forward_step_does_not_count_and_neither_do_later_ones() {
        let mut standing = standing();
        let record = Arc::clone(standing.record());
        let stepped = standing.judge(granted(9_010_000), &record, MS(10), MS(11));
        assert_eq!(stepped, (withheld(None), Some(Remedy::Quarantine)));
        let later = standing.judge(granted(9_020_000), &record, MS(20), MS(21));
        assert_eq!(later, (withheld(None), None));
        standing.begin_remedy(Remedy::Quarantine);
        standing.renew(Record { vote_from_ms: 99, ..(*record).clone() });
        let old = standing.judge(granted(9_030_000), &record, MS(30), MS(31));
        assert_eq!(old.0, withheld(None), "a grant under the record of before the quarantine");
    }

    /// The record was read, the clock stepped again, and only then the record was put to use.
    #[test]
    fn a_step_while_a_remedy_is_on_its_way_is_not_forgotten() {
        let mut standing = standing();
        let record = Arc::clone(standing.record());
        for remedy in [Remedy::Quarantine, Remedy::Readmit] {
            standing.begin_remedy(Remedy::Quarantine);
            assert!(standing.observe(MS(10), MS(11), if remedy == Remedy::Readmit { 99_000_000 } else { 9_000_000 }));
            standing.begin_remedy(Remedy::Readmit);
            standing.renew((*record).clone());
            assert!(standing.is_doubted());
        }
        standing.begin_remedy(Remedy::Quarantine);
        standing.renew((*record).clone());
        assert!(!standing.is_doubted());
    }

    /// Counter-example: a new cluster is opened by two clients at once, and a round that is sent
    /// while one reads the records again finds nobody who may vote.
    #[test]
    fn reading_a_record_again_withholds_no_vote() {
        let mut standing = standing();
        let record = Arc::clone(standing.record());
        standing.begin_remedy(Remedy::Readmit);
        assert_eq!(standing.judge(granted(1_010_000), &record, MS(10), MS(11)).0, Reply::Granted);
        standing.begin_remedy(Remedy::Quarantine);
        assert_eq!(standing.judge(granted(1_020_000), &record, MS(20), MS(21)).0, withheld(None));
    }

    #[test]
    fn a_clock_that_stepped_between_two_connections_takes_the_vote() {
        let former = standing();
        let next = |identity: &str, instance_us| {
            let record = Record { identity: Identity::new(identity, "p"), ..(**former.record()).clone() };
            Standing::new(record, ClockWatch::begin(10_000, MS(500), MS(501), instance_us))
        };
        assert!(!next("r", 1_500_500).follows_on(&former));
        assert!(next("r", 9_500_500).follows_on(&former));
        assert!(!next("other", 9_500_500).follows_on(&former));
    }

    #[test]
    fn nothing_counts_after_the_data_was_replaced() {
        let mut standing = standing();
        let record = Arc::clone(standing.record());
        standing.doubt();
        assert_eq!(standing.judge(granted(1_010_000), &record, MS(10), MS(11)).0, withheld(None));
    }

    #[test]
    fn a_record_that_is_not_the_known_one_is_read_again_once() {
        let mut standing = standing();
        let record = Arc::clone(standing.record());
        let refused = || Raw { reply: withheld(None), instance_us: None, unit_us: 1 };
        assert_eq!(standing.judge(refused(), &record, MS(1), MS(2)).1, Some(Remedy::Readmit));
        standing.renew(Record { vote_from_ms: 99, ..(*record).clone() });
        assert_eq!(standing.judge(refused(), &record, MS(1), MS(2)).1, None);
    }
}
