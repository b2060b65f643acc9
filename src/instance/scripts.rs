//! The scripts, and the commands that run them.
//!
//! A script is put together from functions, one in each file under `lua/`, and one line that calls
//! one of them on the whole of `KEYS` and `ARGV`.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use redis::{Cmd, Pipeline, Script};

use super::{Claim, Request};
use crate::protocol::{Identity, Named, Origin, START_UNCERTAINTY_MS};
use crate::resource::ADMISSION_KEY;

const ADMISSION: &str = include_str!("lua/admission.lua");
const ADMIT: &str = include_str!("lua/admit.lua");
const CLOCK: &str = include_str!("lua/clock.lua");
const CLAIM: &str = include_str!("lua/claim.lua");
const CLAIM_6_2: &str = include_str!("lua/claim_6_2.lua");
const PROLONG: &str = include_str!("lua/prolong.lua");
const PROLONG_6_2: &str = include_str!("lua/prolong_6_2.lua");
const REFUSED: &str = include_str!("lua/refused.lua");
const TAKE_BACK: &str = include_str!("lua/take_back.lua");
const ACQUIRE: &str = include_str!("lua/acquire.lua");
const EXTEND: &str = include_str!("lua/extend.lua");
const MARK: &str = include_str!("lua/mark.lua");
const RELEASE: &str = include_str!("lua/release.lua");

const ACQUIRE_ONE: &str = include_str!("lua/acquire_one.lua");
const RELEASE_ONE: &str = include_str!("lua/release_one.lua");
const RENEW: &str = include_str!("lua/renew.lua");
const BATCH: &str = include_str!("lua/batch.lua");

const CALL_ACQUIRE: &str = "return acquire(1, #KEYS / 2, ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7])";
const CALL_EXTEND: &str = "return extend(1, #KEYS / 2, ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7])";
const CALL_RELEASE: &str = "return release(1, #KEYS / 2, ARGV[1], ARGV[2], ARGV[3], ARGV[4])";

/// The scripts for one generation of servers.
pub(super) struct Scripts {
    acquire: Text,
    extend: Text,
    release: Text,
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
    fn with([claim, prolong]: [&str; 2], acquire_one: &str, release_one: &str) -> Self {
        Self {
            acquire: Text::of(&[
                ADMISSION,
                acquire_one,
                CLOCK,
                claim,
                prolong,
                REFUSED,
                TAKE_BACK,
                ACQUIRE,
                CALL_ACQUIRE,
            ]),
            extend: Text::of(&[ADMISSION, CLOCK, prolong, REFUSED, EXTEND, CALL_EXTEND]),
            release: Text::of(&[release_one, MARK, RELEASE, CALL_RELEASE]),
            batch: Text::of(&[
                ADMISSION, CLOCK, claim, prolong, REFUSED, TAKE_BACK, ACQUIRE, EXTEND, MARK, RELEASE, BATCH,
            ]),
            renew: Text::of(&[ADMISSION, CLOCK, prolong, RENEW]),
            admit: Text::of(&[ADMIT]),
        }
    }

