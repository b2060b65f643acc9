//! Follows where the replies of an instance begin and end, without reading them, so that none grows
//! without end. Whoever decodes them keeps a reply until it is whole.

use std::fmt;

/// The longest reply, or push, in bytes. The longest that a script gives names a few values of a
/// kilobyte; a check of many keys returns some hundred, and what other programs keep under the keys of
/// locks may be longer.
const MAX_REPLY: u64 = 4 * 1024 * 1024;

/// The most elements in a reply: decoded, each takes ten times what the shortest takes on the way.
const MAX_ELEMENTS: u64 = 128 * 1024;

/// A reply was longer than any that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReplyTooLong;

impl fmt::Display for ReplyTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it sent a reply longer than {} MiB", MAX_REPLY / 1024 / 1024)
    }
}

impl std::error::Error for ReplyTooLong {}

/// Where in a reply the bytes are that came last.
#[derive(Debug, Default)]
pub(super) struct ReplyLimit {
    /// The bytes, and the elements, of the present reply so far.
    size: u64,
    elements: u64,
    /// How many elements are still to come.
    awaited: u64,
    /// How many bytes of a text of known length are still to come, its end of line included.
    body: u64,
    line: Line,
}

/// A line of which the end has not come: its first byte, and the number behind it.
#[derive(Debug, Default)]
struct Line {
    first: Option<u8>,
    number: u64,
    is_negative: bool,
}

impl ReplyLimit {
    /// Follows the bytes that came next.
    pub(super) fn follow(&mut self, mut bytes: &[u8]) -> Result<(), ReplyTooLong> {
        while !bytes.is_empty() {
            let step = if self.body > 0 { self.follow_body(bytes) } else { self.follow_line(bytes) };
            self.size += step as u64;
            if self.size.saturating_add(self.body) > MAX_REPLY
                || self.elements.saturating_add(self.awaited) > MAX_ELEMENTS
            {
                return Err(ReplyTooLong);
            }
            if self.is_between() {
                (self.size, self.elements) = (0, 0);
            }
            bytes = bytes.get(step..).unwrap_or_default();
        }
        Ok(())
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
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let step = end.map_or(bytes.len(), |end| end + 1);
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

    fn is_between(&self) -> bool {
        self.awaited == 0 && self.body == 0 && self.line.first.is_none()
    }

    fn end_line(&mut self) {
        let Line { first, number, is_negative } = std::mem::take(&mut self.line);
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
        self.awaited = self.awaited.saturating_sub(1).saturating_add(others);
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
    use super::*;
    use proptest::prelude::*;

    /// One of each kind, nested too.
    const REPLIES: [&[u8]; 12] = [
        b"+OK\r\n",
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

    #[test]
    fn every_reply_is_followed_to_its_end_however_it_is_cut() {
        for reply in REPLIES {
            for cut in 0..=reply.len() {
                let mut limit = ReplyLimit::default();
                let (first, rest) = reply.split_at(cut);
                limit.follow(first).unwrap();
                assert_eq!(limit.is_between(), cut == 0 || cut == reply.len(), "{reply:?} after {cut}");
                limit.follow(rest).unwrap();
                assert!(limit.is_between() && limit.size == 0, "{reply:?}");
            }
        }
    }

    #[test]
    fn a_flood_of_short_replies_is_none_that_is_long() {
        let mut limit = ReplyLimit::default();
        for _ in 0..1_000_000 {
            assert_eq!(limit.follow(REPLIES[10]), Ok(()));
        }
    }

    #[test]
    fn what_never_ends_is_given_up() {
        let endless: [(&[u8], &[u8]); 6] = [
            (b"$1000000000000\r\n", b""),
            (b"$99999999999999999999999\r\n", b""),
            (b"*1000000000\r\n", b""),
            (b"+", &[b'x'; 4096]),
            (b"", b"*1\r\n"),
            (b"%99999999999999999999\r\n", b""),
        ];
        for (head, more) in endless {
            let mut limit = ReplyLimit::default();
            let mut end = limit.follow(head);
            let mut kept = head.len() as u64;
            while end.is_ok() && kept < 2 * MAX_REPLY {
                end = limit.follow(more);
                kept += more.len().max(1) as u64;
            }
            assert_eq!(end, Err(ReplyTooLong), "{head:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_fail_but_by_their_length(bytes: Vec<u8>, cut in 0_usize..64) {
            let (mut whole, mut parts) = (ReplyLimit::default(), ReplyLimit::default());
            let end = whole.follow(&bytes);
            let (first, rest) = bytes.split_at(cut.min(bytes.len()));
            let in_parts = parts.follow(first).and_then(|()| parts.follow(rest));
            prop_assert_eq!(end, in_parts);
        }
    }
}
