//! Names that are spread over groups of servers, each group a quorum of its own. The recipe "Many groups" says how one is added.

use std::collections::BTreeMap;

use redquorum::{FencingToken, Guard, Loss, Redlock};
use tokio::select;

use crate::Outcome;

/// A client of each group. The name of a group stays, also where its servers are replaced one by one: it decides what is locked there.
pub type Groups = BTreeMap<String, Redlock>;

/// How strongly a group attracts a name.
///
/// All clients must agree on it for ever, of whatever version, platform or language. The hashers of the standard library promise
/// nothing of that: one has random keys, and the algorithm of the other may change. So this is FNV-1a, which is ten lines anywhere. The
/// mixing at its end is that of splitmix64; without it, one of three groups gets half of the short names.
#[must_use]
pub fn weight(group: &str, name: &str) -> u64 {
    let bytes = group.bytes().chain([0xff]).chain(name.bytes()); // 0xff is in no text, so it ends the group
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

/// The group of a name (rendezvous hashing): one more group only takes names, the others exchange none.
pub fn home<'a>(groups: impl IntoIterator<Item = &'a str>, name: &str) -> Option<&'a str> {
    groups.into_iter().max_by_key(|group| (weight(group, name), *group))
}

/// Locks each name in its group.
#[derive(Clone, Debug)]
pub struct Spread {
    old: Groups,
    new: Groups,
}

impl Spread {
    /// Over these groups.
    #[must_use]
    pub fn over(groups: Groups) -> Self {
        Self { old: groups.clone(), new: groups }
    }

    /// While one list of groups replaces another: a name whose group changes is locked in both groups.
    #[must_use]
    pub const fn while_moving(old: Groups, new: Groups) -> Self {
        Self { old, new }
    }

    /// Waits until the lock of the name is free in each of its groups.
    ///
    /// # Cancel safety
    /// Safe: what was acquired is released in the background.
    ///
    /// # Errors
    /// When there is no group, or one does not give the lock.
    pub async fn acquire(&self, name: &str) -> Outcome<Held> {
        let old = home(self.old.keys().map(String::as_str), name).ok_or("there is no group")?;
        let new = home(self.new.keys().map(String::as_str), name).ok_or("there is no group")?;
        // All in the same order: who waits for the second has the first, so no two wait for each other.
        let first = self.old[old].lock(name).acquire().await?;
        let second = if old == new { None } else { Some(self.new[new].lock(name).acquire().await?) };
        let held = Held { first, second };
        if held.is_valid() { Ok(held) } else { Err("the first lock was lost during the wait for the second".into()) }
    }
}

/// A name that is locked: in its group, or in two.
#[derive(Debug)]
pub struct Held {
    first: Guard,
    second: Option<Guard>,
}

impl Held {
    fn guards(&self) -> impl Iterator<Item = &Guard> {
        [&self.first].into_iter().chain(&self.second)
    }

    /// The larger of the tokens.
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.guards().map(|guard| guard.fencing_token()).fold(self.first.fencing_token(), FencingToken::max)
    }

    /// Whether it may still be relied on.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.guards().all(|guard| guard.is_valid())
    }

    /// Waits until it is lost in either group.
    ///
    /// # Cancel safety
    /// Safe: it only waits.
    pub async fn lost(&self) -> Loss {
        let Some(second) = &self.second else { return self.first.lost().await };
        select! {
            loss = self.first.lost() => loss,
            loss = second.lost() => loss,
        }
    }

    /// Releases it.
    ///
    /// # Cancel safety
    /// Safe: the release continues in the background.
    ///
    /// # Errors
    /// When too few servers answered; it continues in the background.
    pub async fn release(self) -> Outcome {
        if let Some(second) = self.second {
            second.release().await?;
        }
        self.first.release().await?;
        Ok(())
    }
}