    /// The scripts for a server, given the version of Redis that it is compatible with.
    pub(super) fn for_version(major: u32) -> &'static Self {
        static SINCE_7: LazyLock<Scripts> = LazyLock::new(|| Scripts::with([CLAIM, PROLONG], ACQUIRE_ONE, RELEASE_ONE));
        static SINCE_6_2: LazyLock<Scripts> =
            LazyLock::new(|| Scripts::with([CLAIM_6_2, PROLONG_6_2], "", RELEASE_ONE));
        if major >= 7 { &SINCE_7 } else { &SINCE_6_2 }
    }

    /// The scripts without their shortcuts, to be compared with those that have them.
    #[cfg(feature = "testing")]
    pub(super) fn without_shortcuts() -> &'static Self {
        static PLAIN: LazyLock<Scripts> = LazyLock::new(|| Scripts::with([CLAIM, PROLONG], "", ""));
        &PLAIN
    }

    /// Loads every script: on each new connection, and again when an instance lost its scripts.
    pub(super) fn load(&self) -> Pipeline {
        let mut pipeline = redis::pipe();
        for script in [&self.acquire, &self.extend, &self.release, &self.batch, &self.renew, &self.admit] {
            pipeline.cmd("SCRIPT").arg("LOAD").arg(&script.text).ignore();
        }
        pipeline
    }

    /// The one command that carries out `request` on an instance with this record.
    pub(super) fn command(&self, request: &Request, named: Option<&Named>) -> Cmd {
        let claim = request.claim();
        let script = match request {
            Request::Acquire(_) => &self.acquire,
            Request::Extend(_) => &self.extend,
            Request::Release(_) => &self.release,
        };
        let mut command = Cmd::with_capacity(10 + 2 * claim.resources.len(), 512);
        command.arg("EVALSHA").arg(&script.hash).arg(2 * claim.resources.len());
        add_keys(&mut command, claim);
        let (value, retention) = (claim.value.as_bytes(), millis(claim.fence_retention));
        let closed = || claim.token.closed().to_wire();
        match request {
            Request::Acquire(_) => {
                add_record(&mut command, named, named.is_some_and(|named| named.has_served));
                command.arg(value).arg(millis(claim.ttl)).arg(claim.token.to_wire()).arg(retention);
                command.arg(claim.value.holder_prefix())
            }
            Request::Extend(_) => {
                add_record(&mut command, named, false);
                command.arg(value).arg(millis(claim.ttl)).arg(claim.token.to_wire()).arg(closed()).arg(retention)
            }
            Request::Release(_) if claim.resent => command.arg(value).arg(closed()).arg(retention).arg("resent"),
            Request::Release(_) => command.arg(value).arg(closed()).arg(retention),
        };
        command
    }

    /// The one command that carries out all `requests`, in their order.
    pub(super) fn batch<'a>(&self, requests: impl Iterator<Item = &'a Request> + Clone, named: Option<&Named>) -> Cmd {
        let resources: usize = requests.clone().map(|request| request.claim().resources.len()).sum();
        let mut command = Cmd::new();
        command.arg("EVALSHA").arg(&self.batch.hash).arg(2 * resources);
        for request in requests.clone() {
            add_keys(&mut command, request.claim());
        }
        add_record(&mut command, named, false);
        for request in requests {
            let claim = request.claim();
            command.arg(kind(request)).arg(claim.resources.len()).arg(claim.value.as_bytes());
            command.arg(millis(claim.ttl)).arg(claim.token.to_wire()).arg(claim.token.closed().to_wire());
            command.arg(millis(claim.fence_retention)).arg(claim.value.holder_prefix());
        }
        command
    }

    /// The one command that renews leases with one resource each and this ttl.
    pub(super) fn renew(&self, claims: &[Arc<Claim>], ttl: Duration, named: Option<&Named>) -> Cmd {
        let mut command = Cmd::with_capacity(6 + 2 * claims.len(), 256 + 160 * claims.len());
        command.arg("EVALSHA").arg(&self.renew.hash).arg(claims.len());
        for key in claims.iter().filter_map(|claim| claim.resources.lock_keys().next()) {
            command.arg(key);
        }
        add_record(&mut command, named, false);
        command.arg(millis(ttl));
        for claim in claims {
            command.arg(claim.value.as_bytes());
        }
        command
    }

    /// The command that writes an admission record if `found` is still there (P15).
    pub(super) fn admit(
        &self,
        found: &[u8],
        identity: &Identity,
        max_ttl: Duration,
        step: (Option<u64>, Origin),
    ) -> Cmd {
        let (vote_from_ms, origin) = step;
        let mut command = Cmd::new();
        command.arg("EVALSHA").arg(&self.admit.hash).arg(1).arg(ADMISSION_KEY);
        command.arg(found).arg(identity.as_str()).arg(millis(max_ttl)).arg(origin.word());
        command.arg(vote_from_ms.map(|ms| ms.to_string()).unwrap_or_default());
        command.arg(START_UNCERTAINTY_MS);
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

fn kind(request: &Request) -> &'static str {
    match request {
        Request::Acquire(_) => "acquire",
        Request::Extend(_) => "extend",
        Request::Release(claim) if claim.resent => "release resent",
        Request::Release(_) => "release",
    }
}

fn add_keys(command: &mut Cmd, claim: &Claim) {
    for key in claim.resources.lock_keys().chain(claim.resources.fence_keys()) {
        command.arg(key);
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
