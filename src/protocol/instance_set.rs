//! Instances by number, and sets of them in one word.

use std::fmt;

use crate::protocol::quorum::MAX_INSTANCES;

/// The position of an instance in the configured list; below [`MAX_INSTANCES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceId(u8);

impl InstanceId {
    /// The instance at `index`; indexes past the last possible instance are cut to it.
    pub fn new(index: usize) -> Self {
        Self(u8::try_from(index.min(MAX_INSTANCES - 1)).unwrap_or(u8::MAX))
    }

    /// The position in the configured list.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// All ids of `count` configured instances.
    pub fn all(count: usize) -> impl Iterator<Item = Self> {
        (0..count.min(MAX_INSTANCES)).map(Self::new)
    }
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// A set of instances.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct InstanceSet(u64);

impl InstanceSet {
    /// The first `count` instances.
    pub fn first(count: usize) -> Self {
        InstanceId::all(count).collect()
    }

    /// This one alone.
    pub const fn only(id: InstanceId) -> Self {
        Self(1 << id.0)
    }

    /// Adds an instance.
    pub const fn insert(&mut self, id: InstanceId) {
        self.0 |= 1 << id.0;
    }

    /// Takes an instance out.
    pub const fn remove(&mut self, id: InstanceId) {
        self.0 &= !(1 << id.0);
    }

    /// Whether the instance is in the set.
    pub const fn contains(self, id: InstanceId) -> bool {
        self.0 & (1 << id.0) != 0
    }

    /// The instances of either set.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The instances of this set that are not in the other.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// How many instances are in the set.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The instances of the set in order.
    pub fn iter(self) -> impl Iterator<Item = InstanceId> {
        let mut left = self;
        std::iter::from_fn(move || {
            let next = InstanceId(u8::try_from(left.0.trailing_zeros()).ok().filter(|_| !left.is_empty())?);
            left.remove(next);
            Some(next)
        })
    }
}

impl FromIterator<InstanceId> for InstanceSet {
    fn from_iter<I: IntoIterator<Item = InstanceId>>(ids: I) -> Self {
        ids.into_iter().fold(Self::default(), |mut set, id| {
            set.insert(id);
            set
        })
    }
}

impl fmt::Debug for InstanceSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(InstanceId::index)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_hold_every_possible_instance() {
        let mut set = InstanceSet::first(MAX_INSTANCES);
        assert_eq!(set.len(), MAX_INSTANCES);
        set.remove(InstanceId::new(63));
        assert!(!set.contains(InstanceId::new(63)));
        assert_eq!(set.iter().count(), 63);
        assert!(set.union(InstanceSet::first(1)).contains(InstanceId::new(0)));
        assert!(InstanceSet::default().is_empty());
    }
}
