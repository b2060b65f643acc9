//! How long the reply to a command may be.
//!
//! What an instance sends is followed to where its replies begin and end, without reading them, so that none is longer than the answer
//! to the command; a reply is kept until it is whole.

use std::fmt;
use std::time::Duration;

use redis::{Arg, Cmd, Value};

use crate::protocol::Instant;

/// The longest value that a lock may have: what is longer is another program's, and may be megabytes.
pub(super) const MOST_OF_A_VALUE: u64 = 2048;

/// The longest reply to a command without a long answer, besides what it may repeat of the command: an error of
/// a server has a few hundred bytes.
const LEAST: u64 = 2 * 1024;

/// What a value of a lock takes in a reply, with what is said beside it.
pub(super) const VALUE: u64 = MOST_OF_A_VALUE + 64;

/// The most values in the answer of one script: one for each request of a batch.
const VALUES: u64 = 64;

/// The most that is read of the values of leases at once. What is longer is read one by one, and cut.
const WATCHED: u64 = 256 * 1024;

/// The admission record, or what another program wrote over it.
pub(super) const RECORD: u64 = 16 * 1024;

/// What a server says of itself: `commandstats` of one with modules takes 60 KiB.
const INFO: u64 = 128 * 1024;

/// Two names of keys of the longest length.
const NAMES: u64 = 130 * 1024;

/// Some hundred names of keys, of any length: an operator lists them.
const LISTING: u64 = 4 * 1024 * 1024;

/// The kinds of commands of a connection.
const COMMANDS: [&str; 22] = [
    "CLIENT",
    "CONFIG",
    "EVALSHA",
    "GET",
    "GETRANGE",
    "HELLO",
    "INFO",
    "MGET",
    "PING",
    "PTTL",
    "PUBLISH",
    "SCAN",
    "SCRIPT",
    "SELECT",
    "SENTINEL",
    "SET",
    "SUBSCRIBE",
    "TIME",
    "TYPE",
    "ZADD",
    "ZRANGE",
    "ZSCORE",
];

/// The longest push: it names a key, or is a message of another client.
const MAX_PUSH: u64 = 256 * 1024;

/// The most that is pushed in a second: the announcements of thousands of waiters take a tenth of it.
const MAX_PUSHED: u64 = 8 * 1024 * 1024;
const SECOND: Duration = Duration::from_secs(1);

/// The deepest list in a list.
const MAX_DEPTH: usize = 16;

/// The most replies over one connection without a request. A server that is full sends such an error.
const MAX_UNASKED: u32 = 16;

/// What the reply to a command may be at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReplyBound {
    /// The name of the command.
    pub(super) command: &'static str,
    pub(super) bytes: u64,
    /// Decoded, each element takes ten times what the shortest takes on the way.
    pub(super) elements: u64,
}

impl ReplyBound {
    const fn new(command: &'static str, bytes: u64) -> Self {
        Self { command, bytes, elements: 64 + bytes / 64 }
    }

    /// Of the reply to a command that takes so many bytes.
    pub(super) fn of(command: &Cmd, packed: usize) -> Self {
        let mut words = command.args_iter().map(|word| match word {
            Arg::Simple(word) => word,
            _ => &[][..],
        });
        let count = words.len() as u64;
        let name = words.next().unwrap_or_default();
        let known = COMMANDS.into_iter().find(|known| name.eq_ignore_ascii_case(known.as_bytes()));
        let command = known.unwrap_or("another command");
        let asked_for = match command {
            "EVALSHA" => of_script(words.nth(1).map_or(0, number)),
            "SET" => VALUE,
            "GETRANGE" => {
                let [from, to] = [words.nth(1), words.next()].map(|word| word.map_or(0, number));
                to.saturating_sub(from).saturating_add(1).min(LISTING)
            }
            "MGET" => count.saturating_mul(VALUE).min(WATCHED),
            "GET" | "HELLO" | "SENTINEL" => RECORD,
            "INFO" => INFO,
            "ZRANGE" => NAMES,
            "SCAN" => LISTING,
            _ => 0,
        };
        Self::named(command, packed, asked_for)
    }

