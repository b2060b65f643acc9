//! What answers and errors have in common, whatever was asked.

use std::fmt::{self, Debug, Write};

use redis::{RedisError, RedisResult, Value};

use super::cause::{clip, server_cause};
use crate::protocol::{Cause, RawReply, Reply};

/// The most that is kept of a value that stands in the way: more than any of ours has, and what other
/// programs put there may be anything.
const MAX_VALUE: usize = 4096;

/// In a second.
pub(super) const MICROS: u64 = 1_000_000;

/// How much of an answer is put into words at most: a few times what is kept of them.
const MOST_WORDS: usize = 1024;

/// What no script of ours says.
pub(super) fn odd(value: &(impl Debug + ?Sized)) -> Reply {
    Reply::Unknown(Cause::OddReply(clip(&beginning(value))))
}

/// How it reads, up to its first words: nothing behind them is formatted.
pub(crate) fn beginning(value: &(impl Debug + ?Sized)) -> String {
    let mut words = FirstWords(String::new());
    let _ = write!(words, "{value:?}"); // an error means that they are enough
    words.0
}

struct FirstWords(String);

impl Write for FirstWords {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = MOST_WORDS.saturating_sub(self.0.len());
        self.0.extend(text.char_indices().take_while(|(at, _)| *at < room).map(|(_, letter)| letter));
        if text.len() < room { Ok(()) } else { Err(fmt::Error) }
    }
}

pub(super) fn kept(value: &[u8]) -> Vec<u8> {
    value.get(..MAX_VALUE).unwrap_or(value).to_vec()
}

pub(crate) fn bytes(value: &Value) -> Option<&[u8]> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.as_bytes()),
        _ => None,
    }
}

/// An error of the server: the script may have been carried out in part, so it is unknown, except
/// where the server says that it did not know the script.
pub(super) fn server_error(code: &str, details: &str) -> Reply {
    match code {
        "NOSCRIPT" => Reply::NotSent(Cause::ScriptMissing),
        _ => Reply::Unknown(server_cause(code, details)),
    }
}

pub(super) fn redis_error(error: &RedisError) -> Reply {
    match error.code() {
        // A server's error that the client library turned into one of its own.
        Some(code) => server_error(code, error.detail().unwrap_or_default()),
        None => Reply::Unknown(Cause::Disconnected(clip(&error.to_string()))),
    }
}

/// The answers to the commands of one write, of which so many are left.
pub(crate) struct Said<'a>(Result<&'a [Value], &'a RedisError>);

/// Some of them, or what it is for each request that there are none.
pub(crate) type Part<'a> = Result<&'a [Value], Reply>;

impl<'a> Said<'a> {
    pub(crate) const fn of(result: &'a RedisResult<Value>) -> Self {
        Self(match result {
            Ok(Value::Array(answers)) => Ok(answers.as_slice()),
            Ok(other) => Ok(std::slice::from_ref(other)),
            Err(error) => Err(error),
        })
    }

    /// The next of them.
    pub(crate) fn next(&mut self, count: usize) -> Part<'a> {
        let answers = self.0.map_err(redis_error)?;
        let (next, left) = answers.split_at_checked(count).ok_or_else(|| odd(answers))?;
        self.0 = Ok(left);
        Ok(next)
    }
}

/// Whether a script failed as a whole, perhaps by the fault of one of its requests: not if the error is about the instance,
/// whatever the request was.
pub(crate) fn is_a_fault_of_a_request(answer: &Part<'_>) -> bool {
    let Ok([answer]) = answer else { return false };
    match error(answer) {
        Some(Reply::Unknown(cause)) => !matches!(
            cause,
            Cause::Loading | Cause::Busy | Cause::OutOfMemory | Cause::ReadOnly | Cause::CannotWrite(_)
        ),
        _ => false,
    }
}

pub(super) fn error(answer: &Value) -> Option<Reply> {
    let Value::ServerError(error) = answer else { return None };
    Some(server_error(error.code(), error.details().unwrap_or_default()))
}

/// What an error in place of an answer is about.
pub(crate) fn error_of(answer: &Value) -> Option<Cause> {
    let Value::ServerError(error) = answer else { return None };
    Some(server_cause(error.code(), error.details().unwrap_or_default()))
}

pub(super) fn with_clock(reply: Reply, us: i64) -> RawReply {
    RawReply { reply, instance_us: u64::try_from(us).ok().filter(|us| *us > 0) }
}

pub(super) const fn without_clock(reply: Reply) -> RawReply {
    RawReply { reply, instance_us: None }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Says how much of it was asked for.
    struct Counted(Cell<usize>);

    impl Debug for Counted {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            (0..1_000_000).try_for_each(|_| {
                self.0.set(self.0.get() + 1);
                f.write_str("0123456789")
            })
        }
    }

    /// It took 58 ms for a reply of 4 MiB, of which 200 letters were kept.
    #[test]
    fn no_more_of_an_odd_answer_is_put_into_words_than_its_beginning() {
        let counted = Counted(Cell::new(0));
        assert_eq!(beginning(&counted).len(), MOST_WORDS);
        assert!(counted.0.get() <= MOST_WORDS / 10 + 1);
        let long = Value::Array(vec![Value::BulkString(vec![b'x'; 4096]); 4]);
        assert!(beginning(&long).starts_with("array([bulk-string('\"xxx"), "{}", beginning(&long));
        assert_eq!(beginning(&Value::Okay), "ok");
    }
}
