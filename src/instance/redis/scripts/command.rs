//! The commands that run one script each.

use std::time::Duration;

use redis::{Cmd, Pipeline};

use super::{Scripts, Text};
use crate::instance::Claim;
use crate::protocol::{AttachedRecord, ProcessIdentity, RecordOrigin, WriterMark};
use crate::resource::{ADMISSION_KEY, TOKENS_KEY};

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
        claims: impl ExactSizeIterator<Item = &'a Claim> + Clone,
        attached: Option<&AttachedRecord>,
    ) -> Cmd {
        let mut command = call(&self.acquire, claims.clone());
        add_record(&mut command, attached);
        for claim in claims {
            add_claim(&mut command, claim);
            command.arg(claim.mark.as_deref().map(WriterMark::as_bytes).unwrap_or_default());
        }
        command
    }

    /// The command by which readers come, stay or leave (P33).
    pub(crate) fn read<'a>(
        &self,
        claims: impl ExactSizeIterator<Item = &'a Claim> + Clone,
        attached: Option<&AttachedRecord>,
        what: ReadersDo,
    ) -> Cmd {
        let mut command = call(&self.read, claims.clone());
        add_record(&mut command, attached.filter(|_| what != ReadersDo::Leave));
        command.arg(match what {
            ReadersDo::Read => "read",
            ReadersDo::Renew => "renew",
            ReadersDo::Leave => "leave",
        });
        for claim in claims {
            command.arg(claim.value.as_bytes()).arg(millis(claim.ttl));
        }
        command
    }

    /// The command that extends these leases, and sets the keys that are missing only if it `repairs`.
    pub(crate) fn extend<'a>(
        &self,
        claims: impl ExactSizeIterator<Item = &'a Claim> + Clone,
        attached: Option<&AttachedRecord>,
        repairs: bool,
    ) -> Cmd {
        let mut command = call(&self.extend, claims.clone());
        add_record(&mut command, attached);
        command.arg(if repairs { "repair" } else { "" });
        claims.for_each(|claim| add_claim(&mut command, claim));
        command
    }

    /// The command that releases these locks.
    pub(crate) fn release<'a>(&self, claims: impl ExactSizeIterator<Item = &'a Claim> + Clone) -> Cmd {
        let mut command = call(&self.release, claims.clone());
        for claim in claims {
            command.arg(claim.value.as_bytes()).arg(claim.token.proposed_us());
            command.arg(if claim.resent { "resent" } else { "" });
        }
        command
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

/// The beginning of a call for these locks.
fn call<'a>(script: &Text, claims: impl ExactSizeIterator<Item = &'a Claim>) -> Cmd {
    let count = claims.len();
    let mut command = Cmd::with_capacity(6 + 5 * count, 256 + 192 * count);
    command.arg("EVALSHA").arg(&script.hash).arg(count);
    claims.for_each(|claim| _ = command.arg(claim.resource.key()));
    command
}

fn add_record(command: &mut Cmd, attached: Option<&AttachedRecord>) {
    match attached {
        Some(attached) => command.arg(attached.wire()).arg(attached.record.vote_from_ms),
        None => command.arg("").arg(""),
    };
}

fn add_claim(command: &mut Cmd, claim: &Claim) {
    command.arg(claim.value.as_bytes()).arg(claim.token.proposed_us()).arg(millis(claim.ttl));
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
