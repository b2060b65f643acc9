//! Many ask at once, so that requests share commands: each has an answer of its own.

use futures_util::future::join_all;
use redquorum::Redlock;

use crate::world::World;

const LOCKS: [&str; 6] = ["s0", "s1", "s2", "s3", "s4", "s5"];

impl World {
    /// One has every other lock.
    pub(super) async fn check_several(&self, one: &Redlock, other: &Redlock) {
        let (theirs, free): (Vec<_>, Vec<_>) = LOCKS.iter().enumerate().partition(|(at, _)| at % 2 == 0);
        let held = join_all(theirs.iter().map(|(_, name)| one.lock(**name).try_acquire())).await;
        let held: Vec<_> = held.into_iter().filter_map(|result| self.must_give("asked for at once", result)).collect();
        let asked = join_all(LOCKS.iter().map(|name| other.lock(*name).try_acquire())).await;
        for (at, result) in asked.into_iter().enumerate() {
            if free.iter().any(|(free, _)| *free == at) {
                drop(self.must_give("asked for at once", result));
            } else {
                self.must_refuse("asked for at once", result);
            }
        }
        join_all(held.into_iter().map(redquorum::Guard::release)).await;
    }
}
