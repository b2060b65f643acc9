//! What requests that wait together are sent as: one write, with at most one call of each kind.

use std::collections::{HashMap, VecDeque};

use redis::{RedisResult, Value};

use super::classify::{
    Said, classify_acquires, classify_extends, classify_plain, classify_readers, classify_releases,
    is_a_fault_of_a_request,
};
use super::encode::Encoder;
use super::reply_limit::{RECORD, VALUE};
use super::scripts;
use crate::instance::{Claim, MAX_COMMAND_BYTES, Request};
use crate::protocol::{Access, AttachedRecord, RawReply, Value as LockValue};
use crate::resource::{ADMISSION_KEY, AsItIs, FLOOR_KEY, TOKENS_KEY};

/// The most locks in one call of a script: an instance does nothing else meanwhile.
const MOST_IN_A_SCRIPT: usize = 32;

/// The most plain acquires in one write.
const MOST_PLAIN: usize = 128;

/// How many commands a write of plain acquires takes besides one for each.
const BESIDE_PLAIN: usize = 3;

/// How many kinds of calls there are.
const PARTS: usize = 8;

/// The commands for a request. In a write they have this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Release,
    Leave,
    Plain,
    Acquire,
    Read,
    Extend,
    Keep,
    Renew,
}

impl Part {
    const ALL: [Self; PARTS] =
        [Self::Release, Self::Leave, Self::Plain, Self::Acquire, Self::Read, Self::Extend, Self::Keep, Self::Renew];

    fn of(request: &Request, is_plain: bool) -> Self {
        let reads = matches!(request.claim().access, Access::Read);
        match request {
            Request::Release(..) if reads => Self::Leave,
            Request::Acquire(_) if reads => Self::Read,
            Request::Extend(_) | Request::Keep(_) if reads => Self::Renew,
            Request::Release(..) => Self::Release,
            Request::Acquire(_) if is_plain => Self::Plain,
            Request::Acquire(_) => Self::Acquire,
            Request::Extend(_) => Self::Extend,
            Request::Keep(_) => Self::Keep,
        }
    }

    /// Whether it is of readers: one key may be in a call several times.
    const fn is_of_readers(self) -> bool {
        matches!(self, Self::Leave | Self::Read | Self::Renew)
    }

    const fn most(self) -> usize {
        match self {
            Self::Plain => MOST_PLAIN,
            _ => MOST_IN_A_SCRIPT,
        }
    }
}

/// Whether it may be sent as plain commands, which cost an instance less than a script, to one with this record, whose clock shows at
/// least `wall_us`: the first request of an acquire (P28).
pub(super) fn may_be_plain(request: &Request, attached: Option<&AttachedRecord>, wall_us: u64) -> bool {
    let Request::Acquire(claim) = request else { return false };
    claim.is_first && attached.is_some_and(|attached| attached.lets_plain(claim.token, wall_us))
}

/// How many requests of a write are sent as what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parts([usize; PARTS]);

impl Parts {
    /// Of the only request of a write.
    fn of_one(request: &Request, is_plain: bool) -> Self {
        let mut parts = Self([0; PARTS]);
        parts.0[Part::of(request, is_plain) as usize] = 1;
        parts
    }

    /// The requests of each part.
    fn split<T>(self, requests: &[T]) -> [&[T]; PARTS] {
        let mut left = requests;
        self.0.map(|count| {
            let (part, behind) = left.split_at(count.min(left.len()));
            left = behind;
            part
        })
    }
}

