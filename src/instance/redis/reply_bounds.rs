//! How long the reply to each command may be: follows the commands that are written to an instance, without copying
//! them.

use std::collections::VecDeque;
use std::fmt;

use super::plain::MOST_OF_A_VALUE;

/// The longest reply to a command that asks for nothing long, besides what it may repeat of the command: an error of
/// a server has a few hundred bytes.
const LEAST: u64 = 2 * 1024;

/// What a value of a lock takes in a reply, with what is said beside it.
const VALUE: u64 = MOST_OF_A_VALUE + 64;

/// The most values that one script tells of: one for each request of a batch.
const VALUES: u64 = 64;

/// The most that is read of the values of leases at once. What is longer is read one by one, and cut.
const WATCHED: u64 = 256 * 1024;

/// The admission record, or what somebody else wrote over it.
const RECORD: u64 = 16 * 1024;

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
    #[cfg(test)]
    pub(super) fn of(name: &str) -> Self {
        let mut of = Self::default();
        name.bytes().for_each(|letter| of.push(letter));
        of
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        self.letters.get(..self.length).unwrap_or_default()
    }

    fn push(&mut self, letter: u8) {
        if let Some(place) = self.letters.get_mut(self.length) {
            *place = letter.to_ascii_uppercase();
            self.length += 1;
        }
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

    /// Of what nobody asked for.
    pub(super) fn unasked() -> Self {
        Self::new(CommandName::default(), LEAST)
    }
}

/// The commands that are still to be answered, in their order.
#[derive(Debug, Default)]
pub(super) struct ReplyBounds {
    awaited: VecDeque<ReplyBound>,
    written: Written,
}

/// How much has been written of the command that is being written.
#[derive(Debug, Default)]
struct Written {
    name: CommandName,
    /// How many words are still to come, and how many came.
    left: u64,
    came: u64,
    /// The third word and the fourth, as far as they are numbers.
    numbers: [u64; 2],
    bytes: u64,
    /// How many bytes of a word are still to come, its end of line included.
    body: u64,
    /// The number in a line whose end has not come.
    line: Option<u64>,
}

impl ReplyBounds {
    /// Follows what is written next: commands as the redis crate packs them.
    pub(super) fn follow(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let step =
                if self.written.body > 0 { self.written.follow_body(bytes) } else { self.written.follow_line(bytes) };
            self.written.bytes += step as u64;
            if self.written.is_whole() {
                let written = std::mem::take(&mut self.written);
                self.awaited.push_back(written.bound());
            }
            bytes = bytes.get(step..).unwrap_or_default();
        }
    }

    /// The bound of the reply that comes next.
    pub(super) fn next(&self) -> Option<ReplyBound> {
        self.awaited.front().copied()
    }

    /// It has come. Whether it was awaited.
    pub(super) fn answered(&mut self) -> bool {
        self.awaited.pop_front().is_some()
    }

    /// A push has come that stands for the reply to `SUBSCRIBE`.
    pub(super) fn subscribed(&mut self) {
        if self.next().is_some_and(|bound| bound.command.as_bytes() == b"SUBSCRIBE") {
            self.awaited.pop_front();
        }
    }
}

impl Written {
    fn follow_line(&mut self, bytes: &[u8]) -> usize {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let step = end.map_or(bytes.len(), |end| end + 1);
        let number = number(self.line.unwrap_or(0), bytes.get(..step).unwrap_or_default());
        self.line = Some(number);
        if end.is_some() {
            self.line = None;
            if self.bytes == 0 || (self.left == 0 && self.came == 0) {
                self.left = number;
            } else {
                self.body = number.saturating_add(2);
            }
        }
        step
    }

    fn follow_body(&mut self, bytes: &[u8]) -> usize {
        let step = bytes.len().min(usize::try_from(self.body).unwrap_or(usize::MAX));
        let without_end = usize::try_from(self.body.saturating_sub(2)).unwrap_or(usize::MAX);
        let text = bytes.get(..step.min(without_end)).unwrap_or_default();
        match self.came {
            0 => text.iter().for_each(|letter| self.name.push(*letter)),
            2 => self.numbers[0] = number(self.numbers[0], text),
            3 => self.numbers[1] = number(self.numbers[1], text),
            _ => {}
        }
        self.body -= step as u64;
        if self.body == 0 {
            self.came += 1;
            self.left = self.left.saturating_sub(1);
        }
        step
    }

