//! What the user of a connection may not do. Plain commands need few rights: a user without the others would be given locks
//! that it can neither renew nor release.

use redis::Value;

use super::classify::{bytes, error_of, reported_cause};
use crate::protocol::{Access, Cause};

/// Commands that only readers need, to see who waits and to leave (P33).
const OF_READERS: [&str; 2] = ["zrange", "zrem"];

/// Why a user gets no locks.
#[derive(Clone, Debug, Default)]
pub(super) struct Denied {
    lock: Option<Cause>,
    read: Option<Cause>,
    /// Why the server does not carry out a command of a lock now, though the user may run all of them.
    passing: Option<Cause>,
}

impl Denied {
    /// From the answer of `rights.lua`. To requests only that a command is denied counts: all else passes, or any of them meets it.
    ///
    /// # Errors
    /// The script was not carried out, which shows nothing: it is not there any more, say, or another one runs.
    pub(super) fn of(answer: &Value) -> Result<Self, Cause> {
        let words = match (error_of(answer), answer) {
            (Some(cause @ Cause::NoPermission(_)), _) => {
                return Ok(Self { lock: Some(cause.clone()), read: Some(cause), passing: None }); // no script at all
            }
            (Some(cause), _) => return Err(cause),
            (None, Value::Array(words)) => words,
            (None, _) => return Err(Cause::OddReply("no list".to_owned())),
        };
        let text = |word| String::from_utf8_lossy(bytes(word).unwrap_or_default()).into_owned();
        let failed = words.chunks_exact(2).map(|pair| match pair {
            [command, why] => (text(command), reported_cause(&text(why))),
            _ => (String::new(), Cause::Connecting),
        });
        let (denied, passing): (Vec<_>, Vec<_>) =
            failed.partition(|(_, cause)| matches!(cause, Cause::NoPermission(_)));
        let cause = |commands: Vec<&str>| {
            let words = format!("its user may not run {}", commands.join(", "));
            (!commands.is_empty()).then_some(Cause::NoPermission(words))
        };
        let all: Vec<&str> = denied.iter().map(|(command, _)| command.as_str()).collect();
        let lock = cause(all.iter().copied().filter(|command| !OF_READERS.contains(command)).collect());
        Ok(Self { lock, read: cause(all), passing: passing.into_iter().next().map(|(_, cause)| cause) })
    }

    /// Why no lock would be set now.
    pub(super) fn obstacle(self) -> Option<Cause> {
        self.lock.or(self.passing)
    }

    /// Why the user gets none for this access.
    pub(super) fn to(&self, access: Access) -> Option<&Cause> {
        match access {
            Access::Write => self.lock.as_ref(),
            Access::Read => self.read.as_ref(),
        }
    }

    pub(super) const fn is_any(&self) -> bool {
        self.read.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(answer: &str) -> [Option<String>; 2] {
        let denied = Denied::of(&redis::parse_redis_value(answer.as_bytes()).unwrap()).unwrap();
        [Access::Write, Access::Read].map(|access| denied.to(access).map(ToString::to_string))
    }

    #[test]
    fn a_user_without_all_rights_of_a_lock_or_a_reader_is_told_which_are_missing() {
        let both =
            |words: &str| [Some(words.to_owned()), Some(words.to_owned())].map(|it| it.filter(|it| !it.is_empty()));
        assert_eq!(denied("*0\r\n"), [None, None]);
        let full = "*2\r\n+set\r\n+OOM command not allowed when used memory > 'maxmemory'.\r\n";
        assert_eq!(denied(full), [None, None]);
        let [lock, read] = denied("*4\r\n+zrem\r\n+NOPERM no permissions to run 'zrem'\r\n+set\r\n+OOM no\r\n");
        assert!(lock.is_none() && read.is_some_and(|read| read.contains("may not run zrem;")));
        let words =
            "permission denied: its user may not run del; grant the commands named in redquorum::guide::operations";
        let old = "*2\r\n+del\r\n+The user executing the script can't run this command or subcommand\r\n";
        assert_eq!(denied(old), both(words));
        let [lock, read] = denied("-NOPERM this user has no permissions to run the 'evalsha' command\r\n");
        assert!(lock == read && lock.is_some_and(|lock| lock.contains("'evalsha'")));
    }

    #[test]
    fn a_script_that_was_not_carried_out_shows_no_rights() {
        for answer in ["-NOSCRIPT No matching script.\r\n", "-BUSY a script\r\n", "-LOADING\r\n", "+OK\r\n", "_\r\n"] {
            assert!(Denied::of(&redis::parse_redis_value(answer.as_bytes()).unwrap()).is_err(), "{answer}");
        }
    }
}
