//! What requests that wait together are sent as: one write, with at most one call of each kind.

use std::collections::{BTreeMap, HashMap, VecDeque};

use redis::{Pipeline, RedisResult, Value};

use super::classify::{
    Said, classify_acquires, classify_extends, classify_plain, classify_readers, classify_releases,
    is_a_fault_of_a_request,
};
use super::plain;
use super::scripts::Scripts;
use super::scripts::command::ReadersDo;
use crate::instance::{Claim, MAX_COMMAND_BYTES, Request};
use crate::protocol::{Access, AttachedRecord, RawReply, Value as LockValue};
use crate::resource::Resource;

/// The most locks in one call of a script: an instance does nothing else meanwhile.
const MOST_IN_A_SCRIPT: usize = 32;

/// The most plain acquires in one write.
const MOST_PLAIN: usize = 128;

/// How many kinds of calls there are.
const PARTS: usize = 8;

/// What a request is sent as. In a write they stand in this order.
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

    /// Whether a write with this request alone is the same for each instance, and nothing is published behind it.
    pub(super) fn says_the_same_to_all(self, only: &Request) -> bool {
        self.0[Part::Plain as usize] + self.0[Part::Release as usize] == 1 && only.wakes().is_empty()
    }

    /// The requests of each part.
    fn split<'a, 'b>(self, requests: &'a [&'b Request]) -> [&'a [&'b Request]; PARTS] {
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
/// The requests for one key keep their order (P6), but for those of different readers: one that would stand in the write before an earlier one, or in the same call,
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
    let (mut parts, mut bytes) = (Parts::default(), 0_usize);
    let mut taken: Vec<(Part, T)> = Vec::with_capacity(waiting.len().min(most));
    let mut left = VecDeque::new();
    let mut order = Order::default();
    while taken.len() < most
        && let Some(item) = waiting.pop_front()
    {
        let claim = request(&item).claim();
        let part = Part::of(request(&item), is_plain(request(&item)));
        bytes = bytes.saturating_add(claim.command_size());
        let is_full = parts.0[part as usize] >= part.most() || (bytes > MAX_COMMAND_BYTES && !taken.is_empty());
        if is_full {
            waiting.push_front(item);
            break;
        }
        let goes = order.note(claim, part);
        if goes {
            parts.0[part as usize] += 1;
            taken.push((part, item));
        } else {
            left.push_back(item);
        }
    }
    left.append(waiting);
    *waiting = left;
    taken.sort_by_key(|(part, _)| *part); // stable
    (taken.into_iter().map(|(_, item)| item).collect(), parts)
}

/// Where the last requests for a key stand that concern those that follow: a part of the write, or `None` if one waits.
#[derive(Default)]
struct Order {
    locks: BTreeMap<Resource, Option<Part>>,
    readers: BTreeMap<Resource, Option<Part>>,
    /// Readers of one key do not concern each other: of each value, the last request.
    values: HashMap<(Resource, LockValue), Option<Part>>,
}

impl Order {
    /// Whether a request may be in this part of the write, behind those before it; else it waits.
    fn note(&mut self, claim: &Claim, part: Part) -> bool {
        let Self { locks, readers, values } = self;
        let may_follow = |before: Option<&Option<Part>>| before.is_none_or(|before| before.is_some_and(|it| it < part));
        let resource = &claim.resource;
        if !part.is_of_readers() {
            let goes = may_follow(locks.get(resource)) && may_follow(readers.get(resource));
            locks.insert(resource.clone(), goes.then_some(part));
            return goes;
        }
        let value = (resource.clone(), claim.value.clone());
        let goes = may_follow(locks.get(resource)) && may_follow(values.get(&value));
        let stands = goes.then_some(part);
        values.insert(value, stands);
        let last = readers.entry(resource.clone()).or_insert(stands);
        *last = last.zip(stands).map(|(last, this)| last.max(this));
        goes
    }
}

/// The commands of a write.
pub(crate) fn commands(
    scripts: &Scripts,
    parts: Parts,
    requests: &[&Request],
    attached: Option<&AttachedRecord>,
) -> Pipeline {
    let mut commands = Pipeline::with_capacity(requests.len() + 4);
    for (part, of_part) in Part::ALL.into_iter().zip(parts.split(requests)) {
        let claims = of_part.iter().map(|request| &**request.claim());
        match part {
            _ if of_part.is_empty() => {}
            Part::Release => _ = commands.add_command(scripts.release(claims)),
            Part::Plain => plain::add(&mut commands, claims),
            Part::Acquire => _ = commands.add_command(scripts.acquire(claims, attached)),
            Part::Extend => _ = commands.add_command(scripts.extend(claims, attached, true)),
            Part::Keep => _ = commands.add_command(scripts.extend(claims, attached, false)),
            Part::Read => _ = commands.add_command(scripts.read(claims, attached, ReadersDo::Read)),
            Part::Renew => _ = commands.add_command(scripts.read(claims, attached, ReadersDo::Renew)),
            Part::Leave => _ = commands.add_command(scripts.read(claims, attached, ReadersDo::Leave)),
        }
    }
    commands
}

/// What was answered to a write.
#[derive(Debug)]
pub(crate) struct Answers {
    /// To each request.
    pub(crate) replies: Vec<RawReply>,
    /// Whether a script failed as a whole, perhaps by the fault of one of its requests.
    pub(crate) has_failed: bool,
}

/// Classifies the answers to [`commands`].
pub(crate) fn classify(
    parts: Parts,
    requests: &[&Request],
    attached: Option<&AttachedRecord>,
    result: &RedisResult<Value>,
) -> Answers {
    let mut answers = Answers { replies: Vec::with_capacity(requests.len()), has_failed: false };
    let mut said = Said::of(result);
    for (part, of_part) in Part::ALL.into_iter().zip(parts.split(requests)) {
        if of_part.is_empty() {
            continue;
        }
        let claims: Vec<&Claim> = of_part.iter().map(|request| &**request.claim()).collect();
        answers.replies.extend(match part {
            Part::Plain => classify_plain(&claims, attached, &said.next(claims.len() + plain::COMMANDS_BESIDE)),
            script => {
                let answer = said.next(1);
                answers.has_failed |= is_a_fault_of_a_request(&answer);
                match script {
                    Part::Release => classify_releases(claims.len(), &answer),
                    Part::Acquire => classify_acquires(&claims, &answer),
                    Part::Leave => classify_readers(&claims, &answer),
                    _ => classify_extends(&claims, &answer),
                }
            }
        });
    }
    answers
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

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

    /// P33: what one reader asks does not wait for another's; a lock, and the mark of its writer, do.
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
}