    const fn is_whole(&self) -> bool {
        self.left == 0 && self.body == 0 && self.line.is_none() && self.bytes > 0
    }

    fn bound(&self) -> ReplyBound {
        let [third, fourth] = self.numbers;
        let asked_for = match self.name.as_bytes() {
            b"EVALSHA" => third.min(VALUES).saturating_mul(VALUE),
            b"GETRANGE" => fourth.saturating_sub(third).saturating_add(1).min(LISTING),
            b"MGET" => self.came.saturating_mul(VALUE).min(WATCHED),
            b"GET" | b"HELLO" | b"SENTINEL" => RECORD,
            b"INFO" => INFO,
            b"ZRANGE" => NAMES,
            b"SCAN" => LISTING,
            _ => 0,
        };
        // What it says may repeat the command, or one of its keys.
        ReplyBound::new(self.name, LEAST.saturating_add(self.bytes).saturating_add(asked_for))
    }
}

/// A number of which these digits come next; what is no digit counts for nothing.
fn number(before: u64, text: &[u8]) -> u64 {
    let digits = text.iter().filter(|byte| byte.is_ascii_digit());
    digits.fold(before, |number, digit| number.saturating_mul(10).saturating_add(u64::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(commands: &[&[&str]]) -> Vec<u8> {
        let mut pipeline = redis::pipe();
        for words in commands {
            let command = pipeline.cmd(words[0]);
            words[1..].iter().for_each(|word| _ = command.arg(*word));
        }
        pipeline.get_packed_pipeline()
    }

    fn bounds(bytes: &[u8]) -> Vec<(String, u64)> {
        let mut bounds = ReplyBounds::default();
        bounds.follow(bytes);
        bounds.awaited.iter().map(|bound| (bound.command.to_string(), bound.bytes)).collect()
    }

    #[test]
    fn every_command_is_followed_to_its_end_however_it_is_cut_and_bounded_by_what_it_asks_for() {
        let commands: [&[&str]; 7] = [
            &["TIME"],
            &["SET", "a", "", "NX", "PX", "100"],
            &["GETRANGE", "12", "0", "2047"],
            &["EVALSHA", "7a9", "3", "a", "b", "c"],
            &["MGET", "a", "b"],
            &["get", "redquorum:admission"],
            &["EVALSHA", "7a9", "99999999999999999999999"],
        ];
        let whole = packed(&commands);
        let expected = bounds(&whole);
        let asked: Vec<u64> = expected
            .iter()
            .zip(&commands)
            .map(|((_, bytes), words)| bytes - LEAST - packed(&[words]).len() as u64)
            .collect();
        assert_eq!(asked, [0, 0, 2048, 3 * VALUE, 3 * VALUE, RECORD, VALUES * VALUE]);
        let names: Vec<&str> = expected.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["TIME", "SET", "GETRANGE", "EVALSHA", "MGET", "GET", "EVALSHA"]);
        for cut in 0..whole.len() {
            let mut parts = ReplyBounds::default();
            let (first, rest) = whole.split_at(cut);
            parts.follow(first);
            parts.follow(rest);
            let parts: Vec<(String, u64)> =
                parts.awaited.iter().map(|bound| (bound.command.to_string(), bound.bytes)).collect();
            assert_eq!(parts, expected, "cut after {cut}");
        }
    }

    /// Two of five instances that answered everything with as much as was accepted took all of the processor.
    #[test]
    fn all_replies_to_a_write_of_many_locks_come_to_a_few_hundred_kilobytes() {
        let set: &[&str] = &["SET", "a-lock-of-usual-length", "0123456789abcdef0123456789abcdef", "NX", "PX", "10000"];
        let all: u64 = bounds(&packed(&[set; 68])).iter().map(|(_, bytes)| bytes).sum();
        assert!(all < 200 * 1024, "{all}");
    }
}
