//! RESP: the one reader of what instances say. All answers are read in bounded memory.
//!
//! [`Replies`] finds where a reply ends, without decoding it: one that is longer than a mebibyte, or has lists in more than eight lists, ends
//! its connection. A long text where a short one was expected is passed over unread: another program may keep megabytes under the key of
//! a lock. [`Items`] reads a whole reply where it stands; [`value`] makes of it what the crate redis converts further.

use std::fmt;
use std::mem::take;

use redis::{ErrorKind, RedisError, RedisResult, Value, parse_redis_value};

use crate::protocol::Cause;

/// The longest reply, and the longest answer to commands that are sent together.
pub(super) const LONGEST: usize = 1024 * 1024;

/// No server keeps a longer text.
const LONGEST_PASSED_OVER: usize = 512 * 1024 * 1024;

/// The longest line: a number, or what a server says in words.
const LONGEST_LINE: usize = 64 * 1024;

/// The deepest list in lists, and the most elements of a reply. Decoded, each takes ten times what the shortest takes on the way.
const DEEPEST: usize = 8;
const MOST_ELEMENTS: usize = 64 * 1024;

/// So much of what was said is put into words.
const MOST_IN_WORDS: usize = 100;

/// What replies and pushes begin with.
const KINDS: &[u8] = b"+-:$*_,#!(=%~>";

/// What stands for a text that was passed over.
const PASSED_OVER: &[u8] = b"$0\r\n\r\n";

/// An instance says what no answer to its commands is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// A reply was too long.
    TooLong,
    /// It had too many elements.
    TooMany,
    /// It had lists in too many lists.
    TooDeep,
    /// There were more replies than commands.
    Unasked,
    /// Too much was pushed in a second.
    Pushed(usize),
    /// A reply cannot be that to its command: it is the one to another, and so is each that follows.
    Shifted(String),
    /// It is not RESP.
    NoResp(String),
}

impl Broken {
    /// Whether another program answers, and not an instance that says too much.
    pub(super) const fn is_another_protocol(&self) -> bool {
        matches!(self, Self::NoResp(_))
    }

    /// Why there is no connection any more.
    pub(super) fn cause(&self) -> Cause {
        match self {
            Self::NoResp(words) => Cause::OtherProtocol(words.clone()),
            broken => Cause::NotConnected(broken.to_string()),
        }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => write!(f, "it sent a reply longer than {} KiB", LONGEST / 1024),
            Self::TooMany => write!(f, "it sent a reply longer than {MOST_ELEMENTS} elements"),
            Self::TooDeep => f.write_str("it sent a reply of lists in lists that no command has"),
            Self::Unasked => f.write_str("it sent more replies than there were commands"),
            Self::Pushed(most) => write!(f, "it pushed more than {} MiB in a second", most / 1024 / 1024),
            Self::Shifted(words) => write!(f, "its reply is that to another command: {words}"),
            Self::NoResp(words) => write!(f, "it cannot be parsed: {words}"),
        }
    }
}

impl std::error::Error for Broken {}

impl From<Broken> for RedisError {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::NoResp(words) => (ErrorKind::Parse, "it cannot be parsed", words).into(),
            broken => std::io::Error::other(broken).into(),
        }
    }
}

/// How it begins, on one line.
pub(super) fn beginning(said: &[u8]) -> String {
    let text = String::from_utf8_lossy(said.get(..MOST_IN_WORDS).unwrap_or(said)).replace("\r\n", " ");
    let shown = |letter: char| if letter.is_control() { '?' } else { letter };
    text.trim_end().chars().map(shown).collect()
}

/// What the reply to a command may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    Anything,
    /// The answer to a subscription is a push.
    Subscription,
    /// To a `SET` that gives what was there.
    Set,
    Number,
    /// What `TIME` says.
    Time,
    Text,
    List,
    /// Lists whose texts are passed over if they are longer than so much.
    ShortTexts(usize),
    Script,
}

