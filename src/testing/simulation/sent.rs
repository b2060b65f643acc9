//! The requests of a client, read from what it sends.

use super::server::{Input, integer, read};
use crate::instance::redis::scripts::ScriptKind;

/// A request for a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// To set the keys.
    Lock,
    /// To keep them for longer.
    Extend,
    /// To delete them.
    Release,
}

/// The requests in whole commands, in their order, each with its value.
#[must_use]
pub fn sent_requests(bytes: &[u8]) -> Vec<(Asked, Vec<u8>)> {
    let (mut requests, mut at) = (Vec::new(), 0);
    while let Input::Command(words, size) = read(bytes.get(at..).unwrap_or_default()) {
        at += size;
        if let [b"SET", _, value, b"NX", ..] = &*words {
            requests.push((Asked::Lock, value.to_vec()));
        } else if let [b"EVALSHA", hash, count, rest @ ..] = &*words {
            let count = integer(count).unwrap_or(0) as usize;
            let script = ScriptKind::ALL.into_iter().find(|known| known.hash().as_bytes() == *hash);
            if let (Some(kind), Some(args)) = (script, rest.get(count..)) {
                let _ = read_call(kind, args, &mut requests);
            }
        }
    }
    requests
}

/// Reads one call, as far as it is one.
fn read_call(kind: ScriptKind, args: &[&[u8]], requests: &mut Vec<(Asked, Vec<u8>)>) -> Option<()> {
    let mut add = |asked, value: &[u8]| requests.push((asked, value.to_vec()));
    let mut each = |asked, args: &[&[u8]], words| args.iter().step_by(words).for_each(|value| add(asked, value));
    match kind {
        ScriptKind::Acquire => each(Asked::Lock, args.get(2..)?, 4),
        ScriptKind::Extend => each(Asked::Extend, args.get(3..)?, 3),
        ScriptKind::Release => each(Asked::Release, args, 3),
        ScriptKind::Read => {
            let asked = match *args.get(2)? {
                b"read" => Asked::Lock,
                b"renew" => Asked::Extend,
                _ => Asked::Release,
            };
            each(asked, args.get(3..)?, 2);
        }
        ScriptKind::WriteRecord | ScriptKind::Rights | ScriptKind::Open | ScriptKind::ForgetTokens => {}
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::Claim;
    use crate::instance::redis::batch::{self, Words};

    #[test]
    fn requests_are_read_from_calls_for_one_lock_and_for_several() {
        let claims = [1, 2].map(|round| Claim::sample(round, "a"));
        let [first, second] = [0, 1].map(|at: usize| claims[at].value.as_bytes().to_vec());
        for asked in [Asked::Lock, Asked::Extend, Asked::Release] {
            let mut bytes = Vec::new();
            let mut command = Words(&mut bytes);
            match asked {
                Asked::Lock => batch::acquire(&mut command, claims.iter(), None),
                Asked::Extend => batch::extend(&mut command, claims.iter(), None, true),
                Asked::Release => batch::release(&mut command, claims.iter()),
            }
            let expected = [(asked, first.clone()), (asked, second.clone())];
            assert_eq!(sent_requests(&bytes), expected);
        }
    }
}
