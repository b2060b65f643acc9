//! The scripts, one in each `.lua` file beside this, and the commands that run them.

use std::sync::LazyLock;
use std::time::Duration;

use redis::{Cmd, Pipeline, Script};

use super::encode::{Encoder, Words, millis};
use super::reply_limit::of_script;
use crate::instance::Claim;
use crate::protocol::{AttachedRecord, ProcessIdentity, RecordOrigin, WriterMark};
use crate::resource::{ADMISSION_KEY, TOKENS_KEY};

const OPEN: &str = include_str!("open.lua");

/// Which script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScriptKind {
    Acquire,
    Extend,
    Release,
    Read,
    WriteRecord,
    ForgetTokens,
    /// An operator says that no lock was held. It is loaded when it is called.
    Open,
}

impl ScriptKind {
    /// All of them in their order, each with its text.
    pub(crate) const ALL: [(Self, &'static str); 7] = [
        (Self::Acquire, include_str!("acquire.lua")),
        (Self::Extend, include_str!("extend.lua")),
        (Self::Release, include_str!("release.lua")),
        (Self::Read, include_str!("read.lua")),
        (Self::WriteRecord, include_str!("write_record.lua")),
        (Self::ForgetTokens, include_str!("forget_tokens.lua")),
        (Self::Open, OPEN),
    ];

    /// By which it is called.
    pub(crate) fn hash(self) -> &'static str {
        static SCRIPTS: LazyLock<[Script; 7]> = LazyLock::new(|| ScriptKind::ALL.map(|(_, text)| Script::new(text)));
        SCRIPTS.get(self as usize).map(Script::get_hash).unwrap_or_default()
    }
}

/// Loads every script that clients call: on each new connection, and again when an instance lost its scripts.
pub(crate) fn load() -> &'static Pipeline {
    static LOADING: LazyLock<Pipeline> = LazyLock::new(|| {
        let mut loading = Pipeline::new();
        for (_, text) in ScriptKind::ALL.into_iter().filter(|(kind, _)| *kind != ScriptKind::Open) {
            loading.cmd("SCRIPT").arg("LOAD").arg(text).ignore();
        }
        loading
    });
    &LOADING
}

/// Words as they are encoded.
const RESENT: &[u8] = b"$6\r\nresent\r\n";
const NOTHING: &[u8] = b"$0\r\n\r\n";

/// What is written into an admission record besides whom it is for.
#[derive(Clone, Debug)]
pub(crate) struct RecordWrite {
    /// The longest ttl that it allows.
    pub(crate) longest_ttl_ms: u64,
    pub(crate) origin: RecordOrigin,
    /// The least instant from which the process may vote.
    pub(crate) vote_from_ms: u64,
    /// For how long it waits from now; `None` if the record only follows the one that was found.
    pub(crate) wait_ms: Option<u64>,
    /// Its order, or the least of it where it waits from now.
    pub(crate) order: u64,
}

/// The command that acquires these locks on an instance with this record.
pub(crate) fn acquire<'a>(
    commands: &mut Encoder<'_>,
    claims: impl ExactSizeIterator<Item = &'a Claim> + Clone,
    attached: Option<&AttachedRecord>,
) {
    call(commands, ScriptKind::Acquire, claims.clone(), 2 + 4 * claims.len(), |words| {
        add_record(words, attached);
        for claim in claims {
            add_claim(words, claim).word(claim.mark.as_deref().map(WriterMark::as_bytes).unwrap_or_default());
        }
    });
}

/// The command by which readers come (`read`), stay (`renew`) or leave (`leave`) (P33).
pub(crate) fn read<'a>(
    commands: &mut Encoder<'_>,
    claims: impl ExactSizeIterator<Item = &'a Claim> + Clone,
    attached: Option<&AttachedRecord>,
    what: &str,
) {
    call(commands, ScriptKind::Read, claims.clone(), 3 + 2 * claims.len(), |words| {
        add_record(words, attached);
        words.word(what);
        for claim in claims {
            words.word(claim.value.as_bytes()).number(millis(claim.ttl));
        }
    });
}

/// The command that extends these leases, and sets the keys that are missing only if it `repairs`.
pub(crate) fn extend<'a>(
    commands: &mut Encoder<'_>,
    claims: impl ExactSizeIterator<Item = &'a Claim> + Clone,
    attached: Option<&AttachedRecord>,
    repairs: bool,
) {
    call(commands, ScriptKind::Extend, claims.clone(), 3 + 3 * claims.len(), |words| {
        add_record(words, attached);
        words.word(if repairs { "repair" } else { "" });
        claims.for_each(|claim| _ = add_claim(words, claim));
    });
}

/// The command that releases these locks.
pub(crate) fn release<'a>(commands: &mut Encoder<'_>, claims: impl ExactSizeIterator<Item = &'a Claim> + Clone) {
    call(commands, ScriptKind::Release, claims.clone(), 3 * claims.len(), |words| {
        for claim in claims {
            words.value_and_token(claim).encoded(if claim.resent { RESENT } else { NOTHING });
        }
    });
}

/// The command that removes some of the tokens that are older than `retention`, from this score on (P13).
pub(crate) fn forget_tokens(retention: Duration, from: &str) -> Cmd {
    let mut command = Cmd::new();
    command.arg("EVALSHA").arg(ScriptKind::ForgetTokens.hash()).arg(0).arg(millis(retention)).arg(from);
    command
}

/// The command that writes an admission record if `found` is still there (P15).
pub(crate) fn write_record(found: &[u8], identity: &ProcessIdentity, write: RecordWrite) -> Cmd {
    let RecordWrite { longest_ttl_ms, origin, vote_from_ms, wait_ms, order } = write;
    let mut command = Cmd::new();
    command.arg("EVALSHA").arg(ScriptKind::WriteRecord.hash()).arg(1).arg(ADMISSION_KEY);
    command.arg(found).arg(identity.as_str()).arg(longest_ttl_ms).arg(origin.word());
    command.arg(vote_from_ms).arg(wait_ms.map(|ms| ms.to_string()).unwrap_or_default()).arg(order);
    command
}

/// The commands that write the first record of an instance if it shows no trace of use, or only look whether it does (P15). The script
/// is loaded with them, as it is hardly ever called.
pub(crate) fn open(identity: &ProcessIdentity, longest_ttl_ms: u64, channel: &str, writes: bool) -> Pipeline {
    let mut commands = redis::pipe();
    commands.cmd("SCRIPT").arg("LOAD").arg(OPEN);
    commands.cmd("EVALSHA").arg(ScriptKind::Open.hash()).arg(2).arg(ADMISSION_KEY).arg(TOKENS_KEY);
    commands.arg(identity.as_str()).arg(longest_ttl_ms).arg(channel).arg(if writes { "write" } else { "look" });
    commands
}

/// A call for these locks with so many arguments.
fn call<'a>(
    commands: &mut Encoder<'_>,
    script: ScriptKind,
    claims: impl ExactSizeIterator<Item = &'a Claim>,
    arguments: usize,
    add_arguments: impl FnOnce(&mut Words<'_>),
) {
    let keys = claims.len();
    commands.add("EVALSHA", 3 + keys + arguments, of_script(keys as u64), |words| {
        words.word(script.hash()).number(keys as u64);
        claims.for_each(|claim| _ = words.key(claim));
        add_arguments(words);
    });
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
