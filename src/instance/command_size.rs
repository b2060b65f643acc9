//! How much one command carries: an instance does nothing else while it carries it out, and what
//! others ask of it waits.

use super::requests::Claim;

/// The most names in one command. They take a script up to 4 ms.
const MAX_NAMES: usize = 128;

/// The most bytes of keys and values in one command.
const MAX_BYTES: usize = 64 * 1024;

/// What a claim adds to a command.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CommandSize {
    names: usize,
    bytes: usize,
}

impl Claim {
    /// What it adds to a command.
    pub(crate) fn command_size(&self) -> CommandSize {
        let resources = &self.resources;
        let keys: usize = resources.lock_keys().map(<[u8]>::len).sum();
        CommandSize { names: resources.len(), bytes: keys + self.value.as_bytes().len() }
    }
}

/// How many of these, from the first on, go into one command: `most` at most, and one however large.
pub(crate) fn fit_in_command(sizes: impl Iterator<Item = CommandSize>, most: usize) -> usize {
    let mut sum = CommandSize::default();
    let fits = |size: &CommandSize| {
        sum = CommandSize { names: sum.names + size.names, bytes: sum.bytes + size.bytes };
        sum.names <= MAX_NAMES && sum.bytes <= MAX_BYTES
    };
    sizes.take(most).take_while(fits).count().max(1)
}

/// Cuts `items` into what goes into one command each: `most` at most, and one however large.
pub(crate) fn split_into_commands<T>(
    mut items: &[T],
    most: usize,
    size: impl Fn(&T) -> CommandSize,
) -> impl Iterator<Item = &[T]> {
    std::iter::from_fn(move || {
        let count = fit_in_command(items.iter().map(&size), most);
        let (now, later) = items.split_at_checked(count)?;
        items = later;
        Some(now)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(sizes: &[(usize, usize)]) -> Vec<usize> {
        let sizes: Vec<CommandSize> =
            sizes.iter().map(|(names, bytes)| CommandSize { names: *names, bytes: *bytes }).collect();
        split_into_commands(&sizes, 4, |size| *size).map(<[CommandSize]>::len).collect()
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

    #[test]
    fn a_claim_adds_its_keys_and_its_value_to_a_command() {
        let one = Claim::sample(1, &["a".to_owned()]);
        let two = Claim::sample(1, &["a".to_owned(), "b".to_owned()]);
        let of_keys = |claim: &Claim| claim.resources.lock_keys().flatten().count();
        for (claim, names) in [(one, 1), (two, 2)] {
            let size = claim.command_size();
            assert_eq!((size.names, size.bytes), (names, of_keys(&claim) + claim.value.as_bytes().len()));
        }
    }
}
