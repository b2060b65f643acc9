//! The scripts, and the commands that run them.
//!
//! A script is put together from functions, one in each `.lua` file beside this, and one line that calls
//! one of them on the whole of `KEYS` and `ARGV`.

#[cfg(feature = "testing")]
pub(crate) mod kinds;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use redis::{Cmd, Pipeline, Script};

use crate::instance::{Claim, Request};
use crate::protocol::{AttachedRecord, ProcessIdentity, RecordOrigin, START_UNCERTAINTY_MS};
use crate::resource::ADMISSION_KEY;

const TOKEN_LIMIT: &str = include_str!("token_limit.lua");
const ADMISSION: &str = include_str!("admission.lua");
const WRITE_RECORD: &str = include_str!("write_record.lua");
const CLOCK: &str = include_str!("clock.lua");
const SET_IF_FREE: &str = include_str!("set_if_free.lua");
const SET_IF_FREE_6_2: &str = include_str!("set_if_free_6_2.lua");
const EXTEND_TTL: &str = include_str!("extend_ttl.lua");
const EXTEND_TTL_6_2: &str = include_str!("extend_ttl_6_2.lua");
const REFUSAL: &str = include_str!("refusal.lua");
const FORMER_VALUES: &str = include_str!("former_values.lua");
const TAKE_OVER: &str = include_str!("take_over.lua");
const ROLL_BACK: &str = include_str!("roll_back.lua");
const ACQUIRE: &str = include_str!("acquire.lua");
const EXTEND: &str = include_str!("extend.lua");
const REENTER: &str = include_str!("reenter.lua");
const TOMBSTONE: &str = include_str!("tombstone.lua");
const RELEASE: &str = include_str!("release.lua");

const ACQUIRE_ONE: &str = include_str!("acquire_one.lua");
const ACQUIRE_ALONE: &str = include_str!("acquire_alone.lua");
const RELEASE_ALONE: &str = include_str!("release_alone.lua");
const EXTEND_MANY: &str = include_str!("extend_many.lua");
const BATCH: &str = include_str!("batch.lua");

const CALL_ACQUIRE: &str = "return acquire(1, #KEYS / 2, ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7])";
const CALL_EXTEND: &str = "return extend(1, #KEYS / 2, ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7])";
const CALL_REENTER: &str = "return reenter(1, #KEYS / 2, ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7])";
const CALL_RELEASE: &str = "return release(1, #KEYS / 2, ARGV[1], ARGV[2], ARGV[3], ARGV[4], nil)";
const CALL_RELEASE_HOLDER: &str = "return release(1, #KEYS / 2, ARGV[1], ARGV[2], ARGV[3], ARGV[5], ARGV[4])";

/// The scripts for one generation of servers.
pub(crate) struct Scripts {
    acquire: Text,
    extend: Text,
    reenter: Text,
    release: Text,
    /// The release of a holder's round.
    release_holder: Text,
    batch: Text,
    extend_many: Text,
    write_record: Text,
}

/// A script and the hash by which it is called.
struct Text {
    text: String,
    hash: String,
}

impl Text {
    fn of(parts: &[&str]) -> Self {
        let text = parts.concat();
        let hash = Script::new(&text).get_hash().to_owned();
        Self { text, hash }
    }
}

impl Scripts {
    /// `alone` are the short ways of an acquire and of a release that are alone in their command.
    fn with([set_if_free, extend_ttl]: [&str; 2], alone: [&[&str]; 2]) -> Self {
        let [acquire_alone, release_alone] = alone.map(<[&str]>::concat);
        Self {
            acquire: Text::of(&[
                ADMISSION,
                TOKEN_LIMIT,
                set_if_free,
                &acquire_alone,
                CLOCK,
                extend_ttl,
                REFUSAL,
                FORMER_VALUES,
                TAKE_OVER,
                ROLL_BACK,
                ACQUIRE,
                CALL_ACQUIRE,
            ]),
            extend: Text::of(&[ADMISSION, CLOCK, TOKEN_LIMIT, extend_ttl, REFUSAL, EXTEND, CALL_EXTEND]),
            reenter: Text::of(&[ADMISSION, CLOCK, TOKEN_LIMIT, extend_ttl, REFUSAL, EXTEND, REENTER, CALL_REENTER]),
            release: Text::of(&[&release_alone, TOKEN_LIMIT, TOMBSTONE, RELEASE, CALL_RELEASE]),
            release_holder: Text::of(&[TOKEN_LIMIT, TOMBSTONE, FORMER_VALUES, RELEASE, CALL_RELEASE_HOLDER]),
            batch: Text::of(&[
                ADMISSION,
                CLOCK,
                TOKEN_LIMIT,
                set_if_free,
                ACQUIRE_ONE,
                extend_ttl,
                REFUSAL,
                FORMER_VALUES,
                TAKE_OVER,
                ROLL_BACK,
                ACQUIRE,
                EXTEND,
                REENTER,
                TOMBSTONE,
                RELEASE,
                BATCH,
            ]),
            extend_many: Text::of(&[ADMISSION, CLOCK, extend_ttl, EXTEND_MANY]),
            write_record: Text::of(&[WRITE_RECORD]),
        }
    }