impl Expected {
    /// Of the reply to a command with this name.
    pub(super) fn of(name: &[u8]) -> Self {
        match name {
            b"SUBSCRIBE" => Self::Subscription,
            b"TIME" => Self::Time,
            b"GET" | b"GETRANGE" => Self::Text,
            b"ZRANGE" => Self::List,
            b"MGET" => Self::ShortTexts(LONGEST_VALUE),
            b"SCAN" => Self::ShortTexts(LONGEST_NAME),
            b"PTTL" => Self::Number,
            b"EVALSHA" => Self::Script,
            _ => Self::Anything,
        }
    }

    /// Whether this can be the reply. The server may answer any command with an error.
    pub(super) fn fits(self, reply: &[u8]) -> bool {
        let Some(first) = Items::of(reply).next() else { return false };
        matches!(
            (self, first),
            (_, Item::Error(_))
                | (Self::Anything | Self::Subscription, _)
                | (Self::Set, Item::Nil | Item::Word(b"OK") | Item::Text(_))
                | (Self::Number, Item::Number(_))
                | (Self::Time, Item::List(2))
                | (Self::Text, Item::Nil | Item::Text(_))
                | (Self::List | Self::ShortTexts(_), Item::List(_))
                | (Self::Script, Item::List(_) | Item::Nil | Item::Text(_))
        )
    }

    /// The longest text in it that is read.
    const fn longest_text(self) -> usize {
        match self {
            Self::Set => LONGEST_VALUE,
            Self::ShortTexts(longest) => longest,
            _ => usize::MAX, // it is bounded as a reply
        }
    }
}

/// The longest value that a lock may have: what is longer is another program's.
pub(super) const LONGEST_VALUE: usize = 2048;

/// The longest name of a key that is listed.
const LONGEST_NAME: usize = 8 * 1024;

/// The replies of a connection, one after the other.
#[derive(Debug, Default)]
pub(super) struct Replies {
    /// A reply of which the end has not come, or that was given out last.
    begun: Vec<u8>,
    is_given: bool,
    scan: Scan,
    /// So many bytes of a text are still to be passed over.
    passing: usize,
}

impl Replies {
    /// The next whole reply at the front of `bytes`, which came last, and of what came before; `None` if all of it was taken in.
    ///
    /// # Errors
    /// It is no reply, or one that is too long. Nothing more can be read then.
    pub(super) fn next<'a, 'b: 'a>(
        &'a mut self,
        bytes: &mut &'b [u8],
        expected: Option<Expected>,
    ) -> Result<Option<&'a [u8]>, Broken> {
        let longest_text = expected.map_or(usize::MAX, Expected::longest_text);
        if take(&mut self.is_given) {
            self.begun.clear();
            self.begun.shrink_to(LONGEST_LINE);
        }
        if self.begun.is_empty() && self.passing == 0 {
            if bytes.is_empty() {
                return Ok(None);
            }
            if self.scan.follow(bytes, longest_text)? == Found::Whole {
                let (reply, rest) = bytes.split_at_checked(self.scan.end()).unwrap_or_default();
                *bytes = rest;
                return Ok(Some(reply));
            }
        }
        loop {
            let passed = self.passing.min(bytes.len());
            *bytes = bytes.get(passed..).unwrap_or_default();
            self.passing -= passed;
            if self.passing > 0 {
                return Ok(None);
            }
            let before = self.begun.len();
            self.begun.extend_from_slice(bytes);
            let found = self.scan.follow(&self.begun, longest_text)?;
            let read = match found {
                Found::Part => self.begun.len(),
                Found::Whole => self.scan.end(),
                Found::Long { head, text } => {
                    self.passing = text + 2;
                    self.scan.at + head
                }
            };
            *bytes = bytes.get(read.saturating_sub(before)..).unwrap_or_default();
            match found {
                Found::Part => return Ok(None),
                Found::Whole => {
                    self.begun.truncate(read);
                    self.is_given = true;
                    return Ok(Some(&self.begun));
                }
                Found::Long { .. } => {
                    self.begun.truncate(self.scan.at);
                    self.begun.extend_from_slice(PASSED_OVER);
                }
            }
        }
    }
}

