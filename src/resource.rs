//! What is locked: names, and the keys that they have on the instances (P11).

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

use crate::names::ResourceNames;
pub(crate) use crate::names::display_name;

/// Keys that begin with this are the library's own; no lock may be named so.
pub(crate) const RESERVED: &[u8] = b"redquorum:";

/// Where an instance's admission record is.
pub(crate) const ADMISSION_KEY: &str = "redquorum:admission";

/// The sorted set of all locks' last fencing tokens, as in `tokens.lua` (P13).
pub(crate) const TOKENS_KEY: &str = "redquorum:fence";

/// A member of that set that is no lock's. Of a sorted set with few members, all of 64 bytes or less, a server keeps a list that
/// it searches from the beginning: that takes three times as long as where one was ever longer, as this is.
pub(crate) const NO_LOCK: &str = "redquorum:fence: no lock, but longer than a name in a set that is kept as a list";

/// The longest key of a lock, namespace included.
pub(crate) const MAX_KEY_LENGTH: usize = 64 * 1024;

/// The most resources in one lock.
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
    /// Too many resources in one lock.
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

/// Checked resources: sorted, distinct, with their keys. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Resources(Arc<[Box<[u8]>]>);

impl fmt::Debug for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.lock_keys().map(display_name)).finish()
    }
}

impl Resources {
    /// Checks names and gives them their keys.
    pub(crate) fn new(namespace: &[u8], names: ResourceNames) -> Result<Self, ResourceError> {
        let mut names: Vec<&[u8]> = names.iter().collect();
        if names.is_empty() {
            return Err(ResourceError::NoResources);
        }
        if names.len() > MAX_RESOURCES {
            return Err(ResourceError::TooManyResources { given: names.len(), most: MAX_RESOURCES });
        }
        names.sort_unstable(); // P11: one order for everybody
        if let Some(pair) = names.windows(2).find(|pair| pair.first() == pair.last()) {
            let name = pair.first().map(|name| display_name(name)).unwrap_or_default();
            return Err(ResourceError::DuplicateResource { name });
        }
        let keys: Result<Vec<Box<[u8]>>, ResourceError> = names.iter().map(|name| key_of(namespace, name)).collect();
        Ok(Self(keys?.into()))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The names below `namespace`.
    pub(crate) fn names(&self, namespace: &[u8]) -> ResourceNames {
        self.lock_keys().map(|key| key.strip_prefix(namespace).unwrap_or(key)).collect()
    }

    pub(crate) fn lock_keys(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(|key| &**key)
    }

    /// Each of them alone.
    pub(crate) fn each(&self) -> impl Iterator<Item = Self> {
        self.0.iter().map(|key| Self([key.clone()].into()))
    }

    /// The key at `index` for people.
    pub(crate) fn display(&self, index: usize) -> String {
        self.0.get(index).map(|key| display_name(key)).unwrap_or_default()
    }

    /// All keys for people.
    pub(crate) fn display_all(&self) -> String {
        let names: Vec<String> = self.lock_keys().map(display_name).collect();
        names.join(", ")
    }
}

fn key_of(namespace: &[u8], name: &[u8]) -> Result<Box<[u8]>, ResourceError> {
    if name.is_empty() {
        return Err(ResourceError::EmptyResource);
    }
    let length = namespace.len() + name.len();
    if length > MAX_KEY_LENGTH {
        return Err(ResourceError::ResourceTooLong { length, most: MAX_KEY_LENGTH });
    }
    let key = [namespace, name].concat();
    if key.starts_with(RESERVED) {
        return Err(ResourceError::ReservedResource { name: display_name(&key) });
    }
    Ok(key.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(names: impl Into<ResourceNames>) -> Result<Vec<Vec<u8>>, ResourceError> {
        Resources::new(b"ns:", names.into()).map(|checked| checked.lock_keys().map(<[u8]>::to_vec).collect())
    }

    #[test]
    fn names_are_sorted_and_take_the_namespace() {
        assert_eq!(checked(["b", "a"]).unwrap(), [b"ns:a".to_vec(), b"ns:b".to_vec()]);
        assert_eq!(checked([[0xff_u8, 0]]).unwrap(), [b"ns:\xff\0".to_vec()]);
    }

    #[test]
    fn bad_names_are_named() {
        assert!(matches!(checked(Vec::<String>::new()), Err(ResourceError::NoResources)));
        assert!(matches!(checked(["a", ""]), Err(ResourceError::EmptyResource)));
        assert!(matches!(checked(["a", "b", "a"]), Err(ResourceError::DuplicateResource { name }) if name == "a"));
        assert!(matches!(checked("x".repeat(MAX_KEY_LENGTH)), Err(ResourceError::ResourceTooLong { .. })));
        assert!(checked("x".repeat(MAX_KEY_LENGTH - 3)).is_ok());
        let many: Vec<String> = (0..=MAX_RESOURCES).map(|i| i.to_string()).collect();
        assert!(matches!(checked(many), Err(ResourceError::TooManyResources { .. })));
        let reserved = Resources::new(b"red", "quorum:fence".into());
        assert!(matches!(reserved, Err(ResourceError::ReservedResource { .. })));
    }
}
