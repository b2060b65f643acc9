//! How much one command carries: an instance does nothing else while it carries it out, and what
//! others ask of it waits.

use super::Claim;

/// The most names in one command. They take a script up to 4 ms.
const MAX_NAMES: usize = 128;

/// The most bytes of keys and values in one command.
const MAX_BYTES: usize = 64 * 1024;

/// What a claim adds to a command.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    names: usize,
    bytes: usize,
}

impl Claim {
    /// What it adds to a command.
    pub(crate) fn load(&self) -> Load {
        let resources = &self.resources;
        let keys: usize = resources.lock_keys().chain(resources.fence_keys()).map(<[u8]>::len).sum();
        Load { names: resources.len(), bytes: keys + self.value.as_bytes().len() }
    }
}

/// How many of these, from the first on, go into one command: `most` at most, and one however large.
pub(super) fn portion(loads: impl Iterator<Item = Load>, most: usize) -> usize {
    let mut sum = Load::default();
    let fits = |load: &Load| {
        sum = Load { names: sum.names + load.names, bytes: sum.bytes + load.bytes };
        sum.names <= MAX_NAMES && sum.bytes <= MAX_BYTES
    };
    loads.take(most).take_while(fits).count().max(1)
}

/// Cuts `items` into what goes into one command each: `most` at most, and one however large.
pub(crate) fn portions<T>(mut items: &[T], most: usize, load: impl Fn(&T) -> Load) -> impl Iterator<Item = &[T]> {
    std::iter::from_fn(move || {
        let count = portion(items.iter().map(&load), most);
        let (now, later) = items.split_at_checked(count)?;
        items = later;
        Some(now)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(loads: &[(usize, usize)]) -> Vec<usize> {
        let loads: Vec<Load> = loads.iter().map(|(names, bytes)| Load { names: *names, bytes: *bytes }).collect();
        portions(&loads, 4, |load| *load).map(<[Load]>::len).collect()
    }

    #[test]
    fn a_command_carries_so_many_requests_names_and_bytes_and_one_however_large() {
        assert_eq!(counts(&[]), [0; 0]);
        assert_eq!(counts(&[(1, 1); 9]), [4, 4, 1]);
        assert_eq!(counts(&[(MAX_NAMES / 2, 1); 5]), [2, 2, 1]);
        assert_eq!(counts(&[(1, MAX_BYTES / 3); 5]), [3, 2]);
        assert_eq!(counts(&[(2 * MAX_NAMES, 1), (1, 1), (2 * MAX_NAMES, 1), (1, 2 * MAX_BYTES)]), [1, 1, 1, 1]);
        assert_eq!(counts(&[(1, 1), (MAX_NAMES, 1), (1, 1)]), [1, 1, 1]);
    }
}
