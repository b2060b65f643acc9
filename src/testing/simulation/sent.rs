//! What a client asks for, read from what it sends.

use super::server::{Input, read};
use crate::instance::redis::scripts::Scripts;
use crate::instance::redis::scripts::kinds::ScriptKind;

/// What is asked for a value.
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
            let count = number(count).unwrap_or(0);
            let known = Scripts::shipped().all();
            let script = known.iter().find(|(_, _, known)| known.as_bytes() == *hash);
            if let (Some((kind, ..)), Some(args)) = (script, rest.get(count..)) {
                let _ = read_call(*kind, args, &mut requests);
            }
        }
    }
    requests
}

/// Reads one call, as far as it is one.
fn read_call(kind: ScriptKind, args: &[&[u8]], requests: &mut Vec<(Asked, Vec<u8>)>) -> Option<()> {
    let mut add = |asked, value: &[u8]| requests.push((asked, value.to_vec()));
    match kind {
        ScriptKind::Acquire => add(Asked::Lock, args.get(2)?),
        ScriptKind::Extend => add(Asked::Extend, args.get(2)?),
        ScriptKind::Release | ScriptKind::PassOn => add(Asked::Release, args.first()?),
        ScriptKind::ExtendMany => args.get(3..)?.iter().for_each(|value| add(Asked::Extend, value)),
        ScriptKind::Keep | ScriptKind::WriteRecord | ScriptKind::ForgetTokens => {}
        ScriptKind::Batch => {
            let [_, _, first, _, letters, rest @ ..] = args else { return None };
            let (first, mut rest) = rest.split_at_checked(2 * number(first)?)?;
            first.iter().step_by(2).for_each(|value| add(Asked::Release, value));
            for letter in letters.iter() {
                let (asked, words) = match letter {
                    b'a' => (Asked::Lock, 2),
                    b'A' => (Asked::Lock, 4),
                    b'E' => (Asked::Extend, 4),
                    b'P' | b'Q' => (Asked::Release, 7),
                    _ => (Asked::Release, 4),
                };
                add(asked, rest.first()?);
                rest = rest.get(words..)?;
            }
        }
    }
    Some(())
}

fn number(word: &[u8]) -> Option<usize> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::instance::{Claim, Request};

    fn sent(command: &redis::Cmd) -> Vec<(Asked, Vec<u8>)> {
        sent_requests(&command.get_packed_command())
    }

    #[test]
    fn requests_are_read_from_single_commands_and_from_batches() {
        let claim = |round: u128| Arc::new(Claim::sample(round, &["a".to_owned()]));
        let value = |round: u128| claim(round).value.as_bytes().to_vec();
        let scripts = Scripts::shipped();
        type Kind = (fn(Arc<Claim>) -> Request, Asked);
        let kinds: [Kind; 3] =
            [(Request::Acquire, Asked::Lock), (Request::Extend, Asked::Extend), (Request::Release, Asked::Release)];
        for (kind, asked) in kinds {
            assert_eq!(sent(&scripts.command(&kind(claim(1)), None)), [(asked, value(1))]);
        }
        assert_eq!(
            sent(&scripts.extend_many(&[claim(1), claim(2)], None)),
            [(Asked::Extend, value(1)), (Asked::Extend, value(2))]
        );
        let batch = [Request::Release(claim(1)), Request::Acquire(claim(2)), Request::Extend(claim(3))];
        let expected = [(Asked::Release, value(1)), (Asked::Lock, value(2)), (Asked::Extend, value(3))];
        for first in [0, 1] {
            let requests: Vec<&Request> = batch.iter().collect();
            assert_eq!(sent(&scripts.batch(&requests, first, None)), expected);
        }
    }
}
