//! How many votes decide (P4). Tiny and pure, so that its whole space is enumerated by tests.

use std::fmt;

/// The most instances that one client may have: sets of instances are held in one word.
pub const MAX_INSTANCES: usize = 64;

/// The result of a tally of votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The outstanding votes still decide.
    Pending,
    /// A quorum has granted.
    Won,
    /// A quorum can no longer be reached.
    Lost,
}

/// The number of configured instances and the votes needed among them.
///
/// The count is of *configured* instances, never of connected ones (P4). Two quorums always share
/// an instance, because `2 * votes > instances`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quorum {
    instances: usize,
    votes: usize,
}

/// Why a quorum was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QuorumError {
    /// There are no instances.
    NoInstances,
    /// There are more than 64, the most that one client may have.
    TooManyInstances {
        /// How many were given.
        instances: usize,
    },
    /// Fewer votes than a majority: two holders could each have a quorum.
    BelowMajority {
        /// The configured votes.
        votes: usize,
        /// The fewest that are safe.
        majority: usize,
    },
    /// More votes than there are instances: nothing could ever be locked.
    AboveInstances {
        /// The configured votes.
        votes: usize,
        /// How many instances there are.
        instances: usize,
    },
}

impl fmt::Display for QuorumError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoInstances => write!(
                f,
                "no instances were given; name at least one, better three or five, in code or in REDQUORUM_INSTANCES"
            ),
            Self::TooManyInstances { instances } => {
                write!(f, "{instances} instances were given; at most {MAX_INSTANCES} are supported")
            }
            Self::BelowMajority { votes, majority } => {
                write!(f, "a quorum of {votes} is below the majority of {majority}: two holders could win at once")
            }
            Self::AboveInstances { votes, instances } => {
                write!(f, "a quorum of {votes} can never be reached with {instances} instances")
            }
        }
    }
}

impl std::error::Error for QuorumError {}

impl Quorum {
    /// Whether so many instances without a key leave no quorum that can have had it (P20).
    pub const fn is_out_of_reach(self, without: usize) -> bool {
        without > self.instances.saturating_sub(self.votes)
    }

    /// Whether both may win with no instance that votes for both, where the shorter list is part of the longer (P30).
    pub const fn may_miss(self, other: Self) -> bool {
        let all = if self.instances < other.instances { other.instances } else { self.instances };
        self.votes + other.votes <= all
    }

    /// The majorities of lists of other lengths that it [may miss](Self::may_miss).
    pub fn majorities_missed(self) -> impl Iterator<Item = Self> {
        let majorities = (1..=MAX_INSTANCES).filter_map(|instances| Self::majority(instances).ok());
        majorities.filter(move |other| self.may_miss(*other))
    }

    /// A majority of `instances`: `instances / 2 + 1`.
    ///
    /// # Errors
    /// When there are none, or more than [`MAX_INSTANCES`].
    pub const fn majority(instances: usize) -> Result<Self, QuorumError> {
        Self::new(instances, instances / 2 + 1)
    }

    /// `votes` of `instances`.
    ///
    /// # Errors
    /// When two disjoint sets of `votes` instances exist, or `votes` can never be reached.
    pub const fn new(instances: usize, votes: usize) -> Result<Self, QuorumError> {
        let majority = instances / 2 + 1;
        if instances == 0 {
            return Err(QuorumError::NoInstances);
        }
        if instances > MAX_INSTANCES {
            return Err(QuorumError::TooManyInstances { instances });
        }
        if votes < majority {
            return Err(QuorumError::BelowMajority { votes, majority });
        }
        if votes > instances {
            return Err(QuorumError::AboveInstances { votes, instances });
        }
        Ok(Self { instances, votes })
    }

    /// The number of configured instances.
    pub const fn instances(self) -> usize {
        self.instances
    }

    /// The votes needed.
    pub const fn votes(self) -> usize {
        self.votes
    }

    /// Judges `granted` votes while `outstanding` instances may still grant.
    pub const fn tally(self, granted: usize, outstanding: usize) -> Verdict {
        if granted >= self.votes {
            Verdict::Won // P4: at the quorum-th grant, any other may be missing
        } else if granted + outstanding < self.votes {
            Verdict::Lost // P4: as soon as it cannot be reached
        } else {
            Verdict::Pending
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_quorums_always_share_an_instance() {
        for instances in 1..=MAX_INSTANCES {
            for votes in 0..=instances + 1 {
                match Quorum::new(instances, votes) {
                    Ok(quorum) => assert!(2 * quorum.votes() > instances, "{votes} of {instances}"),
                    Err(_) => assert!(2 * votes <= instances || votes > instances, "{votes} of {instances}"),
                }
            }
        }
    }

    /// P30, with lists of which one is part of the other.
    #[test]
    fn lists_that_differ_by_more_than_one_instance_may_miss_each_other() {
        for (one, other) in (1..=MAX_INSTANCES).flat_map(|one| (1..=MAX_INSTANCES).map(move |other| (one, other))) {
            let [majority, its] = [one, other].map(|instances| Quorum::majority(instances).unwrap());
            let is_safe = one.abs_diff(other) < 2 || (one.abs_diff(other) == 2 && one % 2 == 0);
            assert_eq!(majority.majorities_missed().any(|missed| missed == its), !is_safe, "{one} and {other}");
        }
        let all = Quorum::new(5, 5).unwrap();
        assert_eq!(
            all.majorities_missed().map(Quorum::instances).next(),
            Some(11),
            "a larger quorum misses none of its parts"
        );
    }

    #[test]
    fn bad_sizes_are_named() {
        assert_eq!(Quorum::majority(0), Err(QuorumError::NoInstances));
        assert_eq!(Quorum::majority(65), Err(QuorumError::TooManyInstances { instances: 65 }));
        assert_eq!(Quorum::new(5, 2), Err(QuorumError::BelowMajority { votes: 2, majority: 3 }));
        assert_eq!(Quorum::new(5, 6), Err(QuorumError::AboveInstances { votes: 6, instances: 5 }));
    }

    #[test]
    fn every_tally_agrees_with_the_definition() {
        for instances in 1..=9 {
            for votes in instances / 2 + 1..=instances {
                let quorum = Quorum::new(instances, votes).unwrap();
                for granted in 0..=instances {
                    for outstanding in 0..=instances - granted {
                        let reachable = granted + outstanding >= votes;
                        let expected = match (granted >= votes, reachable) {
                            (true, _) => Verdict::Won,
                            (false, true) => Verdict::Pending,
                            (false, false) => Verdict::Lost,
                        };
                        assert_eq!(quorum.tally(granted, outstanding), expected);
                    }
                }
            }
        }
    }
}
