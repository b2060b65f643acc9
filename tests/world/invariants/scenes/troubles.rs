//! Servers and networks that are broken where all is said to be well.

use std::sync::Arc;
use std::time::Duration;

use redquorum::Renewal;
use tokio::io::AsyncWriteExt;
use tokio::time::sleep;

use super::{Scene, scene};
use crate::world::World;

/// As often as what is broken is broken again.
const TICK: Duration = Duration::from_millis(1);

/// Deletes all keys of locks, now and then until the end.
fn forget_all(world: &Arc<World>) {
    forget_after(world, Duration::ZERO);
}

/// The same from then on: what is put back is deleted, too.
fn forget_after(world: &Arc<World>, time: Duration) {
    let servers = world.servers.clone();
    tokio::spawn(async move {
        sleep(time).await;
        loop {
            servers.iter().for_each(|server| server.delete_locks());
            sleep(TICK).await;
        }
    });
}

pub(super) fn scenes() -> Vec<Scene> {
    let mut scenes = of_connections();
    scenes.extend([
        scene!("a client whose runtime has ended lets nobody wait", |world| {
            world.servers.iter().for_each(|server| server.hang());
            let client = world.redlock(0);
            world.check_ended(client).await;
        }),
        scene!("a release is confirmed when all is well", |world| {
            let client = world.redlock(0);
            world.servers.iter().for_each(|server| server.deny_tracking());
            forget_after(&world, world.scenario.ttl * 3 / 2);
            world.check_kept(&[(0, client)]).await;
        }),
        scene!("everybody in a line gets in", |world| {
            world.servers.iter().for_each(|server| server.hang());
            let client = world.redlock(0);
            let ended = client.clone();
            tokio::spawn(async move {
                sleep(TICK * 5).await;
                ended.shutdown(Duration::from_secs(1)).await
            });
            world.check_crowd(&client).await;
        }),
        scene!("a refused try of its holder elsewhere leaves a lock as it is", |world| {
            let guard = world.redlock(0).lock("mine").renew(Renewal::Off).acquire().await.expect("a lock that is free");
            sleep(world.scenario.ttl).await;
            world.check_left_as_it_is(&guard);
        }),
        scene!("whoever has a lock is seen", |world| {
            forget_all(&world);
            world.check_taken_away(&world.redlock(0), &world.redlock(1)).await;
        }),
        scene!("a lock is taken away on every instance", |world| {
            world.servers[0].hang();
            world.check_taken_away(&world.redlock(0), &world.redlock(1)).await;
        }),
        scene!("a lock that was taken away is lost", |world| {
            let (number, _guard) = world.gives(0, "a", 1).await;
            let other = world.redlock(0).lock("other").acquire().await.expect("a lock that is free");
            let by = world.redlock(1).inspect("other").await.expect("an answer");
            let by = by.holder().expect("a holder").by.clone();
            let forced = world.redlock(1).force_release("other", &by).await.expect("an answer");
            world.check_taken(&forced, vec![number]).await;
            drop(other);
        }),
        scene!("a forced release tells of every instance", |world| {
            let _guard = world.redlock(0).lock("other").acquire().await.expect("a lock that is free");
            let by = world.redlock(1).inspect("other").await.expect("an answer");
            let by = by.holder().expect("a holder").by.clone();
            let mut forced = world.redlock(1).force_release("other", &by).await.expect("an answer");
            forced.released_on.pop();
            world.check_taken(&forced, Vec::new()).await;
        }),
        scene!("what is free is given", |world| {
            let _guard = world.redlock(1).lock("read").acquire().await.expect("a lock that is free");
            world.check_calm_together(&[(0, world.redlock(0)), (1, world.redlock(1))]).await;
        }),
        scene!("observers see a leader in time", |world| {
            sleep(world.scenario.ttl).await;
            world.check_observed_since(Duration::ZERO);
        }),
        scene!("nobody is remembered in the end", |world| {
            let _guard = world.redlock(0).lock("a").acquire().await.expect("a lock that is free");
            let waits = world.redlock(1);
            tokio::spawn(async move { drop(waits.lock("a").acquire().await) });
            sleep(world.scenario.ttl * 2).await;
            world.check_all_is_forgotten();
        }),
    ]);
    scenes
}

fn of_connections() -> Vec<Scene> {
    vec![
        scene!("a silent connection is given up", |world| {
            let (mut ours, _theirs) = world.links[0][0].connect(|| true).await.expect("a network");
            for _ in 0..5 {
                ours.write_all(b"*6\r\n$3\r\nSET\r\n$1\r\na\r\n$5\r\n:mine\r\n$2\r\nNX\r\n$2\r\nPX\r\n$3\r\n300\r\n")
                    .await
                    .expect("a connection");
                sleep(TICK).await;
            }
            sleep(Duration::from_secs(10)).await;
            world.check_silent();
        }),
        scene!("a client connects again", |world| {
            world.servers[0].stop();
            sleep(TICK * 10).await;
            world.check_connected(0, &world.redlock(0)).await;
        }),
        scene!("the simulated servers know every command", |world| {
            let (mut ours, theirs) = world.links[0][0].connect(|| true).await.expect("a network");
            let server = world.servers[0].clone();
            tokio::spawn(async move { server.serve(theirs).await });
            ours.write_all(b"*1\r\n$5\r\nDANCE\r\n").await.expect("a connection");
            sleep(TICK * 10).await;
            world.check_tasks();
        }),
    ]
}
