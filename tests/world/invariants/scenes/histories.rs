//! What users are said to have been given, and what came of it.

use std::time::Duration;

use redquorum::Redlock;
use redquorum::testing::simulation::{Denial, StepKind, lease_of};
use tokio::time::sleep;

use super::{Scene, scene};
use crate::history::Attached;
use crate::invariants::bounds::Watch;
use crate::invariants::kept::Kept;
use crate::recorder::Recorder;
use crate::schedule::Boxed;
use crate::time::now;
use crate::users::User;

/// The lock that users of scenes rely on, by its bit, and two permits.
const A: u8 = 1;
const PERMITS: [u8; 2] = [1 << 3, 1 << 4];

/// Longer than anything that is not about a ttl may take.
const LONG: Duration = Duration::from_secs(20);

/// An operation that takes this long.
macro_rules! takes_long {
    ($breaks:literal, |$watch:ident| $ends:expr) => {
        scene!($breaks, |world| {
            let $watch = Watch::begin(&world, 0);
            sleep(LONG).await;
            $ends;
        })
    };
    ($breaks:literal) => {
        takes_long!($breaks, |watch| watch.round($breaks))
    };
}

pub(super) fn scenes() -> Vec<Scene> {
    let mut scenes = of_leases();
    scenes.extend(of_ends());
    scenes.extend(of_moves());
    scenes.extend(of_operators());
    scenes.extend([
        takes_long!("a try ends in time", |watch| watch.try_acquire()),
        takes_long!("a shutdown ends in time", |watch| watch.shutdown(Duration::ZERO)),
        takes_long!("an extend ends in time"),
        takes_long!("an inspection ends in time"),
        takes_long!("a forced release ends in time"),
        takes_long!("a leader is told in time"),
    ]);
    scenes
}

fn of_leases() -> Vec<Scene> {
    vec![
        scene!("exclusion", |world| {
            let _one = world.gives(0, "a", A).await;
            let _other = world.gives(1, "b", A).await;
        }),
        scene!("no reader beside a writer", |world| {
            let _writer = world.gives(0, "a", A).await;
            let (redlock, life) = world.client(1).expect("a client");
            let reader = redlock.rw_lock("b").read().await.expect("a lock that is free");
            world.given_to_reader((1, life), A, &lease_of(&reader));
        }),
        scene!("never more permits than there are", |world| {
            let _one = world.gives(0, "a", PERMITS[0]).await;
            let _other = world.gives(1, "b", PERMITS[1]).await;
            let _third = world.gives(0, "c", PERMITS[0]).await;
        }),
        scene!("a lease is no longer than what was granted", |world| {
            let (number, guard) = world.gives(0, "a", A).await;
            let value = world.history().holds[number].value.clone();
            world.judge().rounds_of(&value).votes.truncate(1);
            world.check_certified(number);
            drop(guard);
        }),
        scene!("what is over is not extended", |world| {
            let (number, guard) = world.gives(0, "a", A).await;
            sleep(world.scenario.ttl / 4).await;
            guard.extend().await.expect("a lease that is held");
            world.absorb();
            let value = world.history().holds[number].value.clone();
            for vote in world.judge().rounds_of(&value).votes.iter_mut().filter(|vote| !vote.extends()) {
                vote.ttl /= 10;
            }
            world.check_certified(number);
        }),
        scene!("a grant is above every token of its quorum", |world| {
            let (number, _guard) = world.gives(0, "a", A).await;
            let value = world.history().holds[number].value.clone();
            world.judge().rounds_of(&value).votes.iter_mut().for_each(|vote| vote.is_whole = false);
            world.check_grants(number);
        }),
        scene!("no lock is given by answers that came too late", |world| {
            let (number, _guard) = world.gives(0, "a", A).await;
            let value = world.history().holds[number].value.clone();
            world.judge().rounds_of(&value).votes.iter_mut().for_each(|vote| vote.ttl /= 5);
            world.check_grants(number);
        }),
        scene!("a mark keeps others out", |world| {
            let (number, guard) = world.gives(0, "a", A).await;
            let (since, time) = (now(), world.scenario.max_ttl * 3 / 2);
            world.let_go(number);
            guard.keep_for(time).await.expect("a lease that is held");
            let value = world.history().holds[number].value.clone();
            world.kept(Kept { resources: A, value, since, time });
            world.servers.iter().for_each(|server| server.delete_locks());
            let _other = world.gives(1, "a", A).await;
        }),
    ]
}

