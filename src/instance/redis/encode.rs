//! Commands as they go out, in bytes, with what the reply to each may be.
//!
//! The commands of locks are put together here, right behind what waits to be written: as commands of the crate they take a fifth
//! of a busy client's time. All others are the crate's.

use redis::{Cmd, Pipeline};

use super::reply_bound::ReplyBound;

/// What the replies to commands may be that are sent together.
#[derive(Debug, Default)]
pub(super) struct Bounds {
    /// Of so many commands, one after the other.
    runs: Vec<(ReplyBound, usize)>,
}

impl Bounds {
    /// Of how many commands.
    pub(super) fn len(&self) -> usize {
        self.runs.iter().map(|(_, count)| count).sum()
    }

    /// Of the reply behind so many others.
    pub(super) fn get(&self, mut at: usize) -> Option<ReplyBound> {
        for (bound, count) in &self.runs {
            match at.checked_sub(*count) {
                None => return Some(*bound),
                Some(behind) => at = behind,
            }
        }
        None
    }
}

/// Appends commands to others.
pub(crate) struct Encoder<'a> {
    bytes: &'a mut Vec<u8>,
    bounds: Bounds,
}

impl<'a> Encoder<'a> {
    pub(crate) const fn new(bytes: &'a mut Vec<u8>) -> Self {
        Self { bytes, bounds: Bounds { runs: Vec::new() } }
    }

    /// What the replies may be.
    pub(super) fn end(self) -> Bounds {
        self.bounds
    }

    /// A command of so many words, its name included, that asks for so many bytes.
    pub(super) fn add(&mut self, name: &str, words: usize, asks_for: u64, others: impl FnOnce(&mut Words<'_>)) {
        let size = self.command(name, words, others);
        self.bounds.runs.push((ReplyBound::named(name, size, asks_for), 1));
    }

    /// Such a command for each of `items`.
    pub(super) fn add_each<T>(
        &mut self,
        name: &str,
        words: usize,
        asks_for: u64,
        items: impl Iterator<Item = T>,
        others: impl Fn(&mut Words<'_>, T),
    ) {
        let (mut longest, mut count) = (0, 0);
        for item in items {
            longest = longest.max(self.command(name, words, |words| others(words, item)));
            count += 1;
        }
        self.bounds.runs.push((ReplyBound::named(name, longest, asks_for), count));
    }

    /// Gives how many bytes it takes.
    fn command(&mut self, name: &str, words: usize, others: impl FnOnce(&mut Words<'_>)) -> usize {
        let before = self.bytes.len();
        let mut all = Words(self.bytes);
        all.line(b'*', words as u64);
        all.word(name);
        others(&mut all);
        self.bytes.len() - before
    }
}

/// The words of a command.
pub(super) struct Words<'a>(&'a mut Vec<u8>);

impl Words<'_> {
    pub(super) fn word(&mut self, word: impl AsRef<[u8]>) -> &mut Self {
        let word = word.as_ref();
        self.line(b'$', word.len() as u64);
        self.0.extend_from_slice(word);
        self.0.extend_from_slice(b"\r\n");
        self
    }

    pub(super) fn number(&mut self, number: u64) -> &mut Self {
        let mut room = [0; MOST_DIGITS];
        self.word(digits(number, &mut room))
    }

    fn line(&mut self, kind: u8, number: u64) {
        let mut room = [0; MOST_DIGITS];
        self.0.push(kind);
        self.0.extend_from_slice(digits(number, &mut room));
        self.0.extend_from_slice(b"\r\n");
    }
}

/// The most that a number has.
const MOST_DIGITS: usize = 20;

fn digits(mut number: u64, room: &mut [u8; MOST_DIGITS]) -> &[u8] {
    let mut first = MOST_DIGITS;
    for digit in room.iter_mut().rev() {
        *digit = b"0123456789".get((number % 10) as usize).copied().unwrap_or_default();
        first -= 1;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    room.get(first..).unwrap_or_default()
}

/// Appends a command of the crate; returns what the reply to it may be.
pub(super) fn encode(command: &Cmd, bytes: &mut Vec<u8>) -> ReplyBound {
    let before = bytes.len();
    command.write_packed_command(bytes);
    ReplyBound::of(command, bytes.len() - before)
}

/// Appends several.
pub(super) fn encode_all(commands: &Pipeline, bytes: &mut Vec<u8>) -> Bounds {
    Bounds { runs: commands.cmd_iter().map(|command| (encode(command, bytes), 1)).collect() }
}

#[cfg(test)]
mod tests {
    use super::super::reply_bound::VALUE;
    use super::*;

    /// The crate's tests vouch for its own.
    #[test]
    fn a_command_is_encoded_as_the_crate_does_and_its_reply_bounded_alike() {
        let (mut bytes, mut of_the_crate) = (b"before".to_vec(), redis::pipe());
        let mut commands = Encoder::new(&mut bytes);
        for number in [0, 7, 10, 99, 1_000_000, u64::MAX] {
            commands.add("ZADD", 3, 0, |words| _ = words.word("a b\r\n").number(number));
            of_the_crate.cmd("ZADD").arg("a b\r\n").arg(number);
        }
        let keys = ["", "a", "0123456789ab"];
        commands.add_each("SET", 2, VALUE, keys.iter(), |words, key| _ = words.word(key));
        keys.iter().for_each(|key| _ = of_the_crate.cmd("SET").arg(key));
        let bounds = commands.end();
        let mut expected = b"before".to_vec();
        let each = encode_all(&of_the_crate, &mut expected);
        assert_eq!(bytes, expected);
        assert_eq!((bounds.len(), each.len(), bounds.get(9)), (9, 9, None));
        assert!((0..6).chain([8]).all(|at| bounds.get(at) == each.get(at)));
        assert_eq!(bounds.get(6), bounds.get(8), "as for the longest of them");
    }
}
