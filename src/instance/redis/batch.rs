//! What requests that wait together are written as: at most one command of each kind, straight into the bytes that go out.

use std::collections::{HashMap, VecDeque};

use super::scripts::{ScriptKind, millis};
use crate::instance::{Claim, ClaimWords, MAX_COMMAND_BYTES, Request, Wake};
use crate::protocol::{Access, AttachedRecord, Value as LockValue, WriterMark};
use crate::resource::{ADMISSION_KEY, AsItIs, FLOOR_KEY, TOKENS_KEY};

/// The most locks in one call of a script: an instance does nothing else meanwhile.
const MOST_IN_A_SCRIPT: usize = 32;

/// The most plain acquires in one batch.
const MOST_PLAIN: usize = 128;

/// How many commands plain acquires take besides one for each.
pub(super) const BESIDE_PLAIN: usize = 3;

/// How many kinds of calls there are.
const PARTS: usize = 8;

/// The commands for a request. In a batch they have this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
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

/// How many requests of a batch are written as what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parts([usize; PARTS]);

impl Parts {
    /// The parts that there are, with the requests of each.
    pub(super) fn split<T>(self, requests: &[T]) -> impl Iterator<Item = (Part, &[T])> {
        let mut left = requests;
        Part::ALL.into_iter().zip(self.0).filter(|(_, count)| *count > 0).map(move |(part, count)| {
            let (requests, behind) = left.split_at(count.min(left.len()));
            left = behind;
            (part, requests)
        })
    }

    /// The parts that there are, each with how many requests it has.
    pub(super) fn iter(self) -> impl Iterator<Item = (Part, usize)> {
        Part::ALL.into_iter().zip(self.0).filter(|(_, count)| *count > 0)
    }
}

/// Takes from the front of those that wait what goes into one batch: `most` requests at most, in its order.
///
/// The requests for one key keep their order (P6), but for those of different readers: where one would come before an earlier one, or in
/// the same call, the batch ends.
pub(crate) fn take_batch<T>(
    waiting: &mut VecDeque<T>,
    most: usize,
    request: impl Fn(&T) -> &Request,
    is_plain: impl Fn(&Request) -> bool,
) -> (Vec<T>, Parts) {
    let (mut parts, mut order, mut bytes) = (Parts::default(), Order::default(), 0_usize);
    let (mut places, mut is_sorted) = (Vec::with_capacity(waiting.len().min(MOST_PLAIN)), true);
    for item in waiting.iter().take(most) {
        let request = request(item);
        let part = Part::of(request, is_plain(request));
        let claim = request.claim();
        bytes = bytes.saturating_add(claim.command_size());
        let has_room = parts.0[part as usize] < part.most() && (bytes <= MAX_COMMAND_BYTES || places.is_empty());
        if !has_room || (waiting.len() > 1 && !order.note(claim, part)) {
            break;
        }
        is_sorted &= places.last().is_none_or(|last| *last <= part);
        parts.0[part as usize] += 1;
        places.push(part);
    }
    let taken = waiting.drain(..places.len());
    if is_sorted {
        return (taken.collect(), parts);
    }
    let mut sorted: Vec<(Part, T)> = places.into_iter().zip(taken).collect();
    sorted.sort_by_key(|(part, _)| *part);
    (sorted.into_iter().map(|(_, item)| item).collect(), parts)
}

/// The first part of the batch in which one more request for a key may be.
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
    /// Whether a request may be in this part of the batch, behind those before it.
    fn note(&mut self, claim: &Claim, part: Part) -> bool {
        let Self { locks, readers, values } = self;
        let (key, at) = (claim.resource.hash(), part as usize);
        let is_behind = |first: Option<&usize>| first.is_none_or(|first| *first <= at);
        if part.is_of_readers() {
            let goes =
                is_behind(locks.get(&key)) && values.insert(claim.value.clone(), at + 1).is_none_or(|it| it <= at);
            let last = readers.entry(key).or_default();
            *last = (at + 1).max(*last);
            return goes;
        }
        is_behind(readers.get(&key)) && locks.insert(key, at + 1).is_none_or(|first| first <= at)
    }
}