/// How far a reply was followed to its end.
#[derive(Debug, Default)]
struct Scan {
    /// Where the next element begins.
    at: usize,
    elements: usize,
    /// How many elements are still to come, in the list that is read now and in those around it.
    open: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Part,
    Whole,
    /// A text that is to be passed over stands where the next element begins, behind a line of so many bytes.
    Long {
        head: usize,
        text: usize,
    },
}

impl Scan {
    /// Follows a reply that begins with `bytes`, of which more have come.
    fn follow(&mut self, bytes: &[u8], longest_text: usize) -> Result<Found, Broken> {
        let is_push = bytes.first() == Some(&b'>');
        loop {
            let rest = bytes.get(self.at..).unwrap_or_default();
            let Some((kind, line, head)) = head(rest)? else {
                return if bytes.len() > LONGEST { Err(Broken::TooLong) } else { Ok(Found::Part) };
            };
            let (mut size, mut others) = (head, 0);
            match kind {
                b'$' | b'=' | b'!' => {
                    let text = length(line)?;
                    if let Some(text) = text.filter(|text| kind == b'$' && *text > longest_text && !is_push) {
                        let is_kept = text <= LONGEST_PASSED_OVER;
                        return if is_kept { Ok(Found::Long { head, text }) } else { Err(Broken::TooLong) };
                    }
                    size += text.map_or(0, |text| text.saturating_add(2));
                }
                b'*' | b'~' | b'>' => others = length(line)?.unwrap_or(0),
                b'%' => others = length(line)?.unwrap_or(0).saturating_mul(2),
                _ => {}
            }
            if self.at.saturating_add(size) > LONGEST {
                return Err(Broken::TooLong);
            }
            if size > rest.len() {
                return Ok(Found::Part);
            }
            self.at += size;
            self.end_element(others)?;
            if self.open.is_empty() {
                return Ok(Found::Whole);
            }
        }
    }

    /// The end of an element, or of the first line of one that consists of others.
    fn end_element(&mut self, others: usize) -> Result<(), Broken> {
        self.elements = self.elements.saturating_add(1);
        if let Some(open) = self.open.last_mut() {
            *open = open.saturating_sub(1);
        }
        if others > 0 {
            self.open.push(others);
        }
        while self.open.last() == Some(&0) {
            self.open.pop();
        }
        if self.open.len() > DEEPEST {
            return Err(Broken::TooDeep);
        }
        let all = self.open.iter().fold(self.elements, |sum, open| sum.saturating_add(*open));
        if all > MOST_ELEMENTS { Err(Broken::TooMany) } else { Ok(()) }
    }

    /// Where the reply ended; another one begins.
    fn end(&mut self) -> usize {
        self.elements = 0;
        take(&mut self.at)
    }
}

/// The first line of an element: its kind, what is behind that, and its size with its end.
type Head<'a> = (u8, &'a [u8], usize);

/// The first line of an element; `None` if its end has not come.
fn head(bytes: &[u8]) -> Result<Option<Head<'_>>, Broken> {
    let Some((kind, rest)) = bytes.split_first() else { return Ok(None) };
    if !KINDS.contains(kind) {
        return Err(Broken::NoResp(beginning(bytes)));
    }
    let Some(end) = rest.iter().position(|byte| *byte == b'\r') else {
        return if rest.len() > LONGEST_LINE { Err(Broken::TooLong) } else { Ok(None) };
    };
    let (line, behind) = rest.split_at_checked(end).unwrap_or_default();
    match behind {
        [_, b'\n', ..] => Ok(Some((*kind, line, line.len() + 3))),
        [_] => Ok(None),
        _ => Err(Broken::NoResp(beginning(bytes))),
    }
}