    /// The scripts for a server, given the version of Redis that it is compatible with.
    pub(crate) fn for_version(major: u32) -> &'static Self {
        static SINCE_7: LazyLock<Scripts> = LazyLock::new(|| {
            Scripts::with([SET_IF_FREE, EXTEND_TTL], [&[ACQUIRE_ONE, ACQUIRE_ALONE], &[RELEASE_ALONE]])
        });
        static SINCE_6_2: LazyLock<Scripts> =
            LazyLock::new(|| Scripts::with([SET_IF_FREE_6_2, EXTEND_TTL_6_2], [&[], &[RELEASE_ALONE]]));
        if major >= 7 { &SINCE_7 } else { &SINCE_6_2 }
    }

    /// The scripts without their shortcuts, to be compared with those that have them.
    #[cfg(feature = "testing")]
    pub(crate) fn without_shortcuts() -> &'static Self {
        static PLAIN: LazyLock<Scripts> = LazyLock::new(|| Scripts::with([SET_IF_FREE, EXTEND_TTL], [&[], &[]]));
        &PLAIN
    }

    /// Loads every script: on each new connection, and again when an instance lost its scripts.
    pub(crate) fn load(&self) -> Pipeline {
        let mut pipeline = redis::pipe();
        let Self { acquire, extend, reenter, release, release_holder, batch, extend_many, write_record } = self;
        for script in [acquire, extend, reenter, release, release_holder, batch, extend_many, write_record] {
            pipeline.cmd("SCRIPT").arg("LOAD").arg(&script.text).ignore();
        }
        pipeline
    }

    /// The one command that carries out `request` on an instance with this record.
    pub(crate) fn command(&self, request: &Request, attached: Option<&AttachedRecord>) -> Cmd {
        let claim = request.claim();
        let script = match request {
            Request::Acquire(_) => &self.acquire,
            Request::Extend(_) => &self.extend,
            Request::Reenter(_) => &self.reenter,
            Request::Release(claim) if claim.value.holder_prefix().is_empty() => &self.release,
            Request::Release(_) | Request::GiveBack(_) => &self.release_holder,
        };
        let mut command = Cmd::with_capacity(10 + 2 * claim.resources.len(), 512);
        command.arg("EVALSHA").arg(&script.hash).arg(2 * claim.resources.len());
        add_keys(&mut command, claim);
        let (value, retention) = (claim.value.as_bytes(), millis(claim.fence_retention));
        let token = &claim.token.wire_digits()[..];
        let tombstone = &claim.token.tombstone().wire_digits()[..];
        match request {
            Request::Acquire(_) => {
                add_record(&mut command, attached, attached.is_some_and(|attached| attached.quarantine_over));
                command.arg(value).arg(millis(claim.ttl)).arg(token).arg(retention);
                command.arg(claim.value.holder_prefix())
            }
            Request::Extend(_) | Request::Reenter(_) => {
                add_record(&mut command, attached, false);
                command.arg(value).arg(millis(claim.ttl)).arg(token).arg(tombstone).arg(retention)
            }
            Request::Release(_) if claim.value.holder_prefix().is_empty() => {
                command.arg(value).arg(tombstone).arg(retention)
            }
            Request::Release(_) => command.arg(value).arg(tombstone).arg(retention).arg("forget"),
            Request::GiveBack(_) => command.arg(value).arg(tombstone).arg(retention).arg("give back"),
        };
        if matches!(request, Request::Release(_) | Request::GiveBack(_)) && claim.resent {
            command.arg("resent");
        }
        command
    }

    /// The one command that carries out all `requests`, in their order, the first `releases` of them all
    /// together: see [`releases_first`].
    pub(crate) fn batch(&self, requests: &[&Request], releases: usize, attached: Option<&AttachedRecord>) -> Cmd {
        let (first, others) = requests.split_at(releases.min(requests.len()));
        let claims = || requests.iter().map(|request| request.claim());
        let acquired = others.iter().find(|request| matches!(request, Request::Acquire(_)));
        let ttl = acquired.map_or(Duration::ZERO, |request| request.claim().ttl);
        let retention = claims().next().map_or(Duration::ZERO, |claim| claim.fence_retention);
        let letters: String = others.iter().map(|request| letter(request, ttl, retention)).collect();

        let keys: usize = claims().map(|claim| 2 * claim.resources.len()).sum();
        let mut command = Cmd::with_capacity(9 + keys + 2 * requests.len(), 256 * requests.len());
        command.arg("EVALSHA").arg(&self.batch.hash).arg(keys);
        claims().for_each(|claim| add_keys(&mut command, claim));
        add_record(&mut command, attached, false);
        command.arg(first.len()).arg(millis(ttl)).arg(millis(retention)).arg(&letters);
        for release in first {
            command.arg(release.claim().value.as_bytes()).arg(&release.claim().token.tombstone().wire_digits()[..]);
        }
        for (request, letter) in others.iter().zip(letters.chars()) {
            let claim = request.claim();
            command.arg(claim.value.as_bytes()).arg(&claim.token.wire_digits()[..]);
            if letter != USUAL_ACQUIRE {
                command
                    .arg(&claim.token.tombstone().wire_digits()[..])
                    .arg(claim.resources.len())
                    .arg(millis(claim.ttl));
                command.arg(millis(claim.fence_retention)).arg(claim.value.holder_prefix());
            }
        }
        command
    }

    /// The one command that renews leases with one resource each, for the longest of their ttls: should
    /// they differ, no key ends before its own lease (P9), and none lives for more than `max_ttl`.
    pub(crate) fn extend_many(&self, claims: &[Arc<Claim>], attached: Option<&AttachedRecord>) -> Cmd {
        let longest = claims.iter().map(|claim| claim.ttl).max().unwrap_or_default();
        let mut command = Cmd::with_capacity(6 + 2 * claims.len(), 256 + 160 * claims.len());
        command.arg("EVALSHA").arg(&self.extend_many.hash).arg(claims.len());
        for key in claims.iter().filter_map(|claim| claim.resources.lock_keys().next()) {
            command.arg(key);
        }
        add_record(&mut command, attached, false);
        command.arg(millis(longest));
        for claim in claims {
            command.arg(claim.value.as_bytes());
        }
        command
    }

    /// The command that writes an admission record if `found` is still there (P15): from when on the
    /// process may vote, how the record comes to be, and the least order of it.
    pub(crate) fn write_record(
        &self,
        found: &[u8],
        identity: &ProcessIdentity,
        max_ttl: Duration,
        step: (Option<u64>, RecordOrigin, u64),
    ) -> Cmd {
        let (vote_from_ms, origin, least_order) = step;
        let mut command = Cmd::new();
        command.arg("EVALSHA").arg(&self.write_record.hash).arg(1).arg(ADMISSION_KEY);
        command.arg(found).arg(identity.as_str()).arg(millis(max_ttl)).arg(origin.word());
        command.arg(vote_from_ms.map(|ms| ms.to_string()).unwrap_or_default());
        command.arg(START_UNCERTAINTY_MS).arg(least_order);
        command
    }
}

