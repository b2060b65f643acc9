//! Without a socket: what is written, and when, and that each request ends once and by what is true of it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;

use super::*;
use crate::instance::TakesReplies;
use crate::protocol::{AdmissionRecord, InstanceId, ProcessIdentity, RecordOrigin};

const DEADLINE: Duration = Duration::from_millis(200);

/// The replies, by the numbers of the requests.
#[derive(Default)]
struct Replies(Mutex<Vec<(usize, Reply)>>);

impl TakesReplies for Replies {
    fn take(self: Arc<Self>, _: InstanceId, number: usize, reply: Reply) {
        self.0.lock().unwrap().push((number, reply));
    }
}

fn at(ms: u64) -> Instant {
    Instant::from_millis(10_000 + ms)
}

fn known(ms: u64) -> Known {
    let (identity, origin) = (ProcessIdentity::new("run", "replication"), RecordOrigin::Waits);
    let record = AdmissionRecord { identity, vote_from_ms: 1, longest_ttl_ms: 1_000, origin, order: 1 };
    Known { at: at(ms), attached: Some(AttachedRecord::new(record, true)), wall_us: 1_800_000_000_000_000 }
}

fn asked(request: Request, number: usize, since: u64, replies: &Arc<Replies>) -> Asked {
    let reply_to = ReplyTo::numbered(Arc::clone(replies) as Arc<_>, InstanceId::new(0), number);
    Asked { request, reply_to: Some(reply_to), since: at(since) }
}

/// A link under test, with what was written.
#[derive(Default)]
struct Tested {
    link: Link,
    replies: Arc<Replies>,
    count: usize,
    bytes: Vec<u8>,
}

impl Tested {
    /// As the connection does with what ends.
    fn end(&self, ended: Vec<Ended>) {
        for (asked, reply) in ended {
            asked.reply_to.into_iter().for_each(|reply_to| reply_to.answer(reply.clone()));
        }
    }

    /// The number of the request.
    fn ask(&mut self, request: Request, since: u64) -> usize {
        let (number, mut ended) = (self.count, Vec::new());
        self.count += 1;
        self.link.put(asked(request, number, since, &self.replies), &mut ended);
        self.end(ended);
        number
    }

    /// Each of a lock of its own, so many of them, made at `since`.
    fn put(&mut self, count: usize, since: u64) {
        for _ in 0..count {
            let claim = Claim::sample(self.count as u128, &self.count.to_string());
            self.ask(Request::Acquire(Arc::new(claim)), since);
        }
    }

    /// Sends what may be sent; how many each batch has.
    fn send(&mut self, now: u64) -> Vec<usize> {
        let mut sizes = Vec::new();
        while self.link.may_send(at(now)) {
            sizes.push(self.link.write_batch(known(now), &mut self.bytes));
        }
        sizes
    }

    /// Answers the next command; a batch that is answered, each request with `1`.
    fn reply(&mut self, now: u64) -> Option<usize> {
        let Some(InFlight::Batch(batch)) = self.link.in_flight.front() else { return None };
        let of_part = batch.next().map_or(0, |(_, _, count, _)| count);
        let part = batch.next().map(|(part, ..)| part);
        let ones = |head: &str, numbers: usize| format!("*{}\r\n{head}{}", numbers + of_part, ":1\r\n".repeat(of_part));
        let answer = match (batch.expects(), part) {
            (Expected::Set, _) => "_\r\n".to_owned(),
            (Expected::Number, _) => format!(":{of_part}\r\n"),
            (Expected::Time, _) => "*2\r\n$10\r\n1800000000\r\n$1\r\n1\r\n".to_owned(),
            (Expected::List, _) => {
                let wire = known(0).attached.unwrap().wire().to_owned();
                format!("*2\r\n${}\r\n{wire}\r\n_\r\n", wire.len())
            }
            (_, Some(Part::Release)) => ones("", 0),
            (_, Some(Part::Plain | Part::Acquire)) => ones("$4\r\ndone\r\n:1800000000000000\r\n", 2),
            _ => ones("$4\r\ndone\r\n:1800000000000000\r\n:0\r\n", 3),
        };
        let answered = self.link.take(answer.as_bytes(), at(now)).unwrap();
        answered.map(|answered| match answered {
            InFlight::Batch(batch) => {
                let count = batch.requests.len();
                assert_eq!(batch.replies.len(), count);
                let ended = batch.requests.into_iter().zip(batch.replies).map(|(asked, raw)| (asked, raw.reply));
                self.end(ended.collect());
                count
            }
            InFlight::Question(_) | InFlight::Message => 0,
        })
    }

