//! The commands on data that the library sends and that its scripts call, with their options, as Redis carries them out.

use std::borrow::Cow;
use std::ops::Range;
use std::time::Duration;

use super::resp::Answer;
use crate::protocol::Instant;
use crate::testing::mirror::store::{Store, WrongType};

type Words<'a> = &'a [&'a [u8]];

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
const SYNTAX: &str = "ERR syntax error";
const NO_INTEGER: &str = "ERR value is not an integer or out of range";
const NO_FLOAT: &str = "ERR value is not a valid float";
const NO_LIMIT: &str = "ERR min or max is not a float";
const NO_TIME: &str = "ERR invalid expire time in 'set' command";

/// What a command ends with: its answer, or the words of an error.
type Outcome = Result<Answer, &'static str>;

impl From<WrongType> for &'static str {
    fn from(_: WrongType) -> Self {
        WRONG_TYPE
    }
}

/// Whether a server that takes no writes refuses it.
pub(super) fn is_write(name: &[u8]) -> bool {
    matches!(&*upper(name), b"SET" | b"PEXPIRE" | b"DEL" | b"ZADD" | b"ZREM" | b"ZREMRANGEBYRANK")
}

/// Carries a command out when the wall clock reads `wall_us`; `None` if it is none that is known. What has expired by then is not
/// in the store any more.
pub(super) fn carry_out(store: &mut Store, words: Words<'_>, wall_us: u64) -> Option<Answer> {
    let now = Instant::from_nanos(wall_us.saturating_mul(1_000));
    let (name, args) = words.split_first()?;
    let outcome = match (&*upper(name), args) {
        (b"TIME", []) => {
            let part = |number: u64| Answer::bytes(number.to_string());
            Ok(Answer::List(vec![part(wall_us / 1_000_000), part(wall_us % 1_000_000)]))
        }
        (b"GET", [key]) => get(store, key).map(|value| value.map_or(Answer::Nothing, Answer::bytes)),
        (b"GETRANGE", [key, b"0", last]) => beginning(store, key, last),
        (b"MGET", [_, ..]) => {
            let value = |key: &&[u8]| store.get(key).map_or(Answer::Nothing, Answer::bytes);
            Ok(Answer::List(args.iter().map(value).collect()))
        }
        (b"SET", [key, value, options @ ..]) => set(store, (key, value), options, now),
        (b"PEXPIRE", [key, ttl]) => expire(store, (key, ttl), false, now),
        (b"PEXPIRE", [key, ttl, option]) if option.eq_ignore_ascii_case(b"GT") => expire(store, (key, ttl), true, now),
        (b"PTTL", [key]) => Ok(Answer::Number(match store.end(key) {
            None => -2,
            Some(None) => -1,
            Some(Some(_)) => store.ttl(key, now).map_or(0, |left| whole(left.as_millis())),
        })),
        (b"DEL", [_, ..]) => Ok(count(args.iter().filter(|key| store.remove(key)).count())),
        (b"ZSCORE", [key, member]) => {
            store.score(key, member).map_err(Into::into).map(|it| it.map_or(Answer::Nothing, score))
        }
        (b"ZADD", [key, rest @ ..]) => add(store, key, rest),
        (b"ZREM", [key, members @ ..]) if !members.is_empty() => store.score(key, b"").map_err(Into::into).map(|_| {
            let removed = members.iter().filter(|member| store.remove_score(key, member));
            count(removed.count())
        }),
        (b"ZCOUNT", [key, least, most]) => in_scores(store, key, (least, most)).map(|members| count(members.len())),
        (b"ZRANGE", [key, from, to, options @ ..]) => range(store, key, (from, to), options),
        (b"ZREMRANGEBYRANK", [key, from, to]) => {
            let removed = in_ranks(store, key, (from, to));
            removed.map(|all| all.iter().map(|(member, _)| member.to_vec()).collect::<Vec<_>>()).map(|removed| {
                removed.iter().for_each(|member| _ = store.remove_score(key, member));
                count(removed.len())
            })
        }
        _ => return None,
    };
    Some(outcome.unwrap_or_else(|text| Answer::Error(text.to_owned())))
}

