//! What an operator does all the time: a new cluster, restarts one after another.

use std::sync::Arc;
use std::time::Duration;

use redquorum::{AcquireError, ExtendError, Redlock, Renewal};
use redquorum_testkit::Fleet;
use tokio::time::sleep;

use crate::support::{LOCK, Outcome, SLACK, all_vote, ms, on_every_kind, open, timed};

const SHORT: Duration = Duration::from_secs(2);

fn client_of(fleet: &Fleet) -> Outcome<Redlock> {
    let builder = Redlock::builder().instances(fleet.addresses()).ttl(SHORT).max_ttl(SHORT).renew(Renewal::Off);
    Ok(builder.instance_timeout(ms(1_000)).build()?)
}

#[test]
fn a_new_cluster_votes_max_ttl_after_a_client_first_wants_a_lock_however_old_it_is() -> Outcome {
    on_every_kind(|program| async move {
        let fleet = Fleet::start(&program, 5)?;
        sleep(SHORT + ms(1_200)).await;
        let redlock = client_of(&fleet)?;
        redlock.wait_connected(ms(5_000)).await?;
        let refused = redlock.lock(LOCK).try_acquire().await;
        let told = matches!(&refused, Err(AcquireError::InQuarantine { remaining: Some(left), .. }) if *left <= SHORT);
        assert!(told, "{refused:?}");
        let (guard, after) = timed(redlock.lock(LOCK).wait_at_most(SHORT + SLACK).acquire()).await;
        drop(guard?);
        println!("{program}: the first lock {after:.2?} after it was wanted, max_ttl {SHORT:?}");
        assert!(after <= SHORT + SLACK, "{after:?}");
        Ok(())
    })
}

#[test]
fn a_new_cluster_that_an_operator_opens_votes_at_once() -> Outcome {
    on_every_kind(|program| async move {
        let fleet = Fleet::start(&program, 5)?;
        let early = client_of(&fleet)?;
        early.wait_connected(ms(5_000)).await?;
        let refused = open(&fleet, SHORT).await.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(refused.contains("has a client that listens: redquorum:wake:"), "{refused}");
        drop(early);
        let gone = until_opened(&fleet).await;
        assert!(gone.is_ok(), "{gone:?}");
        let redlock = client_of(&fleet)?;
        redlock.wait_connected(ms(5_000)).await?;
        let guard = redlock.lock(LOCK).try_acquire().await?;
        assert!(guard.is_valid());
        let refused = open(&fleet, SHORT).await.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(refused.contains("has an admission record"), "{refused}");
        Ok(())
    })
}

/// Once the connections of a client that is gone are closed.
async fn until_opened(fleet: &Fleet) -> Outcome {
    for _ in 0..50 {
        if open(fleet, SHORT).await.is_ok() {
            return Ok(());
        }
        sleep(ms(50)).await;
    }
    open(fleet, SHORT).await
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
            sleep(SHORT / 10).await; // one that is not confirmed may take half of the ttl
            let (extended, refused) = tokio::join!(guard.extend(), other.lock(LOCK).try_acquire());
            match extended {
                Ok(_) | Err(ExtendError::Unconfirmed { .. }) => {}
                Err(lost) => return Err(lost.into()),
            }
            assert!(refused.is_err(), "a second holder");
        }
        rolling.await??;
        guard.extend().await?;
        sleep(ms(200)).await;
        assert!(guard.is_valid() && guard.fencing_token() == token);
        let repaired = || fleet.iter().all(|server| server.keys().is_ok_and(|keys| keys == [LOCK]));
        assert!(crate::support::until(SLACK, repaired).await, "repaired on every instance");
        assert!(guard.release().await?.was_still_held);
        Ok(())
    })
}