    /// Of the reply to a command with this name that takes so many bytes, with an answer of so many. It may repeat the command, or
    /// one of its keys.
    pub(super) const fn named(command: &'static str, packed: usize, asked_for: u64) -> Self {
        Self::new(command, LEAST.saturating_add(packed as u64).saturating_add(asked_for))
    }

    /// Whether this can be the reply. If not, it is that to another command, and so would be each that follows.
    pub(super) fn fits(self, reply: &Value) -> bool {
        match (self.command, reply) {
            (_, Value::ServerError(_)) => true,
            ("SET", reply) => matches!(reply, Value::Nil | Value::Okay | Value::BulkString(_)),
            ("ZADD" | "PTTL" | "PUBLISH", reply) => matches!(reply, Value::Int(_)),
            ("TIME", Value::Array(parts)) => parts.len() == 2,
            ("TIME", _) => false,
            ("GET" | "GETRANGE", reply) => matches!(reply, Value::Nil | Value::BulkString(_)),
            ("EVALSHA", reply) => matches!(reply, Value::Array(_) | Value::Nil | Value::BulkString(_)),
            ("MGET" | "SCAN" | "ZRANGE", reply) => matches!(reply, Value::Array(_)),
            _ => true,
        }
    }

    /// Whether its reply is what is under the key of a lock.
    pub(super) fn may_be_a_value(self) -> bool {
        self.command == "SET"
    }
}

/// The answer of a script about so many keys.
pub(super) fn of_script(keys: u64) -> u64 {
    keys.min(VALUES).saturating_mul(VALUE)
}

/// The number that these digits are; what is no digit counts for nothing.
fn number(text: &[u8]) -> u64 {
    let digits = text.iter().filter(|byte| byte.is_ascii_digit());
    digits.fold(0, |number: u64, digit| number.saturating_mul(10).saturating_add(u64::from(digit - b'0')))
}

/// An instance sent more than the answer to its command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TooMuch {
    /// A reply to a command was longer than so many bytes.
    Bytes(&'static str, u64),
    /// It had more elements.
    Elements(&'static str, u64),
    /// It had lists in lists.
    Depth,
    /// More replies than commands.
    Unasked,
    /// More was pushed in a second than is taken in.
    Pushed,
}

impl TooMuch {
    /// It may be no fault of the instance: another program keeps something long under a key that was read whole.
    pub(super) fn may_be_a_value(self) -> bool {
        matches!(self, Self::Bytes("MGET", _))
    }
}

impl fmt::Display for TooMuch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(command, most) => write!(f, "it sent a reply longer than {most} bytes to {command}"),
            Self::Elements(command, most) => write!(f, "it sent a reply longer than {most} elements to {command}"),
            Self::Depth => f.write_str("it sent a reply of lists in lists that no command has"),
            Self::Unasked => f.write_str("it sent more replies than there were commands"),
            Self::Pushed => write!(f, "it pushed more than {} MiB in a second", MAX_PUSHED / 1024 / 1024),
        }
    }
}

impl std::error::Error for TooMuch {}

/// How far bytes were followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Followed {
    pub(super) bytes: usize,
    /// Whether a reply ends with them.
    pub(super) is_whole: bool,
    /// Whether the reply is longer than a value of a lock, and so is not read.
    pub(super) is_passed_over: bool,
}

/// Where in a reply the bytes are that came last.
#[derive(Debug, Default)]
pub(super) struct ReplyLimit {
    /// What the present reply may be; `None` between two.
    bound: Option<ReplyBound>,
    /// The bytes, and the elements, of the present reply so far.
    size: u64,
    elements: u64,
    /// How many elements are still to come, in the list that is read now and in those around it.
    awaited: Vec<u64>,
    /// How many bytes of a text of known length are still to come, its end of line included.
    body: u64,
    line: Line,
    is_passed_over: bool,
    is_push: bool,
    is_unasked: bool,
    unasked: u32,
    pushed: Pushed,
}

