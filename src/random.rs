//! Randomness of the operating system. The protocol takes it as an argument.

use std::io;

use uuid::{Builder, Uuid};

/// A unique name: a UUID of version 4.
///
/// `Uuid::new_v4` would panic where the operating system has no random bytes.
pub(crate) fn uuid() -> io::Result<Uuid> {
    Ok(Builder::from_random_bytes(bytes()?).into_uuid())
}

/// As [`uuid`], with the first bytes given: what is left is 74 random bits.
pub(crate) fn uuid_beginning_with<const N: usize>(first: [u8; N]) -> io::Result<Uuid> {
    let mut bytes = bytes::<16>()?;
    bytes.iter_mut().zip(first).for_each(|(byte, first)| *byte = first);
    Ok(Builder::from_random_bytes(bytes).into_uuid())
}

/// Random bytes.
pub(crate) fn bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    fill(&mut bytes)?;
    Ok(bytes)
}

/// What spreads pauses, so that clients do not try in step: evenly from all of `u32`. It has no other
/// use, so without random bytes it is the middle.
pub(crate) fn spread() -> u32 {
    bytes().map_or(u32::MAX / 2, u32::from_ne_bytes)
}

fn fill(bytes: &mut [u8]) -> io::Result<()> {
    #[cfg(feature = "testing")]
    if seeded::fill(bytes) {
        return Ok(());
    }
    Ok(getrandom::fill(bytes)?)
}

/// Randomness that a seed decides, for simulations: they must come out the same again.
#[cfg(feature = "testing")]
pub(crate) mod seeded {
    use std::cell::Cell;

    thread_local! {
        static STATE: Cell<Option<u64>> = const { Cell::new(None) };
    }

    /// What this thread draws from now on depends on the seed alone.
    pub(crate) fn begin(seed: u64) {
        STATE.set(Some(seed));
    }

    pub(super) fn fill(bytes: &mut [u8]) -> bool {
        // A thread that is ending has no state any more, nor a seed.
        let Ok(Some(mut state)) = STATE.try_with(Cell::get) else { return false };
        for part in bytes.chunks_mut(8) {
            let drawn = draw(&mut state).to_le_bytes();
            part.iter_mut().zip(drawn).for_each(|(byte, drawn)| *byte = drawn);
        }
        STATE.set(Some(state));
        true
    }

    /// SplitMix64.
    pub(crate) const fn draw(state: &mut u64) -> u64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
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

    #[cfg(feature = "testing")]
    #[test]
    fn a_seed_decides_what_its_own_thread_draws() {
        let drawn = |seed| {
            let draw = move || {
                seeded::begin(seed);
                (uuid().unwrap(), uuid().unwrap(), spread())
            };
            std::thread::spawn(draw).join().unwrap()
        };
        assert_eq!(drawn(1), drawn(1));
        assert_ne!(drawn(1), drawn(2));
        assert_ne!(drawn(1).0, drawn(1).1);
        assert_ne!(drawn(1).2, drawn(2).2, "clients that pause alike try in step");
    }

    #[cfg(feature = "testing")]
    #[test]
    fn a_seed_gives_the_numbers_of_splitmix64() {
        let mut state = 0;
        let drawn = [(); 3].map(|()| seeded::draw(&mut state));
        assert_eq!(drawn, [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f]);
    }
}