    /// Answers the next batch.
    fn answer(&mut self, now: u64) {
        while self.reply(now).is_none() {}
    }

    /// The next batch, once the first is answered.
    fn next(&mut self) -> Vec<usize> {
        self.answer(0);
        self.send(0)
    }

    fn late(&mut self, now: u64) -> (usize, Option<Instant>, Option<Instant>) {
        let (requests, first_batch) = self.link.take_late(at(now), DEADLINE);
        let count = requests.len();
        self.end(requests.into_iter().map(|asked| (asked, Reply::Unknown(Cause::TimedOut))).collect());
        (count, first_batch, self.link.watched_at())
    }

    fn said(&self, number: usize) -> Vec<Reply> {
        let replies = self.replies.0.lock().unwrap();
        replies.iter().filter(|(of, _)| *of == number).map(|(_, reply)| reply.clone()).collect()
    }
}

#[test]
fn what_is_asked_while_a_batch_is_on_its_way_shares_the_next() {
    let mut tested = Tested::default();
    tested.put(1, 0);
    assert_eq!(tested.send(0), [1], "at once");
    tested.put(9, 0);
    assert_eq!(tested.send(0), [0; 0]);
    tested.put(2, 0);
    assert_eq!(tested.next(), [11]);
    tested.put(1, 0);
    assert_eq!(tested.next(), [1]);
}

#[test]
fn to_an_instance_that_is_far_away_several_batches_are_on_their_way() {
    for (round_trip_us, expected) in [(0, 1), (499, 1), (500, 5), (2_000, 20)] {
        let mut tested = Tested::default();
        tested.link.note_answer(Duration::from_micros(round_trip_us));
        tested.link.note_answer(Duration::from_secs(1));
        let sent = (0..30).map(|_| {
            tested.put(1, 0);
            tested.send(0).len()
        });
        assert_eq!(sent.sum::<usize>(), expected, "{round_trip_us}");
    }
}

#[test]
fn after_a_batch_that_failed_requests_are_sent_singly_for_a_while() {
    let mut tested = Tested::default();
    let fail = |tested: &mut Tested| {
        tested.put(2, 0);
        let script = |asked: &mut Asked| {
            let claim = Claim { is_first: false, ..Claim::clone(asked.request.claim()) };
            asked.request = Request::Acquire(Arc::new(claim));
        };
        tested.link.waiting.iter_mut().for_each(script);
        assert_eq!(tested.send(0), [2]);
        assert!(tested.link.take(b"-NOPERM no access to a key\r\n", at(0)).is_ok());
    };
    let sizes = |tested: &mut Tested, count: usize| {
        tested.put(count, 0);
        let mut sizes = tested.send(0);
        while tested.link.batches > 0 {
            sizes.extend(tested.next());
        }
        sizes
    };
    for often in [UNBATCHED_LEAST, 2 * UNBATCHED_LEAST, 4 * UNBATCHED_LEAST] {
        fail(&mut tested);
        let before = tested.link.unbatched_before;
        assert_eq!(sizes(&mut tested, often), vec![1; often]);
        assert_eq!((before, tested.link.unbatched_left), (often, 0));
    }
    assert_eq!(sizes(&mut tested, 3), [3]);
    fail(&mut tested);
    assert_eq!(sizes(&mut tested, UNBATCHED_LEAST), vec![1; UNBATCHED_LEAST]);
    assert_eq!(sizes(&mut tested, 3), [3]);
}