/// The record and its instant. A single acquire leaves the instant out once it has surely come; what
/// prolongs or repairs keys, or does several things at once, has the instance look at its clock (P10).
fn add_record(command: &mut Cmd, attached: Option<&AttachedRecord>, instant_has_come: bool) {
    match attached {
        Some(attached) if instant_has_come => command.arg(attached.wire()).arg(""),
        Some(attached) => command.arg(attached.wire()).arg(attached.record.vote_from_ms),
        None => command.arg("").arg(""),
    };
}

/// The letter of an acquire of one resource without a holder, with the usual ttl and retention.
const USUAL_ACQUIRE: char = 'a';

/// What batch.lua calls a request by.
fn letter(request: &Request, usual_ttl: Duration, usual_retention: Duration) -> char {
    match request {
        Request::Acquire(claim) => {
            let is_usual = claim.resources.len() == 1
                && claim.value.holder_prefix().is_empty()
                && (claim.ttl, claim.fence_retention) == (usual_ttl, usual_retention);
            if is_usual { USUAL_ACQUIRE } else { 'A' }
        }
        Request::Extend(_) => 'E',
        Request::Reenter(_) => 'N',
        Request::Release(claim) if claim.resent => 'S',
        Request::Release(_) => 'R',
        Request::GiveBack(claim) if claim.resent => 'V',
        Request::GiveBack(_) => 'U',
    }
}

