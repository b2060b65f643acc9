//! The clock of a client's own machine stands still for a while: it was paused or moved, and its clock
//! did not count the time. To the client all instances then seem to have jumped forward.
//!
//! Here it is set back, by which it shows as much less than the time that has passed.

use std::time::Duration;

use redquorum::testing::Machine;
use redquorum::{Builder, Guard, Loss, Redlock, Renewal};
use redquorum_testkit::{Fleet, Proxy, Server};
use tokio::time::{sleep, timeout};

use crate::support::{LOCK, Outcome, RECORD, SLACK, TTL, all_vote, ms, on_every_kind, until};

fn record(server: &Server) -> Outcome<String> {
    Ok(server.command(&["GET", RECORD])?.text().ok_or("no record")?)
}

fn set(builder: Builder, fleet: &Fleet, renewal: Renewal) -> Builder {
    builder.instances(fleet.addresses()).ttl(TTL).max_ttl(TTL).instance_timeout(ms(1_000)).renew(renewal)
}

async fn hold(client: &Redlock, name: &str) -> Outcome<Vec<Guard>> {
    let mut guards = Vec::new();
    for lock in 0..8 {
        guards.push(client.lock(format!("{name}:{lock}")).wait_at_most(TTL + SLACK).acquire().await?);
    }
    Ok(guards)
}

/// As long as it takes to move a machine to another host, and as long as it may sleep.
#[test]
fn a_client_whose_own_clock_stood_still_ends_nobody_elses_leases() -> Outcome {
    on_every_kind(|program| async move {
        for stood_still in [ms(40), ms(200), Duration::from_secs(60)] {
            let fleet = Fleet::start(&program, 5)?;
            let machine = Machine::default();
            let moved = set(machine.builder(), &fleet, Renewal::Auto).connect().await?;
            let other = set(Redlock::builder(), &fleet, Renewal::Auto).connect().await?;
            all_vote(&other).await?;
            let (own, others) = (hold(&moved, "own").await?, hold(&other, "others").await?);
            let records: Vec<String> = fleet.iter().map(record).collect::<Outcome<_>>()?;

            machine.stand_still(stood_still);
            // A quarantine of all would have ended every lease by then.
            sleep(TTL + ms(500)).await;
            let now: Vec<String> = fleet.iter().map(record).collect::<Outcome<_>>()?;
            assert_eq!(now, records, "somebody was put into quarantine after {stood_still:?}");
            assert!(others.iter().all(|guard| guard.is_valid()), "leases of others ended after {stood_still:?}");
            assert!(own.iter().all(|guard| guard.is_valid() && guard.remaining() <= TTL), "after {stood_still:?}");
            all_vote(&moved).await?;
            moved.lock(LOCK).wait_at_most(SLACK).acquire().await?.release().await?;
        }
        Ok(())
    })
}

#[test]
fn a_lease_ends_in_time_although_the_own_clock_stood_still() -> Outcome {
    on_every_kind(|program| async move {
        let fleet = Fleet::start(&program, 5)?;
        let machine = Machine::default();
        let moved = set(machine.builder(), &fleet, Renewal::Off).connect().await?;
        all_vote(&moved).await?;
        let guard = moved.lock(LOCK).wait_at_most(TTL + SLACK).acquire().await?;
        let told = tokio::spawn({
            let lease = guard.lease();
            async move { lease.lost().await }
        });
        sleep(ms(100)).await; // it is being waited for
        machine.stand_still(2 * TTL);
        // By the clock as it is there would be two more ttls.
        let loss = timeout(TTL + SLACK, told).await??;
        assert!(!guard.is_valid() && matches!(loss, Loss::Expired { .. }), "{loss:?}");
        Ok(())
    })
}

/// One instance alone cannot tell: it sits out a quarantine, once. Connecting takes so long here that
/// at one of the distances it once failed after the quarantine was written, and then again and again.
#[test]
fn a_step_that_is_found_when_the_client_is_back_costs_one_quarantine() -> Outcome {
    on_every_kind(|program| async move {
        let server = Server::start(&program)?;
        let proxy = Proxy::start(&server)?;
        let machine = Machine::default();
        let builder = machine.builder().instances([proxy.address()]).ttl(TTL).max_ttl(TTL);
        let client = builder.instance_timeout(ms(150)).build()?;
        client.wait_connected(Duration::from_secs(10)).await?;
        client.want_locks();
        assert!(until(SLACK, || record(&server).is_ok()).await);
        for one_way in [19, 22, 25, 28, 31, 34, 37, 40] {
            proxy.forward()?;
            client.wait_connected(Duration::from_secs(10)).await?;
            let mut records = vec![record(&server)?];
            proxy.black_hole()?;
            machine.stand_still(Duration::from_secs(3_600));
            assert!(until(SLACK, || !client.instances()[0].connected).await);
            proxy.delay(ms(one_way), ms(one_way))?;
            for _ in 0..150 {
                sleep(ms(20)).await;
                let now = record(&server)?;
                records.extend((records.last() != Some(&now)).then_some(now));
            }
            assert!(records.len() <= 2, "{one_way} ms: quarantines for the same step: {records:?}");
        }
        Ok(())
    })
}