#[test]
fn each_request_has_its_deadline_however_long_it_waited() {
    let mut tested = Tested::default();
    tested.put(1, 0);
    assert_eq!(tested.send(0), [1]);
    tested.put(2, 1);
    assert_eq!(tested.send(1), [0; 0]);
    assert!(tested.link.needs_watch(at(1), DEADLINE) && !tested.link.needs_watch(at(1), DEADLINE));
    assert_eq!(tested.late(1), (0, None, Some(at(2))));
    assert_eq!(tested.send(2), [2], "it takes longer than usual");
    assert_eq!(tested.late(2), (0, None, Some(at(4))), "more may wait soon");
    assert_eq!(tested.late(4), (0, None, Some(at(200))));
    assert_eq!(tested.late(200), (1, Some(at(0)), Some(at(201))));
    while tested.link.in_flight.len() > 1 {
        assert_eq!(tested.reply(200), None, "it is too late, and only counted");
    }
    assert_eq!(tested.late(201), (2, None, Some(at(202))));
    tested.put(1, 201);
    let (count, first, next) = tested.late(202);
    assert_eq!((count, first, next), (2, Some(at(2)), Some(at(401))));
    assert_eq!(tested.late(401), (1, None, None));
    assert_eq!(tested.send(401), [0; 0], "it was not sent, and is not any more");
    tested.put(1, 500);
    assert!(tested.link.needs_watch(at(500), DEADLINE), "no task looks any more");
}

#[test]
fn an_instance_is_silent_that_has_not_answered_for_two_deadlines() {
    let mut tested = Tested::default();
    tested.put(1, 0);
    tested.send(0);
    let link = &mut tested.link;
    assert!(!link.note_unanswered(at(0), at(200), DEADLINE));
    assert!(!link.note_unanswered(at(150), at(399), DEADLINE));
    assert!(link.note_unanswered(at(200), at(400), DEADLINE));
    link.note_answer(DEADLINE);
    assert!(!link.note_unanswered(at(300), at(500), DEADLINE));
    assert!(link.note_unanswered(at(400), at(700), DEADLINE));
}

/// An instance that hung then was waited for until the clock showed that time again.
#[test]
fn a_clock_that_was_set_back_ends_the_wait_for_what_was_sent_before() {
    let mut tested = Tested::default();
    tested.put(2, 3_600_000);
    tested.send(3_600_000);
    assert_eq!(tested.late(3_599_900).0, 0, "that little it may be");
    assert_eq!(tested.late(100).0, 2);
    assert!(tested.link.note_unanswered(at(3_600_000), at(100), DEADLINE));
}

#[test]
fn a_connection_that_is_given_up_or_has_much_to_do_takes_nothing() {
    let mut tested = Tested::default();
    tested.put(MAX_WAITING, 0);
    let sample = || Arc::new(Claim::sample(u128::MAX, "a"));
    let refused = tested.ask(Request::Acquire(sample()), 0);
    assert_eq!(tested.said(refused), [Reply::NotSent(Cause::Overloaded)]);
    let held = tested.ask(Request::Extend(sample()), 0);
    assert_eq!(tested.said(held), [], "what is held goes on");
    assert!(tested.send(0).len() == 1 && tested.link.outstanding() == tested.count - 1);
    let (ended, _) = tested.link.close(None);
    let unknown = ended.iter().filter(|(_, reply)| matches!(reply, Reply::Unknown(Cause::Disconnected(_)))).count();
    assert!(unknown > 0 && ended.iter().skip(unknown).all(|(_, reply)| *reply == Reply::NotSent(closed())));
    assert_eq!(ended.len(), tested.count - 1);
    let after = tested.ask(Request::Extend(sample()), 0);
    assert_eq!(tested.said(after), [Reply::NotSent(closed())]);
}

/// An attempt that was given up is not carried out by an instance that is busy or hangs.
#[test]
fn a_release_withdraws_what_waits_of_its_value() {
    let mut tested = Tested::default();
    tested.put(1, 0);
    assert_eq!(tested.send(0), [1]);
    let claim = Arc::new(Claim::sample(7, "a"));
    let resent = Arc::new(Claim { resent: true, ..Claim::clone(&claim) });
    let release = |claim: &Arc<Claim>| Request::Release(Arc::clone(claim), None);
    let withdrawn = [Reply::NotSent(Cause::Withdrawn)];
    let acquire = tested.ask(Request::Acquire(Arc::clone(&claim)), 0);
    let other = tested.ask(Request::Acquire(Arc::new(Claim::sample(8, "a"))), 0);
    let released = tested.ask(release(&claim), 0);
    assert_eq!(tested.said(acquire), withdrawn);
    assert_eq!(tested.said(released), [Reply::Refused(Refusal::default())], "nothing to release");
    assert_eq!(tested.said(other), [], "another value");
    let [acquire, extend] = [Request::Acquire, Request::Extend].map(|kind| tested.ask(kind(Arc::clone(&claim)), 0));
    let released = tested.ask(release(&resent), 0);
    assert_eq!([tested.said(acquire), tested.said(extend)], [withdrawn.to_vec(), withdrawn.to_vec()]);
    assert_eq!(tested.said(released), [], "something of it was sent before");
    assert_eq!(tested.next(), [1], "which is not passed");
    assert_eq!(tested.next(), [1]);
}