/// Puts the releases first that a batch can carry out all together, and gives how many they are: those
/// of one resource without a holder, for which nothing was sent twice, and which stand behind nothing
/// else of their own round (P6). They may pass others by: no answer had reached those who made them.
pub(crate) fn releases_first<T>(batch: &mut [T], request: impl Fn(&T) -> &Request) -> usize {
    let usual_retention = batch.first().map(|first| request(first).claim().fence_retention);
    let mut first = 0;
    for at in 0..batch.len() {
        let (before, rest) = batch.split_at_mut(at);
        let Some(Request::Release(claim)) = rest.first().map(&request) else { continue };
        let can_lead = !claim.resent
            && claim.resources.len() == 1
            && claim.value.holder_prefix().is_empty()
            && Some(claim.fence_retention) == usual_retention
            // Those that lead already too: of two releases of a round both would find the key.
            && !before.iter().any(|before| request(before).claim().value == claim.value);
        if can_lead && let Some(passed) = batch.get_mut(first..=at) {
            passed.rotate_right(1);
            first += 1;
        }
    }
    first
}

fn add_keys(command: &mut Cmd, claim: &Claim) {
    for key in claim.resources.lock_keys().chain(claim.resources.fence_keys()) {
        command.arg(key);
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::protocol::Value;

    const ACQUIRE: fn(Arc<Claim>) -> Request = Request::Acquire;
    const EXTEND: fn(Arc<Claim>) -> Request = Request::Extend;
    const RELEASE: fn(Arc<Claim>) -> Request = Request::Release;

    /// Of the round with this number.
    fn claim(round: u128, names: &[&str], resent: bool) -> Arc<Claim> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        Arc::new(Claim { resent, ..Claim::sample(round, &names) })
    }

    fn one(kind: fn(Arc<Claim>) -> Request, round: u128) -> Request {
        kind(claim(round, &["a"], false))
    }

    /// What a batch makes of `requests`: how many releases come first, and where each was before.
    fn ordered(requests: Vec<Request>) -> (usize, Vec<usize>) {
        let mut batch: Vec<(usize, Request)> = requests.into_iter().enumerate().collect();
        let first = releases_first(&mut batch, |(_, request)| request);
        (first, batch.into_iter().map(|(at, _)| at).collect())
    }

    #[test]
    fn releases_pass_by_what_is_not_of_their_own_round() {
        let batch = vec![one(ACQUIRE, 1), one(RELEASE, 2), one(EXTEND, 3), one(RELEASE, 4)];
        assert_eq!(ordered(batch), (2, vec![1, 3, 0, 2]));
    }

    /// Otherwise the key would be set after it was deleted, and stay (P6).
    #[test]
    fn a_release_stays_behind_what_is_of_its_own_round() {
        for earlier in [ACQUIRE, EXTEND] {
            let batch = vec![one(RELEASE, 1), one(earlier, 2), one(RELEASE, 2), one(RELEASE, 3)];
            assert_eq!(ordered(batch), (2, vec![0, 3, 1, 2]));
        }
    }

    /// Otherwise both would find the key.
    #[test]
    fn of_two_releases_of_a_round_one_comes_first() {
        let batch = vec![one(RELEASE, 1), one(RELEASE, 1), one(RELEASE, 2)];
        assert_eq!(ordered(batch), (2, vec![0, 2, 1]));
    }

    /// Otherwise the key of the longest would end before its lease.
    #[test]
    fn leases_that_are_renewed_together_get_the_longest_of_their_ttls() {
        let with_ttl = |round: u128, seconds: u64| {
            Arc::new(Claim { ttl: Duration::from_secs(seconds), ..Claim::clone(&claim(round, &["a"], true)) })
        };
        let command = Scripts::for_version(7).extend_many(&[with_ttl(1, 2), with_ttl(2, 3), with_ttl(3, 1)], None);
        let parts: Vec<_> = command.args_iter().collect();
        // The name, the script, how many keys, these; the record and its instant; then the ttl.
        assert!(matches!(parts.get(3 + 3 + 2), Some(redis::Arg::Simple(b"3000"))));
    }

    #[test]
    fn releases_that_need_more_than_a_comparison_do_not_come_first() {
        let resent = RELEASE(claim(1, &["a"], true));
        let several = RELEASE(claim(2, &["a", "b"], false));
        let other_retention =
            Claim { fence_retention: Duration::from_secs(1), ..Claim::clone(&claim(3, &["a"], false)) };
        let of_holder =
            Claim { value: Value::new("me", Uuid::from_u128(5), ""), ..Claim::clone(&claim(5, &["a"], false)) };
        let others = [RELEASE(Arc::new(other_retention)), RELEASE(Arc::new(of_holder))];
        let batch = [resent, several].into_iter().chain(others).chain([one(RELEASE, 4)]).collect();
        assert_eq!(ordered(batch), (1, vec![4, 0, 1, 2, 3]));
    }
}
