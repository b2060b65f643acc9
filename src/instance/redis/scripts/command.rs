//! The commands that run one script each.

use std::sync::Arc;
use std::time::Duration;

use redis::Cmd;

use super::Scripts;
use crate::instance::{Claim, Request, Successors};
use crate::protocol::{AdmissionTerms, AttachedRecord, ClientId, ProcessIdentity, RecordOrigin};
use crate::resource::ADMISSION_KEY;

/// What is written into an admission record besides whom it is for.
#[derive(Clone, Debug)]
pub(crate) struct RecordWrite {
    /// From when on the process may vote, if the record follows the one that was found; `None` for a quarantine from now.
    pub(crate) vote_from_ms: Option<u64>,
    pub(crate) terms: AdmissionTerms,
    pub(crate) origin: RecordOrigin,
    /// Its order, or the least of it where a quarantine begins.
    pub(crate) order: u64,
}

impl Scripts {
    /// The one command that carries out `request` on an instance with this record.
    pub(crate) fn command(&self, request: &Request, attached: Option<&AttachedRecord>) -> Cmd {
        let claim = request.claim();
        let script = match request {
            Request::Acquire(_) => &self.acquire,
            Request::Extend(_) => &self.extend,
            Request::Release(_) => &self.release,
            Request::PassOn(..) => &self.pass_on,
        };
        let mut command = Cmd::with_capacity(10 + claim.resources.len(), 512);
        command.arg("EVALSHA").arg(&script.hash).arg(claim.resources.len());
        add_keys(&mut command, claim);
        let (value, token) = (claim.value.as_bytes(), claim.token.proposed_us());
        match request {
            Request::Acquire(_) => {
                add_record(&mut command, attached, attached.is_some_and(|attached| attached.quarantine_over));
                command.arg(value).arg(millis(claim.ttl)).arg(token)
            }
            Request::Extend(_) => {
                add_record(&mut command, attached, false);
                command.arg(value).arg(millis(claim.ttl)).arg(token)
            }
            Request::Release(_) => command.arg(value).arg(token),
            Request::PassOn(_, successors) => {
                command.arg(value).arg(token);
                add_successors(&mut command, successors)
            }
        };
        if request.is_release() && claim.resent {
            command.arg("resent");
        }
        command
    }

    /// The one command that keeps a key for others: what is kept for `instead_of`, or a free one (P26).
    pub(crate) fn keep(&self, key: &[u8], instead_of: Option<ClientId>, successors: &Successors) -> Cmd {
        let mut command = Cmd::new();
        let reservation = instead_of.map(|client| client.reservation()).unwrap_or_default();
        command.arg("EVALSHA").arg(&self.keep.hash).arg(1).arg(key).arg(reservation);
        add_successors(&mut command, successors);
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

    /// The command that removes some of the tokens that are older than `retention`, from this score on (P13).
    pub(crate) fn forget_tokens(&self, retention: Duration, from: &str) -> Cmd {
        let mut command = Cmd::new();
        command.arg("EVALSHA").arg(&self.forget_tokens.hash).arg(0).arg(millis(retention)).arg(from);
        command
    }

    /// The command that writes an admission record if `found` is still there (P15).
    pub(crate) fn write_record(&self, found: &[u8], identity: &ProcessIdentity, write: RecordWrite) -> Cmd {
        let RecordWrite { vote_from_ms, terms, origin, order } = write;
        let mut command = Cmd::new();
        command.arg("EVALSHA").arg(&self.write_record.hash).arg(1).arg(ADMISSION_KEY);
        command.arg(found).arg(identity.as_str()).arg(terms.max_ttl_ms).arg(origin.word());
        command.arg(vote_from_ms.map(|ms| ms.to_string()).unwrap_or_default()).arg(order).arg(terms.quarantine_ms);
        command
    }
}

/// The record and its instant. A single acquire leaves the instant out once it has surely come; what
/// extends or repairs keys, or does several things at once, has the instance look at its clock (P10).
pub(super) fn add_record(command: &mut Cmd, attached: Option<&AttachedRecord>, instant_has_come: bool) {
    match attached {
        Some(attached) if instant_has_come => command.arg(attached.wire()).arg(""),
        Some(attached) => command.arg(attached.wire()).arg(attached.record.vote_from_ms),
        None => command.arg("").arg(""),
    };
}

pub(super) fn add_successors<'a>(command: &'a mut Cmd, successors: &Successors) -> &'a mut Cmd {
    command.arg(successors.names()).arg(millis(successors.grace)).arg(&successors.message)
}

pub(super) fn add_keys(command: &mut Cmd, claim: &Claim) {
    for key in claim.resources.lock_keys() {
        command.arg(key);
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise the key of the longest would end before its lease.
    #[test]
    fn leases_that_are_renewed_together_get_the_longest_of_their_ttls() {
        let with_ttl = |round: u128, seconds: u64| {
            Arc::new(Claim { ttl: Duration::from_secs(seconds), ..Claim::sample(round, &["a".to_owned()]) })
        };
        let command = Scripts::shipped().extend_many(&[with_ttl(1, 2), with_ttl(2, 3), with_ttl(3, 1)], None);
        let parts: Vec<_> = command.args_iter().collect();
        // The name, the script, how many keys, these; the record and its instant; then the ttl.
        assert!(matches!(parts.get(3 + 3 + 2), Some(redis::Arg::Simple(b"3000"))));
    }
}