/// What is done with a link.
#[derive(Clone, Copy, Debug)]
enum Step {
    Ask { kind: u8, key: u8, round: u8, resent: bool, is_first: bool },
    Reply,
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let ask = (0..3_u8, 0..4_u8, 0..3_u8, any::<bool>(), any::<bool>());
    prop_oneof![
        6 => ask.prop_map(|(kind, key, round, resent, is_first)| Step::Ask { kind, key, round, resent, is_first }),
        5 => Just(Step::Reply),
        2 => (0..90_u64).prop_map(Step::Pass),
    ]
}

proptest! {
    #[test]
    fn each_request_ends_once_in_time_in_order_and_by_what_is_true_of_it(steps in prop::collection::vec(step(), 1..120)) {
        let (mut tested, mut now, mut asked, mut written) = (Tested::default(), 0, BTreeMap::new(), Vec::new());
        for step in steps {
            match step {
                Step::Ask { kind, key, round, resent, is_first } => {
                    let sample = Claim::sample(u128::from(round * 4 + key), &key.to_string());
                    let claim = Arc::new(Claim { resent, is_first, ..sample });
                    let request = match kind {
                        0 => Request::Acquire(claim),
                        1 => Request::Extend(claim),
                        _ => Request::Release(claim, None),
                    };
                    let number = tested.ask(request.clone(), now);
                    asked.insert(number, (request, now));
                }
                Step::Reply => _ = tested.reply(now),
                Step::Pass(ms) => now += ms,
            }
            tested.late(now);
            let before = tested.link.in_flight.len();
            tested.send(now);
            for sent in tested.link.in_flight.iter().skip(before) {
                let InFlight::Batch(batch) = sent else { continue };
                let most = |part| if part == Part::Plain { 128 } else { 32 };
                let fits = batch.parts.iter().all(|(part, count)| count <= most(part));
                prop_assert!(fits, "too many at once");
                written.extend(batch.requests.iter().map(|asked| (asked.request.claim().value.clone(), kind_of(&asked.request))));
            }
            for (number, (_, since)) in &asked {
                prop_assert!(tested.said(*number).len() <= 1);
                prop_assert!(now < since + 200 || tested.said(*number).len() == 1, "late: {}", number);
            }
        }
        let (ended, _) = tested.link.close(None);
        tested.end(ended);
        let mut carried_out: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for (value, kind) in written {
            carried_out.entry(value.as_bytes().to_vec()).or_default().push(kind);
        }
        let mut of_value: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for (number, (request, _)) in &asked {
            let said = tested.said(*number);
            prop_assert_eq!(said.len(), 1, "{} {:?}", number, request);
            let was_sent = !matches!(said[0], Reply::NotSent(_));
            let skipped = matches!(request, Request::Release(..)) && said[0] == Reply::Refused(Refusal::default());
            let timed_out = said[0] == Reply::Unknown(Cause::TimedOut); // sent or not
            if was_sent && !skipped && !timed_out {
                of_value.entry(request.claim().value.as_bytes().to_vec()).or_default().push(kind_of(request));
            }
        }
        for (value, kinds) in of_value {
            let sent = carried_out.get(&value).cloned().unwrap_or_default();
            let mut rest = sent.iter();
            prop_assert!(kinds.iter().all(|kind| rest.any(|sent| sent == kind)), "{:?} of {:?}", kinds, sent);
        }
    }
}

fn kind_of(request: &Request) -> u8 {
    match request {
        Request::Acquire(_) => 0,
        Request::Extend(_) | Request::Keep(_) => 1,
        Request::Release(..) => 2,
    }
}