/// Takes from those that wait what goes into one write: `most` requests at most, in its order.
///
/// The requests for one key keep their order (P6), but for those of different readers: one that would come in the write before an earlier one, or in the same call,
/// waits for the next write, and with it all that are behind it.
pub(crate) fn take_for_one_write<T>(
    waiting: &mut VecDeque<T>,
    most: usize,
    request: impl Fn(&T) -> &Request,
    is_plain: impl Fn(&Request) -> bool,
) -> (Vec<T>, Parts) {
    if waiting.len() == 1
        && let Some(only) = waiting.pop_front()
    {
        let parts = Parts::of_one(request(&only), is_plain(request(&only)));
        return (vec![only], parts);
    }
    let (mut taken, mut count, mut bytes) = (<[Vec<T>; PARTS]>::default(), 0, 0_usize);
    let mut left = VecDeque::new();
    let mut order = Order::default();
    order.locks.reserve(waiting.len().min(MOST_PLAIN));
    while count < most
        && let Some(item) = waiting.pop_front()
    {
        let claim = request(&item).claim();
        let part = Part::of(request(&item), is_plain(request(&item)));
        let of_part = &mut taken[part as usize];
        bytes = bytes.saturating_add(claim.command_size());
        if of_part.len() >= part.most() || (bytes > MAX_COMMAND_BYTES && count > 0) {
            waiting.push_front(item);
            break;
        }
        let goes = order.note(claim, part);
        if goes {
            if of_part.is_empty() {
                of_part.reserve(part.most().min(waiting.len() + 1));
            }
            of_part.push(item);
            count += 1;
        } else {
            left.push_back(item);
        }
    }
    if !left.is_empty() {
        left.append(waiting);
        *waiting = left;
    }
    let parts = Parts(taken.each_ref().map(Vec::len));
    let all = taken.into_iter().filter(|of_part| !of_part.is_empty()).reduce(|mut before, mut of_part| {
        before.append(&mut of_part);
        before
    });
    (all.unwrap_or_default(), parts)
}

/// The first part of the write in which one more request for a key may be; `PARTS` if one waits, and so all behind it.
///
/// By the hashes of keys: of two with the same hash one waits for nothing.
#[derive(Default)]
struct Order {
    locks: HashMap<u64, usize, AsItIs>,
    readers: HashMap<u64, usize, AsItIs>,
    /// Readers of one key do not concern each other, but the requests of each do.
    values: HashMap<LockValue, usize>,
}

impl Order {
    /// Whether a request may be in this part of the write, behind those before it; else it waits.
    fn note(&mut self, claim: &Claim, part: Part) -> bool {
        let Self { locks, readers, values } = self;
        let (key, at) = (claim.resource.hash(), part as usize);
        let behind = |goes| if goes { at + 1 } else { PARTS };
        if part.is_of_readers() {
            let goes = locks.get(&key).is_none_or(|first| *first <= at);
            let value = values.entry(claim.value.clone()).or_default();
            let goes = goes && *value <= at;
            *value = behind(goes);
            let last = readers.entry(key).or_default();
            *last = behind(goes).max(*last);
            return goes;
        }
        let first = locks.entry(key).or_default();
        let goes = *first <= at && readers.get(&key).is_none_or(|first| *first <= at);
        *first = behind(goes);
        goes
    }
}

/// The commands of a write.
pub(crate) fn encode(
    commands: &mut Encoder<'_>,
    parts: Parts,
    requests: &[impl AsRef<Claim>],
    attached: Option<&AttachedRecord>,
) {
    for (part, of_part) in Part::ALL.into_iter().zip(parts.split(requests)) {
        let claims = of_part.iter().map(AsRef::as_ref);
        match part {
            _ if of_part.is_empty() => {}
            Part::Release => scripts::release(commands, claims),
            Part::Plain => add_plain(commands, claims),
            Part::Acquire => scripts::acquire(commands, claims, attached),
            Part::Extend => scripts::extend(commands, claims, attached, true),
            Part::Keep => scripts::extend(commands, claims, attached, false),
            Part::Read => scripts::read(commands, claims, attached, "read"),
            Part::Renew => scripts::read(commands, claims, attached, "renew"),
            Part::Leave => scripts::read(commands, claims, None, "leave"),
        }
    }
}

/// Adds the commands of plain acquires. They are not one script, so their order matters: the time is read behind the keys, so that a
/// step of the clock before shows (P17), and the record and the floor are read behind everything else, and then still say that nothing was
/// forgotten since the keys were set, and no larger token before they were stored (P13).
fn add_plain<'a>(commands: &mut Encoder<'_>, claims: impl ExactSizeIterator<Item = &'a Claim> + Clone) {
    commands.add_each("SET", 7, VALUE, claims.clone(), |words, claim| {
        words.key_to_set(claim);
    });
    commands.add("ZADD", 4 + 2 * claims.len(), 0, |words| {
        words.word(TOKENS_KEY).word("GT").word("CH");
        claims.for_each(|claim| _ = words.token_and_key(claim));
    });
    commands.add("TIME", 1, 0, |_| {});
    commands.add("MGET", 3, RECORD, |words| _ = words.word(ADMISSION_KEY).word(FLOOR_KEY));
}