/// The words of commands, behind what is to be written before them.
pub(crate) struct Words<'a>(pub(crate) &'a mut Vec<u8>);

impl Words<'_> {
    /// A command of so many words, its name included, which is the first.
    pub(super) fn command(&mut self, name: &str, words: usize) -> &mut Self {
        self.line(b'*', words as u64).word(name)
    }

    pub(super) fn word(&mut self, word: impl AsRef<[u8]>) -> &mut Self {
        let word = word.as_ref();
        self.line(b'$', word.len() as u64).encoded(word).encoded(b"\r\n")
    }

    pub(super) fn number(&mut self, number: u64) -> &mut Self {
        self.word(itoa::Buffer::new().format(number))
    }

    /// Words that are encoded already.
    pub(super) fn encoded(&mut self, words: &[u8]) -> &mut Self {
        self.0.extend_from_slice(words);
        self
    }

    pub(super) fn key(&mut self, claim: &Claim) -> &mut Self {
        let ClaimWords { words, key, value, .. } = words_of(claim);
        self.encoded(words.get(*key..*value).unwrap_or_default())
    }

    pub(super) fn value_and_token(&mut self, claim: &Claim) -> &mut Self {
        let ClaimWords { words, key, value, behind } = words_of(claim);
        self.encoded(words.get(*value..*behind).unwrap_or_default());
        self.encoded(words.get(..*key).unwrap_or_default())
    }

    fn line(&mut self, kind: u8, number: u64) -> &mut Self {
        self.0.push(kind);
        self.encoded(itoa::Buffer::new().format(number).as_bytes()).encoded(b"\r\n")
    }
}

/// The words of a claim, put together once for all instances.
fn words_of(claim: &Claim) -> &ClaimWords {
    claim.words.get_or_init(|| {
        let mut bytes = Vec::with_capacity(claim.command_size() + 96);
        let mut words = Words(&mut bytes);
        let key = words.number(claim.token.proposed_us()).0.len();
        let value = words.word(claim.resource.key()).0.len();
        let behind = words.word(claim.value.as_bytes()).0.len();
        words.word("NX").word("GET").word("PX").number(millis(claim.ttl));
        ClaimWords { words: bytes, key, value, behind }
    })
}

/// The commands of a batch.
pub(crate) fn write(
    bytes: &mut Vec<u8>,
    parts: Parts,
    requests: &[impl AsRef<Claim>],
    attached: Option<&AttachedRecord>,
) {
    let mut words = Words(bytes);
    for (part, requests) in parts.split(requests) {
        let claims = requests.iter().map(AsRef::as_ref);
        match part {
            Part::Release => release(&mut words, claims),
            Part::Plain => write_plain(&mut words, claims),
            Part::Acquire => acquire(&mut words, claims, attached),
            Part::Extend => extend(&mut words, claims, attached, true),
            Part::Keep => extend(&mut words, claims, attached, false),
            Part::Read => read(&mut words, claims, attached, "read"),
            Part::Renew => read(&mut words, claims, attached, "renew"),
            Part::Leave => read(&mut words, claims, None, "leave"),
        }
    }
}

/// The commands of plain acquires. They are not one script, so their order matters: the time is read behind the keys, so that a
/// step of the clock before shows (P17), and the record and the floor are read behind everything else, and then still say that nothing was
/// forgotten since the keys were set, and no larger token before they were stored (P13).
fn write_plain<'a>(words: &mut Words<'_>, claims: impl ExactSizeIterator<Item = &'a Claim> + Clone) {
    for claim in claims.clone() {
        let ClaimWords { words: of_claim, key, .. } = words_of(claim);
        words.encoded(b"*7\r\n$3\r\nSET\r\n").encoded(of_claim.get(*key..).unwrap_or_default());
    }
    words.command("ZADD", 4 + 2 * claims.len()).word(TOKENS_KEY).word("GT").word("CH");
    for claim in claims {
        let ClaimWords { words: of_claim, value, .. } = words_of(claim);
        words.encoded(of_claim.get(..*value).unwrap_or_default());
    }
    words.command("TIME", 1);
    words.command("MGET", 3).word(ADMISSION_KEY).word(FLOOR_KEY);
}

