//! The name of a cluster of instances, and what its clients must agree on (P16).

use std::fmt;
use std::sync::Arc;

/// The longest name: it stands in the record, which goes out with every request.
const MAX_NAME: usize = 64;

/// Between the parts of what is recorded.
const SEPARATOR: char = '/';

/// What every client of a cluster that has a name must agree on.
///
/// Each instance has it in its admission record, so that a client with another list, as far as its length, quorum or name
/// show that (and P30 does not allow it), gets no vote of an instance that the others use.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClusterTerms {
    name: Arc<str>,
    instances: usize,
    quorum: usize,
}

impl ClusterTerms {
    /// The terms, unless the name is none: 1 to 64 ASCII letters, digits, `.`, `_` and `-`.
    #[must_use]
    pub fn new(name: &str, instances: usize, quorum: usize) -> Option<Self> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let is_name = (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(is_plain);
        is_name.then(|| Self { name: name.into(), instances, quorum })
    }

    /// Reads what is recorded; anything else is `None`.
    #[must_use]
    pub fn from_wire(wire: &str) -> Option<Self> {
        let mut parts = wire.split(SEPARATOR);
        let terms = Self::new(parts.next()?, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?)?;
        (terms.to_wire() == wire).then_some(terms)
    }

    /// As it is recorded: `name/instances/quorum`.
    #[must_use]
    pub fn to_wire(&self) -> String {
        format!("{}{SEPARATOR}{}{SEPARATOR}{}", self.name, self.instances, self.quorum)
    }

    /// Whether clients with these terms and with those may use the same instances: they are the same, or majorities of lists that differ
    /// by one instance in length (P30).
    #[must_use]
    pub fn fits(&self, other: &Self) -> bool {
        let one_more = self.instances.abs_diff(other.instances) == 1;
        let grows = self.name == other.name && one_more && self.is_majority() && other.is_majority();
        self == other || grows
    }

    /// Of two that fit to each other, those of the longer list.
    #[must_use]
    pub const fn covering<'a>(&'a self, other: &'a Self) -> &'a Self {
        if self.instances < other.instances { other } else { self }
    }

    const fn is_majority(&self) -> bool {
        self.quorum == self.instances / 2 + 1
    }

    /// What is said of those that a client has, or a record.
    #[must_use]
    pub fn described(terms: Option<&Self>) -> String {
        terms.map_or_else(|| "no cluster".to_owned(), Self::to_string)
    }
}

impl fmt::Display for ClusterTerms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cluster {:?} of {} instances with a quorum of {}", self.name, self.instances, self.quorum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_come_back_as_they_were_recorded_and_nothing_else_is_read() {
        let terms = ClusterTerms::new("locks-prod", 5, 3).unwrap();
        assert_eq!(terms.to_wire(), "locks-prod/5/3");
        assert_eq!(ClusterTerms::from_wire("locks-prod/5/3"), Some(terms));
        for other in
            ["", "locks-prod", "locks-prod/5", "locks-prod/5/3/1", "locks-prod/05/3", "locks-prod/+5/3", "/5/3"]
        {
            assert_eq!(ClusterTerms::from_wire(other), None, "{other}");
        }
    }

    /// P30, of all lists of up to 7 instances with every quorum: where two fit, no two quorums are without a common
    /// instance, if one list is the other with one instance more.
    #[test]
    fn lists_that_differ_by_one_instance_fit_if_both_have_majorities() {
        let sizes = (1..8usize).flat_map(|instances| (1..=instances).map(move |quorum| (instances, quorum)));
        let all: Vec<_> = sizes.collect();
        for (one, other) in all.iter().flat_map(|one| all.iter().map(move |other| (*one, *other))) {
            let terms = |name, (instances, quorum)| ClusterTerms::new(name, instances, quorum).unwrap();
            let (ours, theirs) = (terms("a", one), terms("a", other));
            let majority = |(instances, quorum)| quorum == instances / 2 + 1;
            let next_to = one.0.abs_diff(other.0) == 1 && majority(one) && majority(other);
            assert_eq!(ours.fits(&theirs), one == other || next_to, "{one:?} {other:?}");
            assert!(!ours.fits(&terms("b", other)));
            if next_to {
                assert!(one.1 + other.1 > one.0.max(other.0), "{one:?} {other:?}");
                assert_eq!(ours.covering(&theirs).instances, one.0.max(other.0));
            }
        }
    }

    #[test]
    fn a_name_is_short_and_has_nothing_that_would_end_it_in_a_record() {
        let is_name = |name: &str| ClusterTerms::new(name, 5, 3).is_some();
        assert!(is_name("a") && is_name("Locks_prod-1.eu") && is_name(&"x".repeat(MAX_NAME)));
        assert!(!is_name("") && !is_name("a b") && !is_name("a/b") && !is_name("\u{e9}") && !is_name("a\n"));
        assert!(!is_name(&"x".repeat(MAX_NAME + 1)));
    }
}