/// What was pushed lately.
#[derive(Debug, Default)]
struct Pushed {
    since: Instant,
    bytes: u64,
}

/// A line of which the end has not come: its first byte, and the number behind it.
#[derive(Debug, Default)]
struct Line {
    first: Option<u8>,
    number: u64,
    is_negative: bool,
    /// Whether the last byte was the first of two that end it.
    may_end: bool,
}

impl ReplyLimit {
    /// Follows the bytes that came next to the end of a reply, or to their own. `asked` is what the next reply may be; `None`
    /// if none is awaited.
    pub(super) fn follow(
        &mut self,
        bytes: &[u8],
        asked: Option<ReplyBound>,
        now: impl Fn() -> Instant,
    ) -> Result<Followed, TooMuch> {
        let mut left = bytes;
        while let Some(first) = left.first() {
            let bound = match self.bound {
                Some(bound) => bound,
                None => self.begin(*first, asked),
            };
            let step = if self.body > 0 { self.follow_body(left) } else { self.follow_line(left) };
            // What another program stores under a lock's key may be megabytes; no command reads its beginning alone.
            self.is_passed_over |= bound.may_be_a_value() && self.awaited.is_empty() && self.body > MOST_OF_A_VALUE + 2;
            left = left.get(step..).unwrap_or_default();
            self.size += step as u64;
            if !self.is_passed_over && self.size.saturating_add(self.body) > bound.bytes {
                return Err(TooMuch::Bytes(bound.command, bound.bytes));
            }
            let awaited = self.awaited.iter().fold(0_u64, |sum, awaited| sum.saturating_add(*awaited));
            if self.elements.saturating_add(awaited) > bound.elements {
                return Err(TooMuch::Elements(bound.command, bound.elements));
            }
            if self.awaited.len() > MAX_DEPTH {
                return Err(TooMuch::Depth);
            }
            if self.is_between() {
                let is_passed_over = std::mem::take(&mut self.is_passed_over);
                self.end(&now)?;
                return Ok(Followed { bytes: bytes.len() - left.len(), is_whole: true, is_passed_over });
            }
        }
        Ok(Followed { bytes: bytes.len(), is_whole: false, is_passed_over: self.is_passed_over })
    }

    fn begin(&mut self, first: u8, asked: Option<ReplyBound>) -> ReplyBound {
        self.is_push = first == b'>';
        self.is_unasked = !self.is_push && asked.is_none();
        let bound = match asked {
            _ if self.is_push => ReplyBound::new("nothing", MAX_PUSH),
            Some(bound) => bound,
            None => ReplyBound::new("nothing", LEAST),
        };
        self.bound = Some(bound);
        bound
    }

    fn end(&mut self, now: &impl Fn() -> Instant) -> Result<(), TooMuch> {
        let size = std::mem::take(&mut self.size);
        (self.elements, self.bound) = (0, None);
        if self.is_push {
            return self.pushed.note(size, now);
        }
        self.unasked += u32::from(self.is_unasked);
        if self.unasked > MAX_UNASKED { Err(TooMuch::Unasked) } else { Ok(()) }
    }

    fn follow_body(&mut self, bytes: &[u8]) -> usize {
        let step = bytes.len().min(usize::try_from(self.body).unwrap_or(usize::MAX));
        self.body -= step as u64;
        if self.body == 0 {
            self.end_element(0);
        }
        step
    }

