//! Instances that are not used at all, and what is said of those that are (P16).

use std::time::Duration;

use redquorum::{AcquireError, AdmissionStatus, BadRequest, Cause, InstanceAnswer, Redlock};
use redquorum_testkit::{Fleet, Server};

use crate::support::{LOCK, Outcome, SLACK, all_vote, ms, on_every_kind, resynchronise, until};

const SHORT: Duration = Duration::from_secs(2);

fn builder(addresses: impl IntoIterator<Item = String>) -> redquorum::Builder {
    Redlock::builder().instances(addresses).ttl(SHORT).max_ttl(SHORT).instance_timeout(ms(1_000))
}

#[test]
fn a_replica_is_not_used() -> Outcome {
    on_every_kind(|program| async move {
        let master = Server::builder(&program).config("repl-diskless-sync-delay", "0").start()?;
        let replica = Server::start(&program)?;
        resynchronise(&replica, &master).await?;
        let redlock = builder([replica.address()]).build()?;
        let error = redlock.wait_connected(ms(3_000)).await.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains("it is a replica; locks need an independent master"), "{error}");
        let told = redlock.lock(LOCK).try_acquire().await;
        let Err(AcquireError::NoQuorum { reports, .. }) = told else { return Err("acquired on a replica".into()) };
        let answer = &reports[0].answer;
        let is_told = |cause: &Cause| cause.to_string().contains("it is a replica");
        assert!(matches!(answer, InstanceAnswer::NotSent(cause) if is_told(cause)), "{answer:?}");
        Ok(())
    })
}

#[test]
fn one_process_under_two_addresses_has_one_vote() -> Outcome {
    on_every_kind(|program| async move {
        let fleet = Fleet::start(&program, 2)?;
        let [first, second] = [fleet[0].address(), fleet[1].address()];
        let alias = first.replace("127.0.0.1", "localhost");
        let redlock = builder([first, alias, second]).build()?;
        let two_up = || redlock.instances().iter().filter(|status| status.connected).count() == 2;
        let said =
            |status: &redquorum::InstanceStatus| status.last_error.as_ref().is_some_and(|said| said.contains("same"));
        let refused = || two_up() && redlock.instances().iter().any(said);
        assert!(until(ms(5_000), refused).await, "{:?}", redlock.instances());
        let views = redlock.instances();
        let error = views.iter().filter(|status| !status.connected).find_map(|status| status.last_error.clone());
        let error = error.unwrap_or_default();
        assert!(error.contains("the same server process as"), "{error}");
        Ok(())
    })
}

#[test]
fn clients_with_different_max_ttl_do_not_share_an_instance() -> Outcome {
    on_every_kind(|program| async move {
        let server = Server::start(&program)?;
        let first = builder([server.address()]).connect().await?;
        all_vote(&first).await?;
        for other in [Duration::from_secs(9), Duration::from_secs(1)] {
            let client = builder([server.address()]).ttl(ms(500)).max_ttl(other).build()?;
            let error = client.wait_connected(ms(2_000)).await.err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains("2000 ms") && error.contains(&format!("{} ms", other.as_millis())), "{error}");
        }
        let above = first.lock(LOCK).ttl(Duration::from_secs(3)).try_acquire().await;
        assert!(matches!(above, Err(AcquireError::BadRequest(BadRequest::TtlAboveMax { .. }))), "{above:?}");
        Ok(())
    })
}

/// The procedure of docs/operations.md.
#[test]
fn max_ttl_is_changed_by_deleting_the_records_while_no_client_runs() -> Outcome {
    on_every_kind(|program| async move {
        let fleet = Fleet::start(&program, 3)?;
        let before = builder(fleet.addresses()).build()?;
        before.lock(LOCK).wait_at_most(SHORT + SLACK).acquire().await?.release().await?;
        before.shutdown(ms(2_000)).await?;
        drop(before);
        tokio::time::sleep(SHORT).await; // as long as a lock may live
        for server in fleet.iter() {
            server.command(&["DEL", crate::support::RECORD])?;
        }
        let longer = Duration::from_secs(3);
        let after = builder(fleet.addresses()).max_ttl(longer).build()?;
        after.lock(LOCK).ttl(longer).wait_at_most(longer + SLACK).acquire().await?.release().await?;
        Ok(())
    })
}

#[test]
fn what_is_known_of_an_instance_is_shown() -> Outcome {
    on_every_kind(|program| async move {
        let evicting = Server::builder(&program).config("maxmemory", "64mb").config("maxmemory-policy", "allkeys-lru");
        let fleet = Fleet::from(vec![Server::start(&program)?, evicting.start()?, Server::start(&program)?]);
        let long = Duration::from_secs(4); // a quarantine that outlasts a slow start
        let redlock = builder(fleet.addresses()).max_ttl(long).connect().await?;
        redlock.want_locks();
        assert!(until(SLACK, || redlock.instances().iter().all(|it| it.max_ttl.is_some())).await);
        let waits = redlock.instances();
        let in_quarantine = |status: &redquorum::InstanceStatus| matches!(status.admission, AdmissionStatus::Quarantine(left) if left <= long && !left.is_zero());
        assert!(waits.iter().any(in_quarantine), "{waits:?}");
        all_vote(&redlock).await?;
        fleet[2].kill()?;
        assert!(until(ms(3_000), || !redlock.instances()[2].connected).await);
        let views = redlock.instances();
        for (status, server) in views.iter().zip(fleet.iter()).take(2) {
            assert!(server.address().ends_with(&status.address), "{status:?}");
            assert!(status.connected && status.is_master == Some(true));
            assert_eq!(
                status.version.as_deref().unwrap_or_default().to_lowercase(),
                server.program().to_string().to_lowercase()
            );
            assert_eq!(status.run_id.as_ref(), server.info("server", "run_id")?.as_ref());
            assert_eq!(status.admission, AdmissionStatus::Admitted);
            assert!(status.clock_steps == 0);
            assert!(status.round_trip.is_some_and(|trip| trip < Duration::from_secs(1)), "{status:?}");
        }
        assert_eq!(views[0].evicts, None);
        assert_eq!(views[1].evicts.as_deref(), Some("allkeys-lru"));
        assert_eq!(views[2].admission, AdmissionStatus::Unknown);
        assert!(views[2].last_error.is_some());
        Ok(())
    })
}