/// Words as they are encoded.
const RESENT: &[u8] = b"$6\r\nresent\r\n";
const NOTHING: &[u8] = b"$0\r\n\r\n";

/// The command that acquires these locks on an instance with this record.
pub(crate) fn acquire<'a>(
    words: &mut Words<'_>,
    claims: impl ExactSizeIterator<Item = &'a Claim> + Clone,
    attached: Option<&AttachedRecord>,
) {
    call(words, ScriptKind::Acquire, claims.clone(), 2 + 4 * claims.len());
    add_record(words, attached);
    for claim in claims {
        add_claim(words, claim).word(claim.mark.as_deref().map(WriterMark::as_bytes).unwrap_or_default());
    }
}

/// The command by which readers come (`read`), stay (`renew`) or leave (`leave`) (P33).
pub(crate) fn read<'a>(
    words: &mut Words<'_>,
    claims: impl ExactSizeIterator<Item = &'a Claim> + Clone,
    attached: Option<&AttachedRecord>,
    what: &str,
) {
    call(words, ScriptKind::Read, claims.clone(), 3 + 2 * claims.len());
    add_record(words, attached);
    words.word(what);
    for claim in claims {
        words.word(claim.value.as_bytes()).number(millis(claim.ttl));
    }
}

/// The command that extends these leases, and sets the keys that are missing only if it `repairs`.
pub(crate) fn extend<'a>(
    words: &mut Words<'_>,
    claims: impl ExactSizeIterator<Item = &'a Claim> + Clone,
    attached: Option<&AttachedRecord>,
    repairs: bool,
) {
    call(words, ScriptKind::Extend, claims.clone(), 3 + 3 * claims.len());
    add_record(words, attached);
    words.word(if repairs { "repair" } else { "" });
    claims.for_each(|claim| _ = add_claim(words, claim));
}

/// The command that releases these locks.
pub(crate) fn release<'a>(words: &mut Words<'_>, claims: impl ExactSizeIterator<Item = &'a Claim> + Clone) {
    call(words, ScriptKind::Release, claims.clone(), 3 * claims.len());
    for claim in claims {
        words.value_and_token(claim).encoded(if claim.resent { RESENT } else { NOTHING });
    }
}

/// A call for these locks, whose arguments, so many, follow.
fn call<'a>(
    words: &mut Words<'_>,
    script: ScriptKind,
    claims: impl ExactSizeIterator<Item = &'a Claim>,
    arguments: usize,
) {
    let keys = claims.len();
    words.command("EVALSHA", 3 + keys + arguments).word(script.hash()).number(keys as u64);
    claims.for_each(|claim| _ = words.key(claim));
}

fn add_record(words: &mut Words<'_>, attached: Option<&AttachedRecord>) {
    match attached {
        Some(attached) => words.word(attached.wire()).number(attached.record.vote_from_ms),
        None => words.word("").word(""),
    };
}

fn add_claim<'a, 'b>(words: &'a mut Words<'b>, claim: &Claim) -> &'a mut Words<'b> {
    words.value_and_token(claim).number(millis(claim.ttl))
}

