//! What an operator does all the time: a new cluster, its first use, restarts one after another.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redquorum::{AcquireError, ExtendError, Redlock, Renewal};
use redquorum_testkit::{Fleet, Server};
use tokio::time::sleep;

use crate::support::{LOCK, Outcome, RECORD, SLACK, all_vote, ms, on_every_kind, timed};

const SHORT: Duration = Duration::from_secs(2);

fn client_of(fleet: &Fleet) -> Outcome<Redlock> {
    let builder = Redlock::builder().instances(fleet.addresses()).ttl(SHORT).max_ttl(SHORT).renew(Renewal::Off);
    Ok(builder.instance_timeout(ms(1_000)).build()?)
}

#[test]
fn a_new_cluster_opens_by_itself_max_ttl_after_its_start() -> Outcome {
    on_every_kind(|program| async move {
        let first = async {
            let fleet = Fleet::start(&program, 5)?;
            let redlock = client_of(&fleet)?;
            let waiting = redlock.lock(LOCK).try_acquire().await;
            drop(waiting); // not connected yet, or in quarantine
            redlock.wait_connected(ms(5_000)).await?;
            let refused = redlock.lock(LOCK).try_acquire().await;
            let told =
                matches!(&refused, Err(AcquireError::InQuarantine { remaining: Some(left), .. }) if *left <= SHORT);
            assert!(told, "{refused:?}");
            let guard = redlock.lock(LOCK).wait_at_most(SHORT + SLACK).acquire().await?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>((fleet, guard))
        };
        let (opened, after) = timed(first).await;
        drop(opened?);
        println!("{program}: the first lock {after:.2?} after the start, max_ttl {SHORT:?}");
        assert!(after <= SHORT + SLACK, "{after:?}");
        Ok(())
    })
}

#[test]
fn a_cluster_that_was_never_used_opens_at_once_for_several_clients() -> Outcome {
    on_every_kind(|program| async move {
        let fleet = Fleet::start(&program, 5)?;
        sleep(SHORT + ms(1_200)).await;
        let acquire = |index: usize| {
            let redlock = client_of(&fleet);
            tokio::spawn(async move {
                let work = async {
                    let redlock = redlock?;
                    redlock.wait_connected(ms(5_000)).await?;
                    let lock = redlock.lock(format!("orders:{index}")).try_acquire().await?;
                    Ok::<_, Box<dyn std::error::Error + Send + Sync>>((redlock, lock))
                };
                timed(work).await
            })
        };
        let clients: Vec<_> = (0..6).map(acquire).collect();
        let mut held = Vec::new();
        for client in clients {
            let (opened, after) = client.await?;
            println!("{program}: the first lock of a client after {after:.2?}");
            held.push(opened?);
            assert!(after < SHORT, "at once, not after a quarantine");
        }
        Ok(())
    })
}

/// No record is left, no statistics tell of a flush and nobody is connected who knows, so all seem blank. A third that was
/// not, but whose clock was set back to before its first vote, looks the same.
#[test]
fn instances_of_which_one_has_a_token_are_not_taken_for_new_ones() -> Outcome {
    no_second_holder_behind(|fleet| {
        let kept = fleet.iter().next().map(Server::port);
        for server in fleet.iter() {
            server.command(&["DEL", RECORD])?;
            if Some(server.port()) != kept {
                server.command(&["DEL", LOCK, "redquorum:fence"])?;
            }
        }
        Ok(())
    })
}

/// What a client had asked for before it died may come that late: it had seen no flush.
#[test]
#[expect(clippy::disallowed_methods, reason = "the servers' clock is that of this machine")]
fn a_record_of_an_unused_instance_that_comes_behind_a_flush_lets_nobody_in() -> Outcome {
    no_second_holder_behind(|fleet| {
        for server in fleet.iter() {
            let record = server.command(&["GET", RECORD])?.text().unwrap_or_default();
            let process = record.split(' ').next().unwrap_or_default();
            let late = SystemTime::now().duration_since(UNIX_EPOCH)? + SHORT - ms(100);
            server.command(&["FLUSHALL"])?;
            let record = format!("{process} {} {} blank 7", late.as_millis(), SHORT.as_millis());
            server.command(&["SET", RECORD, &record])?;
        }
        Ok(())
    })
}

/// A lock is kept by a client that is gone, the servers `forget` it, and another client waits for it.
fn no_second_holder_behind(forget: impl Fn(&Fleet) -> Outcome + Sync) -> Outcome {
    let forget = &forget;
    on_every_kind(|program| async move {
        let fleet = Fleet::start(&program, 3)?;
        sleep(SHORT + ms(1_200)).await;
        let first = client_of(&fleet)?;
        first.wait_connected(ms(5_000)).await?;
        let left = first.lock(LOCK).try_acquire().await?.keep_until_expiry();
        let next = async {
            first.shutdown(ms(1_000)).await?;
            drop(first);
            sleep(ms(200)).await; // until its connections are closed
            forget(&fleet)?;
            let other = client_of(&fleet)?;
            other.wait_connected(ms(5_000)).await?;
            let guard = other.lock(LOCK).wait_at_most(2 * SHORT + SLACK).acquire().await?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>((other, guard))
        };
        let (acquired, after) = timed(next).await;
        let (_other, guard) = acquired?;
        assert!(after >= left, "{program}: a second holder after {after:?}, the first for {left:?}");
        guard.release().await?;
        Ok(())
    })
}

#[test]
fn a_lease_that_is_renewed_survives_a_restart_of_every_instance() -> Outcome {
    on_every_kind(|program| async move {
        let fleet = Arc::new(Fleet::start(&program, 5)?);
        let redlock = client_of(&fleet)?;
        let guard = redlock.lock(LOCK).wait_at_most(SHORT + SLACK).acquire().await?;
        let token = guard.fencing_token();
        let other = client_of(&fleet)?;
        let (restarts, watcher) = (Arc::clone(&fleet), client_of(&fleet)?);
        let rolling = tokio::spawn(async move {
            for server in restarts.iter() {
                all_vote(&watcher).await?;
                server.restart()?;
                let down = || watcher.instances().iter().any(|status| !status.connected);
                crate::support::until(ms(300), down).await;
            }
            all_vote(&watcher).await
        });
        while !rolling.is_finished() {
            sleep(SHORT / 3).await;
            match guard.extend().await {
                Ok(_) | Err(ExtendError::Unconfirmed { .. }) => {}
                Err(lost) => return Err(lost.into()),
            }
            let refused = other.lock(LOCK).try_acquire().await;
            assert!(refused.is_err(), "a second holder");
        }
        rolling.await??;
        guard.extend().await?;
        sleep(ms(200)).await;
        assert!(guard.is_valid() && guard.fencing_token() == token);
        for server in fleet.iter() {
            assert_eq!(server.keys()?, [LOCK], "repaired on every instance");
        }
        assert!(guard.release().await?.was_still_held);
        Ok(())
    })
}
