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
use crate::protocol::{Identity, Named, Origin, START_UNCERTAINTY_MS};
use crate::resource::ADMISSION_KEY;

const AHEAD: &str = include_str!("ahead.lua");
const ADMISSION: &str = include_str!("admission.lua");
const ADMIT: &str = include_str!("admit.lua");
const CLOCK: &str = include_str!("clock.lua");
const CLAIM: &str = include_str!("claim.lua");
const CLAIM_6_2: &str = include_str!("claim_6_2.lua");
const PROLONG: &str = include_str!("prolong.lua");
const PROLONG_6_2: &str = include_str!("prolong_6_2.lua");
const REFUSED: &str = include_str!("refused.lua");
const FORMER: &str = include_str!("former.lua");
const TAKE_OVER: &str = include_str!("take_over.lua");
const TAKE_BACK: &str = include_str!("take_back.lua");
const ACQUIRE: &str = include_str!("acquire.lua");
const EXTEND: &str = include_str!("extend.lua");
const ENTER: &str = include_str!("enter.lua");
const MARK: &str = include_str!("mark.lua");
const RELEASE: &str = include_str!("release.lua");

const ACQUIRE_ONE: &str = include_str!("acquire_one.lua");
const ACQUIRE_ALONE: &str = include_str!("acquire_alone.lua");
const RELEASE_ALONE: &str = include_str!("release_alone.lua");
const RENEW: &str = include_str!("renew.lua");
const BATCH: &str = include_str!("batch.lua");

const CALL_ACQUIRE: &str = "return acquire(1, #KEYS / 2, ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7])";
const CALL_EXTEND: &str = "return extend(1, #KEYS / 2, ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7])";
const CALL_ENTER: &str = "return enter(1, #KEYS / 2, ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7])";
const CALL_RELEASE: &str = "return release(1, #KEYS / 2, ARGV[1], ARGV[2], ARGV[3], ARGV[4], nil)";
const CALL_LEAVE: &str = "return release(1, #KEYS / 2, ARGV[1], ARGV[2], ARGV[3], ARGV[5], ARGV[4])";

/// The scripts for one generation of servers.
pub(crate) struct Scripts {
    acquire: Text,
    extend: Text,
    enter: Text,
    release: Text,
    /// The release of a holder's round.
    leave: Text,
    batch: Text,
    renew: Text,
    admit: Text,
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
    fn with([claim, prolong]: [&str; 2], alone: [&[&str]; 2]) -> Self {
        let [acquire_alone, release_alone] = alone.map(<[&str]>::concat);
        Self {
            acquire: Text::of(&[
                ADMISSION,
                AHEAD,
                claim,
                &acquire_alone,
                CLOCK,
                prolong,
                REFUSED,
                FORMER,
                TAKE_OVER,
                TAKE_BACK,
                ACQUIRE,
                CALL_ACQUIRE,
            ]),
            extend: Text::of(&[ADMISSION, CLOCK, AHEAD, prolong, REFUSED, EXTEND, CALL_EXTEND]),
            enter: Text::of(&[ADMISSION, CLOCK, AHEAD, prolong, REFUSED, EXTEND, ENTER, CALL_ENTER]),
            release: Text::of(&[&release_alone, AHEAD, MARK, RELEASE, CALL_RELEASE]),
            leave: Text::of(&[AHEAD, MARK, FORMER, RELEASE, CALL_LEAVE]),
            batch: Text::of(&[
                ADMISSION,
                CLOCK,
                AHEAD,
                claim,
                ACQUIRE_ONE,
                prolong,
                REFUSED,
                FORMER,
                TAKE_OVER,
                TAKE_BACK,
                ACQUIRE,
                EXTEND,
                ENTER,
                MARK,
                RELEASE,
                BATCH,
            ]),
            renew: Text::of(&[ADMISSION, CLOCK, prolong, RENEW]),
            admit: Text::of(&[ADMIT]),
        }
    }