/// A word in capital letters: most are already, and what is longer is no name.
pub(super) fn upper(word: &[u8]) -> Cow<'_, [u8]> {
    const LONGEST_NAME: usize = 16;
    let is_name = word.len() <= LONGEST_NAME && word.iter().any(u8::is_ascii_lowercase);
    if is_name { word.to_ascii_uppercase().into() } else { word.into() }
}

fn whole(number: u128) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn count(number: usize) -> Answer {
    Answer::Number(whole(number as u128))
}

fn score(score: f64) -> Answer {
    Answer::bytes(score.to_string())
}

/// A whole number in its only form.
fn integer(word: &[u8]) -> Result<i64, &'static str> {
    let number = std::str::from_utf8(word).ok().and_then(|text| text.parse::<i64>().ok());
    number.filter(|number| number.to_string().as_bytes() == word).ok_or(NO_INTEGER)
}

/// Any number. One that is too large is none.
fn float(word: &[u8]) -> Option<f64> {
    let number: f64 = std::str::from_utf8(word).ok()?.parse().ok()?;
    let is_named = word.iter().any(u8::is_ascii_alphabetic) && !word.iter().any(u8::is_ascii_digit);
    (!number.is_nan() && (number.is_finite() || is_named)).then_some(number)
}

fn get<'a>(store: &'a Store, key: &[u8]) -> Result<Option<&'a [u8]>, &'static str> {
    match store.get(key) {
        None if store.contains(key) => Err(WRONG_TYPE),
        value => Ok(value),
    }
}

fn beginning(store: &Store, key: &[u8], last: &[u8]) -> Outcome {
    let size = usize::try_from(integer(last)?).map_or(0, |last| last.saturating_add(1));
    let value = get(store, key)?.unwrap_or_default();
    Ok(Answer::bytes(value.get(..size).unwrap_or(value)))
}

fn set(store: &mut Store, (key, value): (&[u8], &[u8]), options: Words<'_>, now: Instant) -> Outcome {
    let (mut is_new, mut is_old, mut gets, mut end) = (false, false, false, None);
    let mut options = options.iter();
    while let Some(option) = options.next() {
        match &*upper(option) {
            b"NX" => is_new = true,
            b"XX" => is_old = true,
            b"GET" => gets = true,
            b"PX" => {
                let ttl = integer(options.next().ok_or(SYNTAX)?)?;
                let ttl = u64::try_from(ttl).ok().filter(|ttl| *ttl > 0).ok_or(NO_TIME)?;
                end = Some(now.saturating_add(Duration::from_millis(ttl)));
            }
            _ => return Err(SYNTAX),
        }
    }
    if is_new && is_old {
        return Err(SYNTAX);
    }
    let before = if gets { get(store, key)?.map(Answer::bytes) } else { None };
    let is_there = store.contains(key);
    if is_new && is_there || is_old && !is_there {
        return Ok(before.unwrap_or(Answer::Nothing));
    }
    store.set(key, value, end);
    Ok(if gets { before.unwrap_or(Answer::Nothing) } else { Answer::Simple("OK") })
}

/// A key without an end lives longer than any.
fn expire(store: &mut Store, (key, ttl): (&[u8], &[u8]), only_later: bool, now: Instant) -> Outcome {
    let ttl = Duration::from_millis(u64::try_from(integer(ttl)?).unwrap_or(0));
    let end = now.saturating_add(ttl);
    let Some(present) = store.end(key) else { return Ok(Answer::Number(0)) };
    if only_later && present.is_none_or(|present| end <= present) {
        return Ok(Answer::Number(0));
    }
    if ttl.is_zero() {
        store.remove(key);
    } else {
        store.expire_at(key, end);
    }
    Ok(Answer::Number(1))
}