/// A length; `None` of nothing.
fn length(line: &[u8]) -> Result<Option<usize>, Broken> {
    match number(line) {
        Some(-1) => Ok(None),
        Some(length) => usize::try_from(length).map(Some).map_err(|_| Broken::NoResp(beginning(line))),
        None if line.len() > 18 && line.iter().all(u8::is_ascii_digit) => Err(Broken::TooLong),
        None => Err(Broken::NoResp(beginning(line))),
    }
}

/// A number in the only form in which servers write it.
pub(super) fn number(digits: &[u8]) -> Option<i64> {
    if let [digit @ b'0'..=b'9'] = digits {
        return Some(i64::from(*digit - b'0'));
    }
    let is_plain = digits.strip_prefix(b"-").unwrap_or(digits).iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| is_plain)?.parse().ok()
}

/// An element of a reply.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Item<'a> {
    Nil,
    /// Such as `OK`.
    Word(&'a [u8]),
    Error(&'a [u8]),
    Number(i64),
    Text(&'a [u8]),
    Double(f64),
    Truth(bool),
    /// So many items follow, or pairs of them.
    List(usize),
    Set(usize),
    Map(usize),
    Push(usize),
}

impl<'a> Item<'a> {
    /// What it says as a text.
    pub(super) const fn text(self) -> Option<&'a [u8]> {
        match self {
            Self::Text(text) | Self::Word(text) => Some(text),
            _ => None,
        }
    }
}

/// The items of a whole reply, from the first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Items<'a>(&'a [u8]);

impl<'a> Items<'a> {
    pub(super) const fn of(reply: &'a [u8]) -> Self {
        Self(reply)
    }

    pub(super) fn next(&mut self) -> Option<Item<'a>> {
        let (kind, line, size) = head(self.0).ok()??;
        let mut rest = self.0.get(size..)?;
        let mut text = || {
            let text;
            (text, rest) = rest.split_at_checked(usize::try_from(number(line)?).ok()?)?;
            rest = rest.strip_prefix(b"\r\n")?;
            Some(text)
        };
        let count = || number(line).and_then(|count| usize::try_from(count).ok());
        let item = match (kind, line) {
            (b'_', b"") | (b'$' | b'*', b"-1") => Item::Nil,
            (b'+' | b'(', word) => Item::Word(word),
            (b'-', error) => Item::Error(error),
            (b'!', _) => Item::Error(text()?),
            (b':', digits) => Item::Number(number(digits)?),
            (b'$', _) => Item::Text(text()?),
            (b'=', _) => Item::Text(text()?.get(4..)?), // its format comes first
            (b',', digits) => Item::Double(std::str::from_utf8(digits).ok()?.parse().ok()?),
            (b'#', b"t" | b"f") => Item::Truth(line == b"t"),
            (b'*', _) => Item::List(count()?),
            (b'~', _) => Item::Set(count()?),
            (b'%', _) => Item::Map(count()?),
            (b'>', _) => Item::Push(count()?),
            _ => return None,
        };
        self.0 = rest;
        Some(item)
    }

    /// The next item with all that is in it.
    pub(super) fn whole(&mut self) -> Option<&'a [u8]> {
        let before = self.0;
        let mut left = 1_usize;
        while left > 0 {
            let inner = match self.next()? {
                Item::List(count) | Item::Set(count) | Item::Push(count) => count,
                Item::Map(count) => count.saturating_mul(2),
                _ => 0,
            };
            left = left.saturating_sub(1).saturating_add(inner);
        }
        before.get(..before.len() - self.0.len())
    }
}

/// A whole reply as the crate reads it.
pub(super) fn value(reply: &[u8]) -> RedisResult<Value> {
    decode(&mut Items::of(reply)).ok_or_else(|| Broken::NoResp(beginning(reply)).into())
}