    fn follow_line(&mut self, bytes: &[u8]) -> usize {
        let is_end = |at: &usize| {
            let before = at.checked_sub(1).map_or(self.line.may_end, |before| bytes.get(before) == Some(&b'\r'));
            before && bytes.get(*at) == Some(&b'\n')
        };
        let end = (0..bytes.len()).find(is_end);
        let step = end.map_or(bytes.len(), |end| end + 1);
        self.line.may_end = bytes.get(..step).and_then(<[u8]>::last) == Some(&b'\r');
        let mut line = bytes.iter().take(step);
        if self.line.first.is_none() {
            self.line.first = line.next().copied();
        }
        if self.line.tells_a_length() {
            line.for_each(|byte| self.line.take(*byte));
        }
        if end.is_some() {
            self.end_line();
        }
        step
    }

    /// Whether the next byte begins a reply.
    pub(super) fn is_between(&self) -> bool {
        self.awaited.is_empty() && self.body == 0 && self.line.first.is_none()
    }

    fn end_line(&mut self) {
        let Line { first, number, is_negative, .. } = std::mem::take(&mut self.line);
        match first {
            // Its length, then as many bytes and the end of a line; nothing where it is negative.
            Some(b'$' | b'=' | b'!') if !is_negative => self.body = number.saturating_add(2),
            Some(b'*' | b'~' | b'>') if !is_negative => self.end_element(number),
            Some(b'%') => self.end_element(number.saturating_mul(2)),
            // Attributes of an element that follows.
            Some(b'|') => self.end_element(number.saturating_mul(2).saturating_add(1)),
            _ => self.end_element(0),
        }
    }

    /// The end of an element, or of the head of one that consists of others.
    fn end_element(&mut self, others: u64) {
        self.elements += 1;
        if let Some(awaited) = self.awaited.last_mut() {
            *awaited = awaited.saturating_sub(1);
        }
        if others > 0 {
            self.awaited.push(others);
        }
        while self.awaited.last() == Some(&0) {
            self.awaited.pop();
        }
    }
}

impl Pushed {
    /// The clock is looked at only where there is much.
    fn note(&mut self, size: u64, now: &impl Fn() -> Instant) -> Result<(), TooMuch> {
        self.bytes = self.bytes.saturating_add(size);
        if self.bytes <= MAX_PUSHED {
            return Ok(());
        }
        let now = now();
        if now.saturating_since(self.since) < SECOND {
            return Err(TooMuch::Pushed);
        }
        *self = Self { since: now, bytes: size };
        Ok(())
    }
}

impl Line {
    /// Most lines are numbers or words that are over with the line.
    const fn tells_a_length(&self) -> bool {
        matches!(self.first, Some(b'$' | b'=' | b'!' | b'*' | b'~' | b'>' | b'%' | b'|'))
    }

    const fn take(&mut self, byte: u8) {
        match byte {
            b'0'..=b'9' => self.number = self.number.saturating_mul(10).saturating_add((byte - b'0') as u64),
            b'-' => self.is_negative = true,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    /// One of each kind, nested too.
    const REPLIES: [&[u8]; 13] = [
        b"+OK\r\n",
        b"+one\ntwo\r\n",
        b"-ERR 12 - no\r\n",
        b":1700000000000\r\n",
        b"$5\r\nab\r\nc\r\n",
        b"$-1\r\n",
        b"*0\r\n",
        b"*-1\r\n",
        b"*3\r\n$2\r\nab\r\n*1\r\n:1\r\n_\r\n",
        b"%2\r\n+a\r\n:1\r\n+b\r\n*2\r\n:1\r\n:2\r\n",
        b"|1\r\n+ttl\r\n:3600\r\n+value\r\n",
        b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\na\r\n",
        b"=7\r\ntxt:abc\r\n",
    ];

    const fn no_clock() -> Instant {
        Instant::ZERO
    }

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
        let commands: [(&[&str], &str, u64); 12] = [
            (&["TIME"], "TIME", 0),
            (&["SET", "a", "", "NX", "GET", "PX", "100"], "SET", VALUE),
            (&["GETRANGE", "12", "0", "2047"], "GETRANGE", 2048),
            (&["EVALSHA", "7a9", "3", "a", "b", "c"], "EVALSHA", 3 * VALUE),
            (&["MGET", "a", "b"], "MGET", 3 * VALUE),
            (&["get", "redquorum:admission"], "GET", RECORD),
            (&["HELLO", "3"], "HELLO", RECORD),
            (&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "m"], "SENTINEL", RECORD),
            (&["INFO", "everything"], "INFO", INFO),
            (&["ZRANGE", "redquorum:fence", "0", "1"], "ZRANGE", NAMES),
            (&["SCAN", "0"], "SCAN", LISTING),
            (&["EVALSHA", "7a9", "99999999999999999999999"], "EVALSHA", VALUES * VALUE),
        ];
        for (words, name, asked_for) in commands {
            let bound = bound(words);
            assert_eq!(bound.command, name);
            assert_eq!(bound.bytes - LEAST - command(words).get_packed_command().len() as u64, asked_for, "{words:?}");
        }
    }