fn add(store: &mut Store, key: &[u8], words: Words<'_>) -> Outcome {
    let (mut words, mut only_old, mut only_larger, mut counts_changed) = (words, false, false, false);
    while let [option, rest @ ..] = words {
        match &*upper(option) {
            b"XX" => only_old = true,
            b"GT" => only_larger = true,
            b"CH" => counts_changed = true,
            _ => break,
        }
        words = rest;
    }
    if words.is_empty() || words.len() % 2 != 0 {
        return Err(SYNTAX);
    }
    let pairs = words.chunks_exact(2).map(|pair| Some((float(pair.first()?)?, *pair.get(1)?)));
    let pairs = pairs.collect::<Option<Vec<(f64, &[u8])>>>().ok_or(NO_FLOAT)?;
    let (mut added, mut changed) = (0, 0);
    for (score, member) in pairs {
        match store.score(key, member)? {
            None if only_old => continue,
            None => added += 1,
            Some(present) if only_larger && score <= present || score == present => continue,
            Some(_) => changed += 1,
        }
        store.set_score(key, member, score)?;
    }
    Ok(count(if counts_changed { added + changed } else { added }))
}

type Members<'a> = Vec<(&'a [u8], f64)>;

/// All members, in order.
fn members<'a>(store: &'a Store, key: &[u8]) -> Result<Members<'a>, &'static str> {
    store.score(key, b"")?;
    Ok(store.ranked(key))
}

/// Those from one rank to another; ranks below zero are counted from the end.
fn in_ranks<'a>(store: &'a Store, key: &[u8], (from, to): (&[u8], &[u8])) -> Result<Members<'a>, &'static str> {
    let (from, to) = (integer(from)?, integer(to)?);
    let mut members = members(store, key)?;
    let size = whole(members.len() as u128);
    let rank = |rank: i64| if rank < 0 { size.saturating_add(rank) } else { rank };
    let at = |rank: i64| usize::try_from(rank.clamp(0, size)).unwrap_or(0);
    let Range { start, end } = at(rank(from))..at(rank(to).saturating_add(1));
    members.truncate(end);
    Ok(members.split_off(start.min(members.len())))
}

/// Those with scores from one to another; a `(` leaves the limit out.
fn in_scores<'a>(store: &'a Store, key: &[u8], (least, most): (&[u8], &[u8])) -> Result<Members<'a>, &'static str> {
    let limit = |word: &[u8]| match word.strip_prefix(b"(") {
        Some(word) => float(word).map(|limit| (limit, true)),
        None => float(word).map(|limit| (limit, false)),
    };
    let (least, most) = limit(least).zip(limit(most)).ok_or(NO_LIMIT)?;
    let is_in = |score: f64| {
        (least.0 < score || !least.1 && least.0 == score) && (score < most.0 || !most.1 && score == most.0)
    };
    Ok(members(store, key)?.into_iter().filter(|(_, score)| is_in(*score)).collect())
}

fn range(store: &Store, key: &[u8], limits: (&[u8], &[u8]), options: Words<'_>) -> Outcome {
    let (mut by_score, mut with_scores, mut part) = (false, false, None);
    let mut options = options.iter();
    while let Some(option) = options.next() {
        match &*upper(option) {
            b"BYSCORE" => by_score = true,
            b"WITHSCORES" => with_scores = true,
            b"LIMIT" => {
                let mut number = || integer(options.next().ok_or(SYNTAX)?);
                part = Some((number()?, number()?));
            }
            _ => return Err(SYNTAX),
        }
    }
    if part.is_some() && !by_score {
        return Err("ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX");
    }
    let members = if by_score { in_scores(store, key, limits)? } else { in_ranks(store, key, limits)? };
    let (skipped, most) = part.unwrap_or((0, -1));
    let skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let row = |(member, its): (&[u8], f64)| [Some(Answer::bytes(member)), with_scores.then(|| score(its))];
    Ok(Answer::List(members.into_iter().skip(skipped).take(most).flat_map(row).flatten().collect()))
}