fn decode(items: &mut Items<'_>) -> Option<Value> {
    let list = |items: &mut Items<'_>, count: usize| (0..count).map(|_| decode(items)).collect::<Option<Vec<_>>>();
    Some(match items.next()? {
        Item::Nil => Value::Nil,
        Item::Word(b"OK") => Value::Okay,
        Item::Word(word) => Value::SimpleString(String::from_utf8_lossy(word).into_owned()),
        Item::Error(text) => parse_redis_value(&[b"-", text, b"\r\n"].concat()).ok()?,
        Item::Number(number) => Value::Int(number),
        Item::Text(text) => Value::BulkString(text.to_vec()),
        Item::Double(number) => Value::Double(number),
        Item::Truth(truth) => Value::Boolean(truth),
        Item::List(count) | Item::Set(count) => Value::Array(list(items, count)?),
        Item::Map(count) => {
            Value::Map((0..count).map(|_| Some((decode(items)?, decode(items)?))).collect::<Option<_>>()?)
        }
        // The answer to a subscription, which says nothing more.
        Item::Push(count) => {
            list(items, count)?;
            Value::Okay
        }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All replies in what was said, in pieces of so many bytes.
    fn read(said: &[u8], piece: usize, expected: Option<Expected>) -> Result<Vec<Vec<u8>>, Broken> {
        let (mut replies, mut all) = (Replies::default(), Vec::new());
        for mut bytes in said.chunks(piece.max(1)) {
            while let Some(reply) = replies.next(&mut bytes, expected)? {
                all.push(reply.to_vec());
            }
            assert!(bytes.is_empty());
            assert!(replies.begun.len() <= LONGEST + piece);
        }
        Ok(all)
    }

    /// One of each kind, nested too.
    const SAID: [&[u8]; 14] = [
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
        b"~2\r\n#t\r\n,1.5\r\n",
        b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\na\r\n",
        b"=7\r\ntxt:abc\r\n",
        b"!5\r\nERR x\r\n",
    ];

    #[test]
    fn each_reply_is_found_however_it_is_cut_and_read_as_the_crate_does() {
        let all = SAID.concat();
        for piece in 1..all.len() {
            assert_eq!(read(&all, piece, None).unwrap(), SAID, "in pieces of {piece}");
        }
        for said in SAID.iter().filter(|said| !b"=~!>".contains(&said[0])) {
            assert_eq!(value(said).unwrap(), parse_redis_value(said).unwrap(), "{said:?}");
        }
        assert_eq!(value(SAID[12]).unwrap(), Value::BulkString(b"abc".to_vec()));
    }

    /// Another program keeps it under the key of a lock.
    #[test]
    fn a_long_text_where_a_short_one_was_expected_is_passed_over() {
        for size in [2048, 2049, 100_000, 3_000_000] {
            let text = [format!("${size}\r\n").into_bytes(), vec![b'x'; size], b"\r\n".to_vec()].concat();
            let said = [&text, &b"*2\r\n:1\r\n"[..], &text, b"+after\r\n"].concat();
            for piece in [1, 7, 4096, said.len()].into_iter().filter(|piece| *piece > 1 || size < 4096) {
                let short = if size > 2048 { PASSED_OVER.to_vec() } else { text.clone() };
                let list = [&b"*2\r\n:1\r\n"[..], &short].concat();
                assert_eq!(read(&said, piece, Some(Expected::Set)).unwrap(), [short, list, b"+after\r\n".to_vec()]);
            }
        }
        let key = "k".repeat(5000);
        let push = format!(">2\r\n$10\r\ninvalidate\r\n*1\r\n$5000\r\n{key}\r\n").into_bytes();
        assert_eq!(read(&push, 4096, Some(Expected::Set)).unwrap(), [push], "a key that has changed is known");
    }

    #[test]
    fn what_is_too_long_too_deep_or_has_no_end_is_given_up() {
        let text = |size: usize| [format!("${size}\r\n").into_bytes(), vec![b'x'; size], b"\r\n".to_vec()].concat();
        let cases = [
            (text(LONGEST - 12), None),
            (text(LONGEST), Some(Broken::TooLong)),
            ([&b"*2\r\n"[..], &text(LONGEST / 2), &text(LONGEST / 2)].concat(), Some(Broken::TooLong)),
            (b"$1000000000000\r\n".to_vec(), Some(Broken::TooLong)),
            (b"$99999999999999999999999\r\n".to_vec(), Some(Broken::TooLong)),
            (b"*1000000000\r\n".to_vec(), Some(Broken::TooMany)),
            (b"%99999999999999999\r\n".to_vec(), Some(Broken::TooMany)),
            (b"*2\r\n:1\r\n".repeat(9), Some(Broken::TooDeep)),
            ([&b"*1\r\n".repeat(8)[..], b":1\r\n"].concat(), None),
            ([&b"*65535\r\n"[..], &b":1\r\n".repeat(65_535)].concat(), None),
            ([&b"+"[..], &[b'x'; 2 * LONGEST_LINE]].concat(), Some(Broken::TooLong)),
        ];
        for (said, broken) in cases {
            for piece in [4096, said.len()] {
                assert_eq!(read(&said, piece, None).err(), broken, "{} bytes", said.len());
            }
        }
        let endless = b"$1000000000000\r\n";
        assert_eq!(read(endless, 99, Some(Expected::Set)).err(), Some(Broken::TooLong), "no caller keeps that");
    }

    #[test]
    fn what_is_not_resp_is_known_by_its_first_byte() {
        for stranger in [&b"HTTP/1.1 400"[..], b"\x15\x03\x03", b"+a\rb", b"$-7\r\n", b":1\r\n?", b"$x\r\n"] {
            assert!(matches!(read(stranger, 99, None), Err(Broken::NoResp(_))), "{stranger:?}");
        }
    }

    #[test]
    fn each_command_has_replies_of_its_own_kind_or_an_error() {
        let kinds =
            [&b"+OK\r\n"[..], b"_\r\n", b"$1\r\nx\r\n", b":1\r\n", b"*2\r\n+1\r\n+2\r\n", b"*0\r\n", b"+PONG\r\n"];
        let fitting: [(Expected, &[usize]); 6] = [
            (Expected::Set, &[0, 1, 2]),
            (Expected::Number, &[3]),
            (Expected::of(b"TIME"), &[4]),
            (Expected::of(b"GET"), &[1, 2]),
            (Expected::of(b"EVALSHA"), &[1, 2, 4, 5]),
            (Expected::of(b"MGET"), &[4, 5]),
        ];
        for (expected, fit) in fitting {
            let fits: Vec<usize> = (0..kinds.len()).filter(|kind| expected.fits(kinds[*kind])).collect();
            assert_eq!(fits, fit, "{expected:?}");
            assert!(expected.fits(b"-ERR no\r\n"));
        }
    }

    /// It took 58 ms for a reply of 4 MiB, of which 200 letters were kept.
    #[test]
    fn no_more_is_put_into_words_than_the_beginning() {
        assert_eq!(beginning(b"*2\r\n$7\r\ngranted\r\n:0\r\n"), "*2 $7 granted :0");
        assert!(beginning(&vec![0xff; LONGEST]).chars().count() <= MOST_IN_WORDS);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

        #[test]
        fn bytes_are_read_alike_however_they_are_cut(bytes: Vec<u8>, picked in prop::collection::vec(0..SAID.len(), 0..6), piece in 1_usize..40) {
            let said = [picked.iter().flat_map(|at| SAID[*at].to_vec()).collect(), bytes].concat();
            let [whole, pieces] = [said.len(), piece].map(|piece| read(&said, piece, None).ok());
            prop_assert_eq!(&whole, &pieces);
            for reply in whole.into_iter().flatten() {
                let _ = (value(&reply), Items::of(&reply).whole());
            }
        }
    }
}
