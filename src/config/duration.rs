//! Times as people write them: `500ms`, `10s`, `1m30s`. The command line includes this file for its own options.

use std::fmt::Write;
use std::time::Duration;

/// From the longest on. A time is not shown in days: `24h` is what people write.
const UNITS: &[(&str, u64)] = &[("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

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

/// As [`parse`] reads it; what is shorter than a millisecond is left out.
pub(crate) fn shown(time: Duration) -> String {
    let mut millis = time.as_millis();
    let mut text = String::new();
    for (name, scale) in UNITS.iter().skip(1) {
        let count = millis / u128::from(*scale);
        millis %= u128::from(*scale);
        if count > 0 {
            let _ = write!(text, "{count}{name}"); // into a text, which takes it
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
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

    #[test]
    fn a_time_is_shown_as_it_is_read() {
        for text in ["0s", "200ms", "10s", "1m30s", "24h", "87600h", "1h1m1s1ms"] {
            assert_eq!(shown(parse(text).unwrap()), text);
        }
        assert_eq!(
            (shown(Duration::MAX).is_empty(), shown(Duration::from_nanos(1_999_999))),
            (false, "1ms".to_owned())
        );
    }
}
