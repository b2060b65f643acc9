//! How much one command carries: while an instance carries it out, all other requests wait.

use super::requests::Claim;

/// The most bytes of keys and values in one command.
pub(crate) const MAX_COMMAND_BYTES: usize = 64 * 1024;

impl Claim {
    /// How many bytes it adds to a command.
    pub(crate) fn command_size(&self) -> usize {
        self.resource.key().len() + self.value.as_bytes().len()
    }
}

/// Cuts `items` into what goes into one command each: `most` at most, and one however large.
pub(crate) fn split_into_commands<T>(
    mut items: &[T],
    most: usize,
    size: impl Fn(&T) -> usize,
) -> impl Iterator<Item = &[T]> {
    std::iter::from_fn(move || {
        let mut sum: usize = 0;
        let fits = |size: &usize| {
            sum = sum.saturating_add(*size);
            sum <= MAX_COMMAND_BYTES
        };
        let count = items.iter().map(&size).take(most).take_while(fits).count().max(1);
        let (now, later) = items.split_at_checked(count)?;
        items = later;
        Some(now)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(sizes: &[usize]) -> Vec<usize> {
        split_into_commands(sizes, 4, |size| *size).map(<[usize]>::len).collect()
    }

    #[test]
    fn a_command_carries_so_many_requests_and_bytes_and_one_however_large() {
        assert_eq!(counts(&[]), [0; 0]);
        assert_eq!(counts(&[1; 9]), [4, 4, 1]);
        assert_eq!(counts(&[MAX_COMMAND_BYTES / 3; 5]), [3, 2]);
        assert_eq!(counts(&[2 * MAX_COMMAND_BYTES, 1, MAX_COMMAND_BYTES, 1]), [1, 1, 1, 1]);
    }

    #[test]
    fn a_claim_adds_its_key_and_its_value_to_a_command() {
        let claim = Claim::sample(1, "ab");
        assert_eq!(claim.command_size(), 2 + claim.value.as_bytes().len());
    }
}
