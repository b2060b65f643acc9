//! Times as people write them: `500ms`, `10s`, `1m30s`.

use std::time::Duration;

const UNITS: &[(&str, u64)] = &[("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Reads numbers with their units, added up.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let mut millis = 0_u64;
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(problem(text));
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(|| problem(text))?;
        let (number, after) = rest.split_at(digits);
        let unit = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit);
        let (_, scale) = UNITS.iter().find(|(name, _)| *name == unit.trim()).ok_or_else(|| problem(text))?;
        let part = number.parse().ok().and_then(|number: u64| number.checked_mul(*scale));
        millis = part.and_then(|part| millis.checked_add(part)).ok_or_else(|| problem(text))?;
        rest = after;
    }
    Ok(Duration::from_millis(millis))
}

/// A time in which something can be done.
pub(crate) fn parse_some(text: &str) -> Result<Duration, String> {
    let time = parse(text)?;
    if time.is_zero() { Err("it must be more than nothing".to_owned()) } else { Ok(time) }
}

/// A time in which something can be measured.
pub(crate) fn parse_second(text: &str) -> Result<Duration, String> {
    let time = parse(text)?;
    if time < Duration::from_secs(1) { Err("it must be 1s at least".to_owned()) } else { Ok(time) }
}

fn problem(text: &str) -> String {
    let why = if text.trim_start().starts_with('-') { ": a time cannot be negative" } else { "" };
    format!("{text:?} is no time{why}; write 500ms, 10s, 5m, 1h or 1m30s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_their_units() {
        for (text, millis) in [("500ms", 500), ("10s", 10_000), ("1m30s", 90_000), ("2h", 7_200_000), (" 0s ", 0)] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in ["", "10", "s", "-1s", "1.5s", "1x", "1s2", "99999999999999999999s", "18446744073709551615d"] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }
}