fn of_operators() -> Vec<Scene> {
    vec![
        scene!("servers in use are not opened", |world| world.check_opened(true)),
        scene!("a record has the time that was set", |world| world.check_record(0, world.scenario.ttl / 2)),
        scene!("records are set when all is well", |world| {
            world.servers.iter().for_each(|server| server.hang());
            world.history().calm_since = Some(Duration::ZERO);
            Recorder::new(&world).live().await;
        }),
        scene!("nobody starves beside a crowd", |world| {
            let (_number, _guard) = world.gives(1, "a", A).await;
            let user = User::new(&world, 0);
            let asks = |client: Redlock| Box::pin(async move { client.lock("a").acquire().await }) as Boxed<_>;
            drop(user.must_get("nobody starves beside a crowd", world.scenario.ttl, asks).await);
        }),
    ]
}

fn of_moves() -> Vec<Scene> {
    vec![
        scene!("what is attached was stored by a quorum", |world| {
            let (number, guard) = world.gives(0, "a", A).await;
            let value = world.history().holds[number].value.clone();
            let (_, life) = world.client(0).expect("a client");
            world.detaches((0, life), number);
            let (other, life) = world.client(1).expect("a client");
            let attached = Attached { since: now(), is_late: false };
            let guard = other.attach(&guard.detach()).await.expect("a lease that a quorum has");
            world.absorb();
            world.judge().rounds_of(&value).votes.retain(|vote| vote.kind != StepKind::Keep || vote.server == 0);
            world.attached((1, life), attached, &guard);
        }),
        scene!("nothing is renewed for who has detached it", |world| {
            let (number, _guard) = world.gives(0, "a", A).await;
            let (_, life) = world.client(0).expect("a client");
            world.detaches((0, life), number);
            sleep(world.scenario.ttl * 2).await;
            world.absorb();
        }),
        scene!("a lease that a quorum keeps is not lost", |world| {
            let (number, guard) = world.gives(0, "a", A).await;
            let client = world.redlock(0);
            tokio::spawn(async move { drop(client.shutdown(Duration::from_secs(1)).await) });
            world.check_kept_until_lost(number, &guard.lease()).await;
        }),
        scene!("what is held is kept where memory is full", |world| {
            let (number, guard) = world.gives(0, "a", A).await;
            let lease = guard.lease();
            drop(guard);
            world.servers.iter().for_each(|server| server.deny(Some(Denial::Memory)));
            world.check_kept_while_full(number, &lease);
        }),
    ]
}

fn of_ends() -> Vec<Scene> {
    vec![
        scene!("validity never comes back", |world| {
            let (number, _guard) = world.gives(0, "a", A).await;
            world.history().holds[number].was_over = true;
            world.has_ended(number);
        }),
        scene!("a loss is told", |world| {
            let (number, guard) = world.gives(0, "a", A).await;
            let lease = guard.lease();
            world.let_go(number);
            guard.release().await.expect("a lease that is held");
            let (told, pause) = (std::future::pending(), world.scenario.ttl / 20);
            world.look_on_until((number, 0), (lease, told), pause, false).await;
        }),
        scene!("no lease outlives a shutdown", |world| {
            let guard = world.redlock(1).lock("a").acquire().await.expect("a lock that is free");
            world.check_ended_with_client(0, Some(guard));
        }),
        scene!("no lock is given after a shutdown", |world| {
            let (_, life) = world.client(0).expect("a client");
            world.note_shut_down((0, life)).await;
            let _guard = world.gives(0, "a", A).await;
        }),
        scene!("a try is contended only by who holds the lock", |world| {
            let (_, life) = world.client(0).expect("a client");
            world.check_contended((0, life), A, now());
        }),
        scene!("no key is left", |world| {
            let _guard = world.redlock(0).lock("a").acquire().await.expect("a lock that is free");
            world.check_no_keys();
        }),
        scene!("every user is done in the end", |world| {
            world.begin_user(tokio::spawn(std::future::pending()));
            world.check_users_end().await;
        }),
        scene!("nothing panics", |world| {
            world.begin_user(tokio::spawn(async { std::panic::resume_unwind(Box::new("of a user")) }));
            world.check_users_end().await;
        }),
        scene!("tables are bounded", |world| {
            let redlock = world.redlock(0);
            let mut guards = Vec::new();
            for number in 0..201 {
                guards.push(redlock.lock(format!("{number}")).acquire().await);
            }
            world.check_tables_are_bounded();
        }),
        scene!("a client whose runtime has ended gives nothing", |world| {
            let client = world.redlock(0);
            world.check_ended(client).await;
        }),
        scene!("a client whose runtime has ended is not connected", |world| {
            let client = world.redlock(0);
            world.check_ended(client).await;
        }),
    ]
}
