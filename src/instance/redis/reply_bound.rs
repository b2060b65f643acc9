//! How long the reply to a command may be.

use std::fmt;

use redis::{Arg, Cmd};

/// The longest value that a lock may have: what is longer is another program's, and may be megabytes.
pub(super) const MOST_OF_A_VALUE: u64 = 2048;

/// The longest reply to a command that asks for nothing long, besides what it may repeat of the command: an error of
/// a server has a few hundred bytes.
const LEAST: u64 = 2 * 1024;

/// What a value of a lock takes in a reply, with what is said beside it.
pub(super) const VALUE: u64 = MOST_OF_A_VALUE + 64;

/// The most values that one script tells of: one for each request of a batch.
const VALUES: u64 = 64;

/// The most that is read of the values of leases at once. What is longer is read one by one, and cut.
const WATCHED: u64 = 256 * 1024;

/// The admission record, or what somebody else wrote over it.
pub(super) const RECORD: u64 = 16 * 1024;

/// What a server says of itself: `commandstats` of one with modules takes 60 KiB.
const INFO: u64 = 128 * 1024;

/// Two names of keys of the longest length.
const NAMES: u64 = 130 * 1024;

/// Some hundred names of keys, of whatever length: an operator lists them.
const LISTING: u64 = 4 * 1024 * 1024;

/// The longest name that is told apart.
const MAX_NAME: usize = 10;

/// The name of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CommandName {
    letters: [u8; MAX_NAME],
    length: usize,
}

impl CommandName {
    pub(super) fn of(name: &[u8]) -> Self {
        let mut of = Self::default();
        for letter in name.iter().take(MAX_NAME) {
            if let Some(place) = of.letters.get_mut(of.length) {
                *place = letter.to_ascii_uppercase();
                of.length += 1;
            }
        }
        of
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        self.letters.get(..self.length).unwrap_or_default()
    }
}

impl fmt::Display for CommandName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().iter().try_for_each(|letter| write!(f, "{}", char::from(*letter)))
    }
}

/// What the reply to a command may be at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReplyBound {
    pub(super) command: CommandName,
    pub(super) bytes: u64,
    /// Decoded, each element takes ten times what the shortest takes on the way.
    pub(super) elements: u64,
}

impl ReplyBound {
    pub(super) const fn new(command: CommandName, bytes: u64) -> Self {
        Self { command, bytes, elements: 64 + bytes / 64 }
    }

    /// Of the reply to a command that takes so many bytes.
    pub(super) fn of(command: &Cmd, packed: usize) -> Self {
        let mut words = command.args_iter().map(|word| match word {
            Arg::Simple(word) => word,
            _ => &[][..],
        });
        let count = words.len() as u64;
        let name = CommandName::of(words.next().unwrap_or_default());
        let asked_for = match name.as_bytes() {
            b"EVALSHA" => of_script(words.nth(1).map_or(0, number)),
            b"SET" => VALUE,
            b"GETRANGE" => {
                let [from, to] = [words.nth(1), words.next()].map(|word| word.map_or(0, number));
                to.saturating_sub(from).saturating_add(1).min(LISTING)
            }
            b"MGET" => count.saturating_mul(VALUE).min(WATCHED),
            b"GET" | b"HELLO" | b"SENTINEL" => RECORD,
            b"INFO" => INFO,
            b"ZRANGE" => NAMES,
            b"SCAN" => LISTING,
            _ => 0,
        };
        Self::asking(name, packed, asked_for)
    }

    /// Of the reply to a command with this name that takes so many bytes, and asks for so many.
    pub(super) fn named(name: &str, packed: usize, asked_for: u64) -> Self {
        Self::asking(CommandName::of(name.as_bytes()), packed, asked_for)
    }

    /// What it says may repeat the command, or one of its keys.
    const fn asking(command: CommandName, packed: usize, asked_for: u64) -> Self {
        Self::new(command, LEAST.saturating_add(packed as u64).saturating_add(asked_for))
    }

    /// Of what nobody asked for.
    pub(super) fn unasked() -> Self {
        Self::new(CommandName::default(), LEAST)
    }

    /// Whether its reply is what is under the key of a lock.
    pub(super) fn may_be_a_value(self) -> bool {
        self.command.as_bytes() == b"SET"
    }

    /// Whether its reply is a push.
    pub(super) fn is_of_subscribe(self) -> bool {
        self.command.as_bytes() == b"SUBSCRIBE"
    }
}

/// What a script tells of so many keys.
pub(super) fn of_script(keys: u64) -> u64 {
    keys.min(VALUES).saturating_mul(VALUE)
}

/// The number that these digits are; what is no digit counts for nothing.
fn number(text: &[u8]) -> u64 {
    let digits = text.iter().filter(|byte| byte.is_ascii_digit());
    digits.fold(0, |number: u64, digit| number.saturating_mul(10).saturating_add(u64::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(words: &[&str]) -> Cmd {
        let mut command = redis::cmd(words[0]);
        words[1..].iter().for_each(|word| _ = command.arg(*word));
        command
    }

    fn bound(words: &[&str]) -> ReplyBound {
        let command = command(words);
        ReplyBound::of(&command, command.get_packed_command().len())
    }

    #[test]
    fn every_command_is_bounded_by_what_it_asks_for() {
        let commands: [(&[&str], &str, u64); 7] = [
            (&["TIME"], "TIME", 0),
            (&["SET", "a", "", "NX", "GET", "PX", "100"], "SET", VALUE),
            (&["GETRANGE", "12", "0", "2047"], "GETRANGE", 2048),
            (&["EVALSHA", "7a9", "3", "a", "b", "c"], "EVALSHA", 3 * VALUE),
            (&["MGET", "a", "b"], "MGET", 3 * VALUE),
            (&["get", "redquorum:admission"], "GET", RECORD),
            (&["EVALSHA", "7a9", "99999999999999999999999"], "EVALSHA", VALUES * VALUE),
        ];
        for (words, name, asked_for) in commands {
            let bound = bound(words);
            assert_eq!(bound.command.to_string(), name);
            assert_eq!(bound.bytes - LEAST - command(words).get_packed_command().len() as u64, asked_for, "{words:?}");
        }
    }

    /// Two of five instances that answered everything with as much as was accepted took all of the processor.
    #[test]
    fn all_replies_to_a_write_of_many_locks_come_to_a_few_hundred_kilobytes() {
        let set: &[&str] =
            &["SET", "a-lock-of-usual-length", "0123456789abcdef0123456789abcdef", "NX", "GET", "PX", "10000"];
        assert!(131 * bound(set).bytes < 600 * 1024);
    }
}