    #[test]
    fn each_command_has_replies_of_its_own_kind_or_an_error() {
        let said = |reply: &[u8]| redis::parse_redis_value(reply).unwrap();
        let kinds =
            [&b"+OK\r\n"[..], b"_\r\n", b"$1\r\nx\r\n", b":1\r\n", b"*2\r\n+1\r\n+2\r\n", b"*0\r\n", b"+PONG\r\n"];
        let fitting: [(&str, &[usize]); 7] = [
            ("SET", &[0, 1, 2]),
            ("ZADD", &[3]),
            ("TIME", &[4]),
            ("GET", &[1, 2]),
            ("EVALSHA", &[1, 2, 4, 5]),
            ("PTTL", &[3]),
            ("MGET", &[4, 5]),
        ];
        for (name, fit) in fitting {
            let asked = bound(&[name]);
            let fits: Vec<usize> = (0..kinds.len()).filter(|kind| asked.fits(&said(kinds[*kind]))).collect();
            assert_eq!(fits, fit, "{name}");
            assert!(asked.fits(&said(b"-ERR no\r\n")));
        }
    }

    /// Two of five instances that answered everything with as much as was accepted took all of the processor.
    #[test]
    fn all_replies_to_a_write_of_many_locks_come_to_a_few_hundred_kilobytes() {
        let set: &[&str] =
            &["SET", "a-lock-of-usual-length", "0123456789abcdef0123456789abcdef", "NX", "GET", "PX", "10000"];
        assert!(131 * bound(set).bytes < 600 * 1024);
    }

    /// A connection over which commands were sent.
    struct Asked(ReplyLimit, VecDeque<ReplyBound>);

    impl Asked {
        fn follow(&mut self, mut bytes: &[u8], now: impl Fn() -> Instant) -> Result<(), TooMuch> {
            while !bytes.is_empty() {
                let Followed { bytes: count, is_whole, .. } = self.0.follow(bytes, self.1.front().copied(), &now)?;
                if is_whole && !self.0.is_push {
                    self.1.pop_front();
                }
                bytes = &bytes[count..];
            }
            Ok(())
        }
    }

    /// Commands of which each may be answered with two kilobytes.
    fn asked(commands: usize) -> Asked {
        Asked(ReplyLimit::default(), (0..commands).map(|_| bound(&["TIME"])).collect())
    }

    #[test]
    fn every_reply_is_followed_to_its_end_however_it_is_cut() {
        for reply in REPLIES {
            for cut in 0..=reply.len() {
                let mut limit = asked(1);
                let (first, rest) = reply.split_at(cut);
                limit.follow(first, no_clock).unwrap();
                assert_eq!(limit.0.is_between(), cut == 0 || cut == reply.len(), "{reply:?} after {cut}");
                limit.follow(rest, no_clock).unwrap();
                assert!(limit.0.is_between() && limit.0.size == 0, "{reply:?}");
                assert_eq!(limit.1.is_empty(), !reply.starts_with(b">"), "{reply:?}");
                assert!(redis::parse_redis_value(reply).is_ok(), "{reply:?}");
            }
        }
    }