/// What was answered to a write.
#[derive(Debug)]
pub(crate) struct Answers {
    /// To each request.
    pub(crate) replies: Vec<RawReply>,
    /// Whether a script failed as a whole, perhaps by the fault of one of its requests.
    pub(crate) has_failed: bool,
}

/// Classifies the answers to what [`encode`] has put together.
pub(crate) fn classify(
    parts: Parts,
    requests: &[impl AsRef<Claim>],
    attached: Option<&AttachedRecord>,
    result: &RedisResult<Value>,
) -> Answers {
    let mut answers = Answers { replies: Vec::new(), has_failed: false };
    let mut said = Said::of(result);
    for (part, claims) in Part::ALL.into_iter().zip(parts.split(requests)) {
        if claims.is_empty() {
            continue;
        }
        let mut replies = match part {
            Part::Plain => classify_plain(claims, attached, &said.next(claims.len() + BESIDE_PLAIN)),
            script => {
                let answer = said.next(1);
                answers.has_failed |= is_a_fault_of_a_request(&answer);
                match script {
                    Part::Release => classify_releases(claims, &answer),
                    Part::Acquire => classify_acquires(claims, &answer),
                    Part::Leave => classify_readers(claims, &answer),
                    _ => classify_extends(claims, &answer),
                }
            }
        };
        if answers.replies.is_empty() {
            answers.replies = replies;
        } else {
            answers.replies.append(&mut replies);
        }
    }
    answers
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::protocol::{AdmissionRecord, FencingToken, ProcessIdentity, RecordOrigin};

    const ACQUIRE: fn(Arc<Claim>) -> Request = Request::Acquire;
    const EXTEND: fn(Arc<Claim>) -> Request = Request::Extend;
    const RELEASE: fn(Arc<Claim>) -> Request = |claim| Request::Release(claim, None);

    fn named(kind: fn(Arc<Claim>) -> Request, name: &str) -> Request {
        kind(Arc::new(Claim::sample(1, name)))
    }

    /// Which go into the first write, in its order, which into the second, and so on; of acquires of names in capitals every one is
    /// plain.
    fn writes(requests: Vec<Request>) -> Vec<Vec<usize>> {
        let mut waiting: VecDeque<(usize, Request)> = requests.into_iter().enumerate().collect();
        let is_plain = |request: &Request| request.claim().resource.key()[0].is_ascii_uppercase();
        let mut writes = Vec::new();
        while !waiting.is_empty() {
            let (taken, parts) = take_for_one_write(&mut waiting, usize::MAX, |(_, request)| request, is_plain);
            assert_eq!(parts.0.iter().sum::<usize>(), taken.len());
            writes.push(taken.into_iter().map(|(at, _)| at).collect());
        }
        writes
    }

    #[test]
    fn what_waits_for_different_keys_shares_a_write_in_the_order_of_its_parts() {
        let requests = [(EXTEND, "a"), (ACQUIRE, "b"), (RELEASE, "c"), (ACQUIRE, "D"), (RELEASE, "e"), (ACQUIRE, "F")];
        let requests = requests.map(|(kind, name)| named(kind, name)).into();
        assert_eq!(writes(requests), [vec![2, 4, 3, 5, 1, 0]]);
    }

    /// Otherwise a key would be set after it was deleted, and stay, or a release would find the key of the next (P6).
    #[test]
    fn requests_for_one_key_keep_their_order() {
        let all = [(RELEASE, "a"), (ACQUIRE, "a"), (EXTEND, "a"), (ACQUIRE, "A"), (RELEASE, "A")];
        for (first, second, third) in (0..125).map(|number| (all[number / 25], all[number / 5 % 5], all[number % 5])) {
            let requests = [first, second, third].map(|(kind, name)| named(kind, name));
            let writes = writes(requests.to_vec());
            let placed: Vec<usize> = writes.iter().flatten().copied().collect();
            let place = |at| placed.iter().position(|placed| *placed == at);
            let call = |at: usize| writes.iter().position(|write| write.contains(&at));
            for (one, other) in [(0, 1), (0, 2), (1, 2)] {
                if requests[one].claim().resource == requests[other].claim().resource {
                    assert!(place(one) < place(other), "{requests:?}: {writes:?}");
                    let is_same = std::mem::discriminant(&requests[one]) == std::mem::discriminant(&requests[other]);
                    assert!(!is_same || call(one) < call(other), "no key is twice in a call: {requests:?}: {writes:?}");
                }
            }
        }
    }

    /// P33: a request of one reader does not wait for another's; a lock, and the mark of its writer, do.
    #[test]
    fn readers_of_one_key_share_a_write_and_each_keeps_its_order() {
        let reader = |kind: fn(Arc<Claim>) -> Request, round| {
            kind(Arc::new(Claim { access: Access::Read, ..Claim::sample(round, "a") }))
        };
        let both =
            vec![reader(ACQUIRE, 1), reader(ACQUIRE, 2), reader(RELEASE, 3), reader(EXTEND, 4), reader(EXTEND, 5)];
        assert_eq!(writes(both), [vec![2, 0, 1, 3, 4]]);
        let own = vec![reader(ACQUIRE, 1), reader(RELEASE, 1), reader(ACQUIRE, 2), reader(ACQUIRE, 2)];
        assert_eq!(writes(own), [vec![0, 2], vec![1, 3]]);
        let beside_a_lock = vec![named(ACQUIRE, "a"), reader(RELEASE, 2), reader(ACQUIRE, 3), named(ACQUIRE, "a")];
        assert_eq!(writes(beside_a_lock), [vec![0, 2], vec![1, 3]]);
    }

    #[test]
    fn a_write_has_so_many_locks_in_each_part_and_so_many_bytes() {
        let many = |kind, count: usize, size: usize| -> Vec<Request> {
            (0..count).map(|number| named(kind, &format!("{number:0size$}"))).collect()
        };
        let sizes = |requests| writes(requests).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(sizes(many(RELEASE, 70, 3)), [32, 32, 6]);
        assert_eq!(sizes(many(ACQUIRE, 3, MAX_COMMAND_BYTES / 2)), [1, 1, 1]);
        let plain = (0..300).map(|number| named(ACQUIRE, &format!("N{number}"))).collect();
        assert_eq!(sizes(plain), [128, 128, 44]);
    }

    const NOW_US: u64 = 1_800_000_000_000_000;

    fn attached(quarantine_over: bool) -> AttachedRecord {
        let (identity, origin) = (ProcessIdentity::new("run", "replication"), RecordOrigin::Waits);
        let record = AdmissionRecord { identity, vote_from_ms: 1, longest_ttl_ms: 1_000, origin, order: 1 };
        AttachedRecord::new(record, quarantine_over)
    }

    /// P28: read before the key is set, the record would vouch for what was forgotten in between.
    #[test]
    fn the_record_and_the_floor_are_read_behind_everything_else() {
        let (mut commands, claims) = (Vec::new(), [1, 2].map(|round| Claim::sample(round, "a")));
        add_plain(&mut Encoder::new(&mut commands), claims.iter());
        assert!(commands.ends_with(&redis::cmd("MGET").arg(ADMISSION_KEY).arg(FLOOR_KEY).get_packed_command()));
    }

    #[test]
    fn only_the_first_request_of_an_acquire_on_an_instance_that_is_known_is_plain() {
        let usual = Claim { is_first: true, ..Claim::sample(1, "a") };
        let is_plain = |claim: &Claim, attached: Option<&AttachedRecord>| {
            may_be_plain(&Request::Acquire(Arc::new(claim.clone())), attached, NOW_US)
        };
        let known = attached(true);
        assert!(is_plain(&usual, Some(&known)));
        assert!(!is_plain(&usual, None), "admission is off, and the clock unknown");
        assert!(!is_plain(&usual, Some(&attached(false))));
        let ahead = Claim { token: FencingToken::propose(2 * NOW_US, None), ..usual.clone() };
        for other in [Claim { is_first: false, ..usual.clone() }, ahead] {
            assert!(!is_plain(&other, Some(&known)));
        }
        let usual = Arc::new(usual);
        for request in [Request::Extend(Arc::clone(&usual)), Request::Release(usual, None)] {
            assert!(!may_be_plain(&request, Some(&known), NOW_US));
        }
    }
}
