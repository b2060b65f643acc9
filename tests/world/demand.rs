//! What users want to lock, and how they ask for it.

use std::sync::Arc;
use std::time::Duration;

use redquorum::{AcquireError, AllGuard, Guard, Holder, Redlock};

use crate::deeds::Deed;
use crate::invariants::bounds::Watch;
use crate::invariants::line::Place;
use crate::schedule::{Boxed, Schedule};
use crate::time::now;
use crate::world::World;

/// The keys of the resources; the third is reached through a namespace, too. The last are of what several have together.
pub(crate) const NAMES: [&str; 7] = ["a", "b", "space:c", "s#0", "s#1", "e", "s#2"];
/// The names of locks.
pub(crate) const LOCKS: usize = 3;

/// What it wants to lock, and how it asks.
#[derive(Clone, Debug)]
pub(crate) struct Demand {
    pub(crate) resources: u8,
    pub(crate) has_holder: bool,
    pub(crate) way: Way,
    /// For how long it wants what it gets to be renewed.
    pub(crate) max_hold: Option<Duration>,
}

impl Demand {
    /// Whether it is for names that are locked together.
    pub(crate) const fn is_of_several(&self) -> bool {
        self.resources.count_ones() > 1
    }

    /// The same for the first of its names.
    pub(crate) const fn of_one(self) -> Self {
        Self { resources: 1 << self.resources.trailing_zeros(), ..self }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Try,
    WaitAtMost(Duration),
    Wait,
}

type Acquired = Result<Guard, AcquireError>;

/// Asks a client on behalf of a user on some machine, mostly the same.
pub(crate) async fn ask_at(
    world: &Arc<World>,
    (user, index): (usize, usize),
    demand: &Demand,
    schedule: Schedule,
) -> Option<(Guard, u64)> {
    let wanted = demand.clone();
    ask_for(world, (user, index), (demand, schedule), true, |client| acquire(client, wanted)).await
}

/// The same, for anything; of a line or not, in which one is served after the other.
pub(crate) async fn ask_for<T: Send + 'static>(
    world: &Arc<World>,
    (user, index): (usize, usize),
    (demand, schedule): (&Demand, Schedule),
    is_in_line: bool,
    acquire: impl FnOnce(Redlock) -> Boxed<Result<T, AcquireError>>,
) -> Option<(T, u64)> {
    let (client, life) = world.client(index)?;
    let number = u64::from(demand.resources);
    note_demand(world, demand, schedule);
    world.note("asks", [index as u64, number], || format!("client {index}: {demand:?}, {schedule:?}"));
    let (watch, begun) = (Watch::begin_for(world, index, user), now());
    let place = is_in_line.then(|| Place::join(world, (index, life), demand, schedule)).flatten();
    let unpolled = Unpolled::join(world, (index, life), schedule);
    let result = schedule.carry_out(acquire(client)).await;
    if let (Some(place), Some(Ok(_))) = (&place, &result) {
        place.check();
    }
    drop((place, unpolled));
    match (schedule, demand.way) {
        (Schedule::Steadily, Way::Try) => watch.try_acquire(),
        (Schedule::Steadily, Way::WaitAtMost(limit)) => watch.acquire(limit),
        _ => {}
    }
    match result {
        Some(Ok(guard)) => return Some((guard, life)),
        Some(Err(error)) if world.scenario.is_steady && matches!(error, AcquireError::Contended(_)) => {
            world.check_contended((index, life), demand.resources, begun);
        }
        Some(Err(error)) => world.note("refused", [index as u64, number], || error.to_string()),
        None => world.history().stats.abandoned += 1,
    }
    None
}

/// A user that asks a client and may not poll for a while: what it is offered meanwhile stays with it (P22).
struct Unpolled<'a>(&'a World, (usize, u64));

impl<'a> Unpolled<'a> {
    fn join(world: &'a World, client: (usize, u64), schedule: Schedule) -> Option<Self> {
        (schedule != Schedule::Steadily).then(|| {
            world.history().unpolled.push(client);
            Self(world, client)
        })
    }
}

impl Drop for Unpolled<'_> {
    fn drop(&mut self) {
        let mut history = self.0.history();
        if let Some(at) = history.unpolled.iter().position(|client| *client == self.1) {
            history.unpolled.swap_remove(at);
        }
    }
}

pub(crate) fn note_demand(world: &World, demand: &Demand, schedule: Schedule) {
    let stats = &mut world.history().stats;
    stats.asked += 1;
    stats.did(match demand.way {
        Way::Try => Deed::Try,
        Way::WaitAtMost(_) => Deed::WaitAtMost,
        Way::Wait => Deed::Wait,
    });
    match schedule {
        Schedule::Steadily => {}
        Schedule::Dropped(..) => stats.did(Deed::DropFuture),
        Schedule::Unpolled(..) => stats.did(Deed::LeaveUnpolled),
        Schedule::Elsewhere(_) => stats.did(Deed::PollElsewhere),
    }
    if demand.is_of_several() {
        stats.did(Deed::SeveralResources);
    } else if demand.resources == 4 {
        stats.did(Deed::Namespace);
    }
}

pub(crate) fn names(resources: u8) -> Vec<&'static str> {
    NAMES.iter().enumerate().filter(|(bit, _)| resources & (1 << bit) != 0).map(|(_, name)| *name).collect()
}

/// Asks for a lock, or for several together, as it is demanded: both are made and asked in the same ways.
macro_rules! ask {
    ($lock:expr, $demand:expr) => {{
        let lock = $lock;
        let lock = if $demand.has_holder { lock.holder(Holder::from("me")) } else { lock };
        let lock = if let Some(longest) = $demand.max_hold { lock.max_hold(longest) } else { lock };
        match $demand.way {
            Way::Try => lock.try_acquire().await,
            Way::WaitAtMost(limit) => lock.wait_at_most(limit).acquire().await,
            Way::Wait => lock.acquire().await,
        }
    }};
}

pub(crate) fn acquire(client: Redlock, demand: Demand) -> Boxed<Acquired> {
    Box::pin(async move {
        let name = NAMES[demand.resources.trailing_zeros() as usize];
        let is_spaced = demand.resources == 4;
        ask!(if is_spaced { client.namespace("space:").lock("c") } else { client.lock(name) }, demand)
    })
}

/// As [`acquire`], of several names.
pub(crate) fn acquire_all(client: Redlock, demand: Demand) -> Boxed<Result<AllGuard, AcquireError>> {
    Box::pin(async move { ask!(client.lock_all(names(demand.resources)), demand) })
}
