//! What is locked: a name, and the key that it has on the instances.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher, RandomState};
use std::sync::{Arc, LazyLock};

use thiserror::Error;

use crate::names::ResourceName;
pub(crate) use crate::names::display_name;

/// Keys that begin with this are the library's own; no lock may be named so.
pub(crate) const RESERVED: &[u8] = b"redquorum:";

/// Where an instance's admission record is.
pub(crate) const ADMISSION_KEY: &str = "redquorum:admission";

/// The sorted set of all locks' last fencing tokens, as in `acquire.lua` (P13).
pub(crate) const TOKENS_KEY: &str = "redquorum:fence";

/// The largest token that the instance may have forgotten, of any lock: it grants none below (P13).
pub(crate) const FLOOR_KEY: &str = "redquorum:floor";

/// A member of the set of tokens that is no lock's. Of a sorted set with few members, all of 64 bytes or less, a server keeps a list that
/// it searches from the beginning: that takes three times as long as where one was ever longer, as this is.
pub(crate) const NO_LOCK: &str = "redquorum:fence: no lock, but longer than a name in a set that is kept as a list";

/// Before the key of a semaphore, names its queue in a client: nothing is stored under it.
const LINE: &[u8] = b"redquorum:semaphore:";

/// Before the value of a lease, names the queue in which a client attaches copies of it: nothing is stored under it.
const COPIES: &[u8] = b"redquorum:attach:";

/// The longest key of a lock, namespace included.
pub(crate) const MAX_KEY_LENGTH: usize = 64 * 1024;

/// The most names that are locked together.
pub(crate) const MAX_RESOURCES: usize = 256;

/// Names that cannot be locked.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ResourceError {
    /// No resource was named.
    #[error("no resource was named")]
    NoResources,
    /// A resource's name is empty.
    #[error("a resource's name is empty")]
    EmptyResource,
    /// A resource was named twice.
    #[error("the resource {name:?} is named twice")]
    DuplicateResource {
        /// The name.
        name: String,
    },
    /// A resource's key is too long.
    #[error("a resource's key has {length} bytes, namespace included; at most {most} are allowed")]
    ResourceTooLong {
        /// Its length in bytes.
        length: usize,
        /// The most that is allowed.
        most: usize,
    },
    /// Too many names to be locked together.
    #[error("{given} resources were named; at most {most} can be locked together")]
    TooManyResources {
        /// How many were given.
        given: usize,
        /// The most that is allowed.
        most: usize,
    },
    /// The key is one of the library's own.
    #[error("{name:?} begins with \"redquorum:\", which is kept for the library's own keys")]
    ReservedResource {
        /// The key.
        name: String,
    },
}

/// What one lock is for: a checked name, as the key that it has. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Resource {
    key: Arc<[u8]>,
    /// Of the key, which is looked up often.
    hash: u64,
}

impl PartialEq for Resource {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && self.key == other.key
    }
}

impl Eq for Resource {}

impl Hash for Resource {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// What is known of each of several locks.
pub(crate) type ByResource<T> = HashMap<Resource, T, AsItIs>;

/// Hashes what is a hash already.
pub(crate) type AsItIs = BuildHasherDefault<HashItself>;

#[derive(Debug, Default)]
pub(crate) struct HashItself(u64);

impl Hasher for HashItself {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {} // a hash is one number

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.display())
    }
}

impl Resource {
    /// Checks a name and gives it its key.
    pub(crate) fn new(namespace: &[u8], name: &[u8]) -> Result<Self, ResourceError> {
        if name.is_empty() {
            return Err(ResourceError::EmptyResource);
        }
        let length = namespace.len() + name.len();
        if length > MAX_KEY_LENGTH {
            return Err(ResourceError::ResourceTooLong { length, most: MAX_KEY_LENGTH });
        }
        let key: Arc<[u8]> = namespace.iter().chain(name).copied().collect();
        if key.starts_with(RESERVED) {
            return Err(ResourceError::ReservedResource { name: display_name(&key) });
        }
        Ok(Self::of_key(key))
    }

    fn of_key(key: Arc<[u8]>) -> Self {
        // Names come from any client: without a secret, many could be made that have the same.
        static SECRET: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        let hash = SECRET.hash_one(&key);
        Self { key, hash }
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    /// The same for the same key; hardly ever for others.
    pub(crate) const fn hash(&self) -> u64 {
        self.hash
    }

    /// The queue in which callers of one client wait for any of several locks with this name (P35): no lock has it.
    pub(crate) fn line(&self) -> Self {
        Self::of_key([LINE, self.key()].concat().into())
    }

    /// The queue in which callers of one client attach copies of the lease with this value (P32): no lock has it.
    pub(crate) fn copies_of(value: &[u8]) -> Self {
        Self::of_key([COPIES, value].concat().into())
    }

    /// The name below `namespace`.
    pub(crate) fn name(&self, namespace: &[u8]) -> ResourceName {
        self.key().strip_prefix(namespace).unwrap_or(self.key()).into()
    }

    /// The key for people.
    pub(crate) fn display(&self) -> String {
        display_name(self.key().strip_prefix(LINE).unwrap_or(self.key()))
    }
}

/// The names of several locks that are acquired together, in the order of their keys.
pub(crate) fn check_together(names: &[ResourceName]) -> Result<Vec<ResourceName>, ResourceError> {
    let mut names = names.to_vec();
    if names.is_empty() {
        return Err(ResourceError::NoResources);
    }
    if names.len() > MAX_RESOURCES {
        return Err(ResourceError::TooManyResources { given: names.len(), most: MAX_RESOURCES });
    }
    names.sort_unstable(); // of one namespace, so that their keys are in the same order
    if let Some([name, _]) = names.windows(2).find(|pair| pair.first() == pair.last()) {
        return Err(ResourceError::DuplicateResource { name: name.to_string() });
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_takes_the_namespace() {
        let resource = Resource::new(b"ns:", b"\xff\0").unwrap();
        assert_eq!((resource.key(), resource.name(b"ns:")), (b"ns:\xff\0".as_slice(), b"\xff\0".into()));
    }

    #[test]
    fn bad_names_are_named() {
        let checked = |name: &str| Resource::new(b"ns:", name.as_bytes());
        assert_eq!(checked("").unwrap_err(), ResourceError::EmptyResource);
        assert!(matches!(checked(&"x".repeat(MAX_KEY_LENGTH)), Err(ResourceError::ResourceTooLong { .. })));
        assert!(checked(&"x".repeat(MAX_KEY_LENGTH - 3)).is_ok());
        assert!(matches!(Resource::new(b"red", b"quorum:fence"), Err(ResourceError::ReservedResource { .. })));
    }

    #[test]
    fn names_that_are_locked_together_are_sorted_distinct_and_not_too_many() {
        let checked = |names: &[&str]| check_together(&Vec::from_iter(names.iter().map(ResourceName::from)));
        assert_eq!(checked(&["b", "a"]).unwrap(), ["a", "b"].map(ResourceName::from));
        assert_eq!(checked(&[]).unwrap_err(), ResourceError::NoResources);
        assert!(matches!(checked(&["a", "b", "a"]), Err(ResourceError::DuplicateResource { name }) if name == "a"));
        let many: Vec<ResourceName> = (0..=MAX_RESOURCES).map(Into::into).collect();
        assert!(matches!(check_together(&many), Err(ResourceError::TooManyResources { .. })));
    }
}
