//! The wire format: commands in, answers out, as RESP2 or RESP3.

use std::io::Write;

/// An answer, or what a server sends by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// `OK`.
    Simple(&'static str),
    /// The words of an error, its code first.
    Error(String),
    /// A whole number.
    Number(i64),
    /// A string.
    Bytes(Vec<u8>),
    /// Nil.
    Nothing,
    /// Several.
    List(Vec<Self>),
    /// Names, with what each has.
    Map(Vec<(&'static str, Self)>),
    /// A text for people, as INFO gives.
    Text(String),
    /// What was not asked for.
    Push(Vec<Self>),
}

impl Answer {
    pub(super) fn bytes(bytes: impl AsRef<[u8]>) -> Self {
        Self::Bytes(bytes.as_ref().to_vec())
    }

    pub(super) fn number(number: u64) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }

    /// Appends it in the connection's version of the protocol.
    pub(super) fn write(&self, out: &mut Vec<u8>, is_resp3: bool) {
        match self {
            Self::Simple(word) => line(out, '+', word),
            Self::Error(text) => line(out, '-', text),
            Self::Number(number) => line(out, ':', number),
            Self::Bytes(bytes) => blob(out, '$', bytes),
            Self::Nothing if is_resp3 => out.extend_from_slice(b"_\r\n"),
            Self::Nothing => out.extend_from_slice(b"$-1\r\n"),
            Self::List(items) => list(out, '*', items, is_resp3),
            Self::Map(fields) => {
                let (kind, size) = if is_resp3 { ('%', fields.len()) } else { ('*', 2 * fields.len()) };
                line(out, kind, size);
                for (name, value) in fields {
                    blob(out, '$', name.as_bytes());
                    value.write(out, is_resp3);
                }
            }
            Self::Text(text) if is_resp3 => blob(out, '=', format!("txt:{text}").as_bytes()),
            Self::Text(text) => blob(out, '$', text.as_bytes()),
            Self::Push(items) => list(out, if is_resp3 { '>' } else { '*' }, items, is_resp3),
        }
    }
}

fn line(out: &mut Vec<u8>, kind: char, text: impl std::fmt::Display) {
    let _ = write!(out, "{kind}{text}\r\n"); // writing to memory does not fail
}

fn blob(out: &mut Vec<u8>, kind: char, bytes: &[u8]) {
    line(out, kind, bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

fn list(out: &mut Vec<u8>, kind: char, items: &[Answer], is_resp3: bool) {
    line(out, kind, items.len());
    items.iter().for_each(|item| item.write(out, is_resp3));
}

/// The beginning of the input.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::testing::simulation) enum Input<'a> {
    /// A whole command, its words, and how many bytes it has.
    Command(Vec<&'a [u8]>, usize),
    /// The beginning of one.
    Unfinished,
    /// Something else.
    NoCommand,
}

/// Reads one command, an array of texts, as all clients send them.
pub(in crate::testing::simulation) fn read(input: &[u8]) -> Input<'_> {
    match words(input) {
        Ok(Some((words, size))) => Input::Command(words, size),
        Ok(None) => Input::Unfinished,
        Err(NoCommand) => Input::NoCommand,
    }
}

struct NoCommand;

/// The words and how many bytes they take; `None` if there are more to come.
type Words<'a> = Option<(Vec<&'a [u8]>, usize)>;

fn words(input: &[u8]) -> Result<Words<'_>, NoCommand> {
    let Some((count, mut at)) = head(input, 0, b'*')? else { return Ok(None) };
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        let Some((size, start)) = head(input, at, b'$')? else { return Ok(None) };
        let end = start + size;
        let Some(word) = input.get(start..end).filter(|_| input.len() >= end + 2) else { return Ok(None) };
        words.push(word);
        at = end + 2;
    }
    Ok(Some((words, at)))
}

/// The number in a line of this kind that begins at `at`, and where the line ends.
fn head(input: &[u8], at: usize, kind: u8) -> Result<Option<(usize, usize)>, NoCommand> {
    let Some(rest) = input.get(at..).filter(|rest| !rest.is_empty()) else { return Ok(None) };
    if rest.first() != Some(&kind) {
        return Err(NoCommand);
    }
    let Some(end) = rest.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
    let digits = rest.get(1..end.saturating_sub(1)).unwrap_or_default();
    number(digits).map(|number| Some((number, at + end + 1))).ok_or(NoCommand)
}

fn number(digits: &[u8]) -> Option<usize> {
    let add = |number: usize, digit: &u8| {
        let digit = digit.is_ascii_digit().then(|| usize::from(digit - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    };
    if digits.is_empty() { None } else { digits.iter().try_fold(0, add) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_read_however_it_is_cut() {
        let whole = b"*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\n*1\r\n$4\r\nPING\r\n";
        let first = 23;
        for end in 0..first {
            assert_eq!(read(&whole[..end]), Input::Unfinished, "after {end}");
        }
        assert_eq!(read(whole), Input::Command(vec![b"GET", b"a\r\nb"], first));
        assert_eq!(read(&whole[first..]), Input::Command(vec![b"PING"], 14));
        for odd in [&b"PING\r\n"[..], b"*\r\n", b"*x\r\n", b"*-1\r\n", b"*99999999999999999999\r\n"] {
            assert_eq!(read(odd), Input::NoCommand, "{}", String::from_utf8_lossy(odd));
        }
    }

    #[test]
    fn an_answer_is_written_in_both_versions() {
        let answer = Answer::Map(vec![("a", Answer::Nothing), ("b", Answer::Text("x".to_owned()))]);
        let written = |is_resp3| {
            let mut out = Vec::new();
            answer.write(&mut out, is_resp3);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(written(true), "%2\r\n$1\r\na\r\n_\r\n$1\r\nb\r\n=5\r\ntxt:x\r\n");
        assert_eq!(written(false), "*4\r\n$1\r\na\r\n$-1\r\n$1\r\nb\r\n$1\r\nx\r\n");
    }
}