/// The command for a message.
pub(super) fn write_wake(bytes: &mut Vec<u8>, wake: &Wake) {
    Words(bytes).command("PUBLISH", 3).word(wake.to.channel()).word(&wake.message);
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

    /// Which go into the first batch, in its order, which into the second, and so on; of acquires of names in capitals every one is
    /// plain.
    fn batches(requests: Vec<Request>) -> Vec<Vec<usize>> {
        let mut waiting: VecDeque<(usize, Request)> = requests.into_iter().enumerate().collect();
        let is_plain = |request: &Request| request.claim().resource.key()[0].is_ascii_uppercase();
        let mut batches = Vec::new();
        while !waiting.is_empty() {
            let (taken, parts) = take_batch(&mut waiting, usize::MAX, |(_, request)| request, is_plain);
            assert_eq!(parts.0.iter().sum::<usize>(), taken.len());
            batches.push(taken.into_iter().map(|(at, _)| at).collect());
        }
        batches
    }

    /// The crate's tests vouch for its own.
    #[test]
    fn a_command_is_written_as_the_crate_does() {
        let (mut bytes, mut of_the_crate) = (b"before".to_vec(), redis::pipe());
        let mut words = Words(&mut bytes);
        for number in [0, 7, 10, 99, 1_000_000, u64::MAX] {
            words.command("ZADD", 3).word("a b\r\n").number(number);
            of_the_crate.cmd("ZADD").arg("a b\r\n").arg(number);
        }
        assert_eq!(bytes, [b"before".to_vec(), of_the_crate.get_packed_pipeline()].concat());
    }

    #[test]
    fn what_waits_for_different_keys_shares_a_batch_in_the_order_of_its_parts() {
        let requests = [(EXTEND, "a"), (ACQUIRE, "b"), (RELEASE, "c"), (ACQUIRE, "D"), (RELEASE, "e"), (ACQUIRE, "F")];
        let requests = requests.map(|(kind, name)| named(kind, name)).into();
        assert_eq!(batches(requests), [vec![2, 4, 3, 5, 1, 0]]);
    }

    /// Otherwise a key would be set after it was deleted, and stay, or a release would find the key of the next (P6).
    #[test]
    fn requests_for_one_key_keep_their_order() {
        let all = [(RELEASE, "a"), (ACQUIRE, "a"), (EXTEND, "a"), (ACQUIRE, "A"), (RELEASE, "A")];
        for (first, second, third) in (0..125).map(|number| (all[number / 25], all[number / 5 % 5], all[number % 5])) {
            let requests = [first, second, third].map(|(kind, name)| named(kind, name));
            let batches = batches(requests.to_vec());
            let placed: Vec<usize> = batches.iter().flatten().copied().collect();
            let place = |at| placed.iter().position(|placed| *placed == at);
            let call = |at: usize| batches.iter().position(|batch| batch.contains(&at));
            for (one, other) in [(0, 1), (0, 2), (1, 2)] {
                if requests[one].claim().resource == requests[other].claim().resource {
                    assert!(place(one) < place(other), "{requests:?}: {batches:?}");
                    let is_same = std::mem::discriminant(&requests[one]) == std::mem::discriminant(&requests[other]);
                    assert!(
                        !is_same || call(one) < call(other),
                        "no key is twice in a call: {requests:?}: {batches:?}"
                    );
                }
            }
        }
    }

    /// P33: a request of one reader does not wait for another's; a lock, and the mark of its writer, do.
    #[test]
    fn readers_of_one_key_share_a_batch_and_each_keeps_its_order() {
        let reader = |kind: fn(Arc<Claim>) -> Request, round| {
            kind(Arc::new(Claim { access: Access::Read, ..Claim::sample(round, "a") }))
        };
        let both =
            vec![reader(ACQUIRE, 1), reader(ACQUIRE, 2), reader(RELEASE, 3), reader(EXTEND, 4), reader(EXTEND, 5)];
        assert_eq!(batches(both), [vec![2, 0, 1, 3, 4]]);
        let own = vec![reader(ACQUIRE, 1), reader(RELEASE, 1), reader(ACQUIRE, 2), reader(ACQUIRE, 2)];
        assert_eq!(batches(own), [vec![0], vec![1, 2], vec![3]]);
        let beside_a_lock = vec![named(ACQUIRE, "a"), reader(RELEASE, 2), reader(ACQUIRE, 3), named(ACQUIRE, "a")];
        assert_eq!(batches(beside_a_lock), [vec![0], vec![1, 2], vec![3]]);
    }

    #[test]
    fn a_batch_has_so_many_locks_in_each_part_and_so_many_bytes() {
        let many = |kind, count: usize, size: usize| -> Vec<Request> {
            (0..count).map(|number| named(kind, &format!("{number:0size$}"))).collect()
        };
        let sizes = |requests| batches(requests).iter().map(Vec::len).collect::<Vec<_>>();
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
        let (mut bytes, claims) = (Vec::new(), [1, 2].map(|round| Claim::sample(round, "a")));
        write_plain(&mut Words(&mut bytes), claims.iter());
        assert!(bytes.ends_with(&redis::cmd("MGET").arg(ADMISSION_KEY).arg(FLOOR_KEY).get_packed_command()));
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