    /// The scripts for a server, given the version of Redis that it is compatible with.
    pub(crate) fn for_version(major: u32) -> &'static Self {
        static SINCE_7: LazyLock<Scripts> =
            LazyLock::new(|| Scripts::with([CLAIM, PROLONG], [&[ACQUIRE_ONE, ACQUIRE_ALONE], &[RELEASE_ALONE]]));
        static SINCE_6_2: LazyLock<Scripts> =
            LazyLock::new(|| Scripts::with([CLAIM_6_2, PROLONG_6_2], [&[], &[RELEASE_ALONE]]));
        if major >= 7 { &SINCE_7 } else { &SINCE_6_2 }
    }

    /// The scripts without their shortcuts, to be compared with those that have them.
    #[cfg(feature = "testing")]
    pub(crate) fn without_shortcuts() -> &'static Self {
        static PLAIN: LazyLock<Scripts> = LazyLock::new(|| Scripts::with([CLAIM, PROLONG], [&[], &[]]));
        &PLAIN
    }

    /// Loads every script: on each new connection, and again when an instance lost its scripts.
    pub(crate) fn load(&self) -> Pipeline {
        let mut pipeline = redis::pipe();
        let Self { acquire, extend, enter, release, leave, batch, renew, admit } = self;
        for script in [acquire, extend, enter, release, leave, batch, renew, admit] {
            pipeline.cmd("SCRIPT").arg("LOAD").arg(&script.text).ignore();
        }
        pipeline
    }

    /// The one command that carries out `request` on an instance with this record.
    pub(crate) fn command(&self, request: &Request, named: Option<&Named>) -> Cmd {
        let claim = request.claim();
        let script = match request {
            Request::Acquire(_) => &self.acquire,
            Request::Extend(_) => &self.extend,
            Request::Enter(_) => &self.enter,
            Request::Release(claim) if claim.value.holder_prefix().is_empty() => &self.release,
            Request::Release(_) | Request::GiveBack(_) => &self.leave,
        };
        let mut command = Cmd::with_capacity(10 + 2 * claim.resources.len(), 512);
        command.arg("EVALSHA").arg(&script.hash).arg(2 * claim.resources.len());
        add_keys(&mut command, claim);
        let (value, retention) = (claim.value.as_bytes(), millis(claim.fence_retention));
        let token = &claim.token.wire_digits()[..];
        let closed = &claim.token.closed().wire_digits()[..];
        match request {
            Request::Acquire(_) => {
                add_record(&mut command, named, named.is_some_and(|named| named.has_served));
                command.arg(value).arg(millis(claim.ttl)).arg(token).arg(retention);
                command.arg(claim.value.holder_prefix())
            }
            Request::Extend(_) | Request::Enter(_) => {
                add_record(&mut command, named, false);
                command.arg(value).arg(millis(claim.ttl)).arg(token).arg(closed).arg(retention)
            }
            Request::Release(_) if claim.value.holder_prefix().is_empty() => {
                command.arg(value).arg(closed).arg(retention)
            }
            Request::Release(_) => command.arg(value).arg(closed).arg(retention).arg("forget"),
            Request::GiveBack(_) => command.arg(value).arg(closed).arg(retention).arg("give back"),
        };
        if matches!(request, Request::Release(_) | Request::GiveBack(_)) && claim.resent {
            command.arg("resent");
        }
        command
    }

    /// The one command that carries out all `requests`, in their order, the first `releases` of them all
    /// together: see [`releases_first`].
    pub(crate) fn batch(&self, requests: &[&Request], releases: usize, named: Option<&Named>) -> Cmd {
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
        add_record(&mut command, named, false);
        command.arg(first.len()).arg(millis(ttl)).arg(millis(retention)).arg(&letters);
        for release in first {
            command.arg(release.claim().value.as_bytes()).arg(&release.claim().token.closed().wire_digits()[..]);
        }
        for (request, letter) in others.iter().zip(letters.chars()) {
            let claim = request.claim();
            command.arg(claim.value.as_bytes()).arg(&claim.token.wire_digits()[..]);
            if letter != USUAL_ACQUIRE {
                command.arg(&claim.token.closed().wire_digits()[..]).arg(claim.resources.len()).arg(millis(claim.ttl));
                command.arg(millis(claim.fence_retention)).arg(claim.value.holder_prefix());
            }
        }
        command
    }

    /// The one command that renews leases with one resource each, for the longest of their ttls: should
    /// they differ, no key ends before its own lease (P9), and none lives for more than `max_ttl`.
    pub(crate) fn renew(&self, claims: &[Arc<Claim>], named: Option<&Named>) -> Cmd {
        let longest = claims.iter().map(|claim| claim.ttl).max().unwrap_or_default();
        let mut command = Cmd::with_capacity(6 + 2 * claims.len(), 256 + 160 * claims.len());
        command.arg("EVALSHA").arg(&self.renew.hash).arg(claims.len());
        for key in claims.iter().filter_map(|claim| claim.resources.lock_keys().next()) {
            command.arg(key);
        }
        add_record(&mut command, named, false);
        command.arg(millis(longest));
        for claim in claims {
            command.arg(claim.value.as_bytes());
        }
        command
    }

    /// The command that writes an admission record if `found` is still there (P15): from when on the
    /// process may vote, how the record comes to be, and the least order of it.
    pub(crate) fn admit(
        &self,
        found: &[u8],
        identity: &Identity,
        max_ttl: Duration,
        step: (Option<u64>, Origin, u64),
    ) -> Cmd {
        let (vote_from_ms, origin, least_order) = step;
        let mut command = Cmd::new();
        command.arg("EVALSHA").arg(&self.admit.hash).arg(1).arg(ADMISSION_KEY);
        command.arg(found).arg(identity.as_str()).arg(millis(max_ttl)).arg(origin.word());
        command.arg(vote_from_ms.map(|ms| ms.to_string()).unwrap_or_default());
        command.arg(START_UNCERTAINTY_MS).arg(least_order);
        command
    }
}

/// The record and its instant. A single acquire leaves the instant out once it has surely come; what
/// prolongs or repairs keys, or does several things at once, has the instance look at its clock (P10).
fn add_record(command: &mut Cmd, named: Option<&Named>, instant_has_come: bool) {
    match named {
        Some(named) if instant_has_come => command.arg(named.wire()).arg(""),
        Some(named) => command.arg(named.wire()).arg(named.record.vote_from_ms),
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
        Request::Enter(_) => 'N',
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
        let command = Scripts::for_version(7).renew(&[with_ttl(1, 2), with_ttl(2, 3), with_ttl(3, 1)], None);
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
