//! The commands that run one script each.

use std::time::Duration;

use redis::{Cmd, Pipeline};

use super::{Scripts, Text};
use crate::instance::Claim;
use crate::instance::redis::encode::{Encoder, Words, millis};
use crate::instance::redis::reply_bound::of_script;
use crate::protocol::{AttachedRecord, ProcessIdentity, RecordOrigin, WriterMark};
use crate::resource::{ADMISSION_KEY, TOKENS_KEY};

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

/// What readers ask for (`read.lua`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadersDo {
    Read,
    Renew,
    Leave,
}

impl Scripts {
    /// The command that acquires these locks on an instance with this record.
    pub(crate) fn acquire<'a>(
        &self,
        commands: &mut Encoder<'_>,
        claims: impl ExactSizeIterator<Item = &'a Claim> + Clone,
        attached: Option<&AttachedRecord>,
    ) {
        call(commands, &self.acquire, claims.clone(), 2 + 4 * claims.len(), |words| {
            add_record(words, attached);
            for claim in claims {
                add_claim(words, claim).word(claim.mark.as_deref().map(WriterMark::as_bytes).unwrap_or_default());
            }
        });
    }

    /// The command by which readers come, stay or leave (P33).
    pub(crate) fn read<'a>(
        &self,
        commands: &mut Encoder<'_>,
        claims: impl ExactSizeIterator<Item = &'a Claim> + Clone,
        attached: Option<&AttachedRecord>,
        what: ReadersDo,
    ) {
        call(commands, &self.read, claims.clone(), 3 + 2 * claims.len(), |words| {
            add_record(words, attached.filter(|_| what != ReadersDo::Leave));
            words.word(match what {
                ReadersDo::Read => "read",
                ReadersDo::Renew => "renew",
                ReadersDo::Leave => "leave",
            });
            for claim in claims {
                words.word(claim.value.as_bytes()).number(millis(claim.ttl));
            }
        });
    }

    /// The command that extends these leases, and sets the keys that are missing only if it `repairs`.
    pub(crate) fn extend<'a>(
        &self,
        commands: &mut Encoder<'_>,
        claims: impl ExactSizeIterator<Item = &'a Claim> + Clone,
        attached: Option<&AttachedRecord>,
        repairs: bool,
    ) {
        call(commands, &self.extend, claims.clone(), 3 + 3 * claims.len(), |words| {
            add_record(words, attached);
            words.word(if repairs { "repair" } else { "" });
            claims.for_each(|claim| _ = add_claim(words, claim));
        });
    }

    /// The command that releases these locks.
    pub(crate) fn release<'a>(
        &self,
        commands: &mut Encoder<'_>,
        claims: impl ExactSizeIterator<Item = &'a Claim> + Clone,
    ) {
        call(commands, &self.release, claims.clone(), 3 * claims.len(), |words| {
            for claim in claims {
                words.value_and_token(claim).encoded(if claim.resent { RESENT } else { NOTHING });
            }
        });
    }

    /// The command that removes some of the tokens that are older than `retention`, from this score on (P13).
    pub(crate) fn forget_tokens(&self, retention: Duration, from: &str) -> Cmd {
        let mut command = Cmd::new();
        command.arg("EVALSHA").arg(&self.forget_tokens.hash).arg(0).arg(millis(retention)).arg(from);
        command
    }

    /// The command that writes an admission record if `found` is still there (P15).
    pub(crate) fn write_record(&self, found: &[u8], identity: &ProcessIdentity, write: RecordWrite) -> Cmd {
        let RecordWrite { longest_ttl_ms, origin, vote_from_ms, wait_ms, order } = write;
        let mut command = Cmd::new();
        command.arg("EVALSHA").arg(&self.write_record.hash).arg(1).arg(ADMISSION_KEY);
        command.arg(found).arg(identity.as_str()).arg(longest_ttl_ms).arg(origin.word());
        command.arg(vote_from_ms).arg(wait_ms.map(|ms| ms.to_string()).unwrap_or_default()).arg(order);
        command
    }

    /// The commands that write the first record of an instance if it shows no trace of use, or only look whether it does (P15). The script
    /// is loaded with them, as it is hardly ever called.
    pub(crate) fn open(
        &self,
        identity: &ProcessIdentity,
        longest_ttl_ms: u64,
        channel: &str,
        writes: bool,
    ) -> Pipeline {
        let mut commands = redis::pipe();
        commands.cmd("SCRIPT").arg("LOAD").arg(self.open.text);
        commands.cmd("EVALSHA").arg(&self.open.hash).arg(2).arg(ADMISSION_KEY).arg(TOKENS_KEY);
        commands.arg(identity.as_str()).arg(longest_ttl_ms).arg(channel).arg(if writes { "write" } else { "look" });
        commands
    }
}

/// A call for these locks with so many arguments.
fn call<'a>(
    commands: &mut Encoder<'_>,
    script: &Text,
    claims: impl ExactSizeIterator<Item = &'a Claim>,
    arguments: usize,
    add_arguments: impl FnOnce(&mut Words<'_>),
) {
    let keys = claims.len();
    commands.add("EVALSHA", 3 + keys + arguments, of_script(keys as u64), |words| {
        words.word(&script.hash).number(keys as u64);
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
