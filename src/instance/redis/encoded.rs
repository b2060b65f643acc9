//! Commands as they go out.

use std::mem::discriminant;
use std::sync::{Arc, Mutex, PoisonError};

use redis::{Cmd, Pipeline};

use super::reply_bound::ReplyBound;
use crate::instance::Request;

/// Commands in bytes, with what the reply to each may be.
#[derive(Debug)]
pub(super) struct Encoded {
    pub(super) bytes: Vec<u8>,
    pub(super) bounds: Arc<[ReplyBound]>,
}

impl Encoded {
    fn of(commands: &Pipeline) -> Self {
        let mut bytes = Vec::new();
        let bounds = encode_all(commands, &mut bytes);
        Self { bytes, bounds }
    }
}

/// Appends a command; returns what the reply to it may be.
pub(super) fn encode(command: &Cmd, bytes: &mut Vec<u8>) -> ReplyBound {
    let before = bytes.len();
    command.write_packed_command(bytes);
    ReplyBound::of(command, bytes.len() - before)
}

/// Appends several.
pub(super) fn encode_all(commands: &Pipeline, bytes: &mut Vec<u8>) -> Arc<[ReplyBound]> {
    commands.cmd_iter().map(|command| encode(command, bytes)).collect()
}

/// The request that was sent last, in bytes: a round asks all instances for the same, one right after the other.
#[derive(Debug, Default)]
pub(super) struct LastEncoded(Mutex<Option<(Request, Arc<Encoded>)>>);

impl LastEncoded {
    /// The commands of one that is alone in its write, and that says the same to each instance. They are put together only if the
    /// last was another.
    pub(super) fn of(&self, request: &Request, commands: impl FnOnce() -> Pipeline) -> Arc<Encoded> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same =
            |of: &Request| Arc::ptr_eq(of.claim(), request.claim()) && discriminant(of) == discriminant(request);
        match &*last {
            Some((of, encoded)) if is_same(of) => Arc::clone(encoded),
            _ => {
                let encoded = Arc::new(Encoded::of(&commands()));
                *last = Some((request.clone(), Arc::clone(&encoded)));
                encoded
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::Claim;

    /// Otherwise a round would ask for the lock of the one before.
    #[test]
    fn the_commands_are_put_together_once_for_a_round_and_anew_for_the_next() {
        let last = LastEncoded::default();
        let commands = |request: &Request| {
            let mut commands = redis::pipe();
            commands.cmd("GET").arg(request.claim().value.as_bytes());
            commands
        };
        let encoded = |request: &Request| last.of(request, || commands(request));
        let [one, next] = [1, 2].map(|round| Request::Acquire(Arc::new(Claim::sample(round, "a"))));
        let of_one = encoded(&one);
        assert!(Arc::ptr_eq(&of_one, &encoded(&one)));
        let release = Request::Release(Arc::clone(one.claim()), None);
        for other in [&next, &release] {
            assert!(!Arc::ptr_eq(&of_one, &encoded(other)));
            assert_eq!(encoded(other).bytes, commands(other).get_packed_pipeline());
        }
        assert_eq!(encoded(&one).bytes, of_one.bytes);
    }
}