    #[test]
    fn each_reply_may_be_as_long_as_the_answer_to_its_own_command() {
        let text = |length: usize| format!("${length}\r\n{}\r\n", "x".repeat(length)).into_bytes();
        let both = || {
            let mut limit = asked(1);
            limit.1.push_back(bound(&["GETRANGE", "a", "0", "8191"]));
            limit
        };
        assert_eq!(both().follow(&[text(2000), text(8192)].concat(), no_clock), Ok(()));
        let too_much = both().follow(&[text(8192), text(8192)].concat(), no_clock);
        assert!(matches!(too_much, Err(TooMuch::Bytes(command, _)) if command == "TIME"));
        let too_much = both().follow(&[text(2000), text(16_384)].concat(), no_clock);
        assert!(matches!(too_much, Err(TooMuch::Bytes(command, _)) if command == "GETRANGE"));
        assert!(too_much.unwrap_err().to_string().ends_with("bytes to GETRANGE"));
    }

    #[test]
    fn what_is_pushed_is_bounded_in_a_second_and_not_in_all() {
        let one = format!(">2\r\n$10\r\ninvalidate\r\n*1\r\n$65536\r\n{}\r\n", "x".repeat(65_536));
        let flood = |each_ms: u64| {
            let mut limit = asked(0);
            let mut push = |count: u64| limit.follow(one.as_bytes(), || Instant::from_millis(10_000 + count * each_ms));
            (0..1_000).map(&mut push).find(Result::is_err).unwrap_or(Ok(()))
        };
        assert_eq!((flood(10), flood(1)), (Ok(()), Err(TooMuch::Pushed)));
    }

    #[test]
    fn more_replies_than_commands_and_lists_in_lists_are_given_up() {
        assert_eq!(asked(100).follow(&b":1\r\n".repeat(100), no_clock), Ok(()));
        assert_eq!(asked(100).follow(&b":1\r\n".repeat(116), no_clock), Ok(()));
        assert_eq!(asked(100).follow(&b":1\r\n".repeat(117), no_clock), Err(TooMuch::Unasked));
        assert_eq!(asked(1).follow(&b"*1\r\n".repeat(16), no_clock), Ok(()));
        assert_eq!(asked(1).follow(&b"*1\r\n".repeat(17), no_clock), Err(TooMuch::Depth));
    }

    #[test]
    fn what_never_ends_is_given_up() {
        let endless: [(&[u8], &[u8]); 7] = [
            (b"$1000000000000\r\n", b""),
            (b"$99999999999999999999999\r\n", b""),
            (b"*1000000000\r\n", b""),
            (b"+", &[b'x'; 4096]),
            (b"", b"*1\r\n"),
            (b"", b"*2\r\n:1\r\n"),
            (b"%99999999999999999999\r\n", b""),
        ];
        for (head, more) in endless {
            let mut limit = asked(1);
            let mut end = limit.follow(head, no_clock);
            let mut kept = head.len() as u64;
            while end.is_ok() && kept < 16 * 1024 {
                end = limit.follow(more, no_clock);
                kept += more.len().max(1) as u64;
            }
            assert!(end.is_err(), "{head:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_fail_but_by_their_length(bytes: Vec<u8>, cut in 0_usize..64, commands in 0_usize..4) {
            let (mut whole, mut parts) = (asked(commands), asked(commands));
            let end = whole.follow(&bytes, no_clock);
            let (first, rest) = bytes.split_at(cut.min(bytes.len()));
            let in_parts = parts.follow(first, no_clock).and_then(|()| parts.follow(rest, no_clock));
            prop_assert_eq!(end, in_parts);
        }
    }
}
