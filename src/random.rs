//! Randomness of the operating system. The protocol takes it as an argument.

use std::io;

use uuid::{Builder, Uuid};

/// A name that nothing else has: a UUID of version 4.
///
/// `Uuid::new_v4` would panic where the operating system has no random bytes.
pub(crate) fn uuid() -> io::Result<Uuid> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    Ok(Builder::from_random_bytes(bytes).into_uuid())
}

/// What spreads pauses, so that clients do not try in step: evenly from all of `u32`. Nothing else
/// depends on it, so without random bytes it is the middle.
pub(crate) fn spread() -> u32 {
    getrandom::u32().unwrap_or(u32::MAX / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differ_and_say_that_they_are_random() {
        let (one, other) = (uuid().unwrap(), uuid().unwrap());
        assert_ne!(one, other);
        assert_eq!(one.get_version_num(), 4);
    }
}
