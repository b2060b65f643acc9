//! Commands as they go out, in bytes, with what the reply to each may be.
//!
//! The commands of locks are put together here, right behind what waits to be written: as commands of the crate they take a fifth
//! of a busy client's time. All others are the crate's.

use std::time::Duration;

use redis::{Cmd, Pipeline};

use super::reply_limit::ReplyBound;
use crate::instance::{Claim, ClaimWords};

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

    /// A command of so many words, its name included, whose answer has so many bytes.
    pub(super) fn add(&mut self, name: &'static str, words: usize, asks_for: u64, others: impl FnOnce(&mut Words<'_>)) {
        let before = self.bytes.len();
        let mut all = Words(self.bytes);
        all.begin(name, words);
        others(&mut all);
        self.bounds.runs.push((ReplyBound::named(name, self.bytes.len() - before, asks_for), 1));
    }

    /// Such a command for each of `items`.
    pub(super) fn add_each<T>(
        &mut self,
        name: &'static str,
        words: usize,
        asks_for: u64,
        items: impl Iterator<Item = T>,
        others: impl Fn(&mut Words<'_>, T),
    ) {
        let (mut head, mut longest, mut count) = (0..0, 0, 0);
        for item in items {
            let before = self.bytes.len();
            if head.is_empty() {
                Words(self.bytes).begin(name, words);
                head = before..self.bytes.len();
            } else {
                self.bytes.extend_from_within(head.clone());
            }
            others(&mut Words(self.bytes), item);
            longest = longest.max(self.bytes.len() - before);
            count += 1;
        }
        self.bounds.runs.push((ReplyBound::named(name, longest, asks_for), count));
    }
}

/// The words of a command.
pub(super) struct Words<'a>(&'a mut Vec<u8>);

impl Words<'_> {
    fn begin(&mut self, name: &str, words: usize) {
        self.line(b'*', words as u64);
        self.word(name);
    }

    pub(super) fn word(&mut self, word: impl AsRef<[u8]>) -> &mut Self {
        let word = word.as_ref();
        self.line(b'$', word.len() as u64);
        self.encoded(word).encoded(b"\r\n")
    }

    pub(super) fn number(&mut self, number: u64) -> &mut Self {
        self.word(itoa::Buffer::new().format(number))
    }

    /// Words that are encoded already.
    pub(super) fn encoded(&mut self, words: &[u8]) -> &mut Self {
        self.0.extend_from_slice(words);
        self
    }

    /// The token and the key of a claim.
    pub(super) fn token_and_key(&mut self, claim: &Claim) -> &mut Self {
        let ClaimWords { words, value, .. } = words_of(claim);
        self.encoded(words.get(..*value).unwrap_or_default())
    }

    pub(super) fn key(&mut self, claim: &Claim) -> &mut Self {
        let ClaimWords { words, key, value, .. } = words_of(claim);
        self.encoded(words.get(*key..*value).unwrap_or_default())
    }

    pub(super) fn value_and_token(&mut self, claim: &Claim) -> &mut Self {
        let ClaimWords { words, key, value, behind } = words_of(claim);
        self.encoded(words.get(*value..*behind).unwrap_or_default());
        self.encoded(words.get(..*key).unwrap_or_default())
    }

    /// All words of the command that sets the key of a claim, if there is none.
    pub(super) fn key_to_set(&mut self, claim: &Claim) -> &mut Self {
        let ClaimWords { words, key, .. } = words_of(claim);
        self.encoded(words.get(*key..).unwrap_or_default())
    }

    fn line(&mut self, kind: u8, number: u64) {
        self.0.push(kind);
        self.encoded(itoa::Buffer::new().format(number).as_bytes()).encoded(b"\r\n");
    }
}

/// The words of a claim, put together once for all instances.
fn words_of(claim: &Claim) -> &ClaimWords {
    claim.words.get_or_init(|| {
        let mut bytes = Vec::with_capacity(claim.command_size() + 96);
        let mut words = Words(&mut bytes);
        let key = words.number(claim.token.proposed_us()).0.len();
        let value = words.word(claim.resource.key()).0.len();
        let behind = words.word(claim.value.as_bytes()).0.len();
        words.word("NX").word("GET").word("PX").number(millis(claim.ttl));
        ClaimWords { words: bytes, key, value, behind }
    })
}

/// Its form in commands.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
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
    use super::super::reply_limit::VALUE;
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
