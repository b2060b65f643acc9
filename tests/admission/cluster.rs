//! Two services with different lists of instances that share one.

use redquorum::{Builder, Redlock};
use redquorum_testkit::{Fleet, Server};

use crate::support::{LOCK, Outcome, RECORD, SLACK, TTL, all_vote, ms, on_every_kind, until};

/// A client of these instances.
fn of(servers: &[Server]) -> Builder {
    let addresses = servers.iter().map(Server::address);
    Redlock::builder().instances(addresses).ttl(TTL).max_ttl(TTL).instance_timeout(ms(1_000))
}

/// The second has a quorum without the instance that they share.
#[test]
fn two_services_that_share_an_instance_both_hold_a_lock_unless_their_clusters_have_names() -> Outcome {
    on_every_kind(|program| async move {
        let fleet = Fleet::start(&program, 5)?;
        let (one, other) = (of(&fleet[..3]).connect().await?, of(&fleet[2..]).connect().await?);
        all_vote(&one).await?;
        all_vote(&other).await?;
        let first = one.lock(LOCK).try_acquire().await?;
        let second = other.lock(LOCK).try_acquire().await;
        assert!(first.is_valid() && second.is_ok(), "both hold it: the test bites");

        let fleet = Fleet::start(&program, 5)?;
        let one = of(&fleet[..3]).cluster("locks-a").connect().await?;
        all_vote(&one).await?;
        let first = one.lock(LOCK).try_acquire().await?;
        // With another ttl, as another service has: that does not hide it.
        let other_ttl = TTL + ms(1_000);
        let other = of(&fleet[2..]).cluster("locks-b").max_ttl(other_ttl).build()?;
        let told = || other.instances()[0].refusal.as_ref().is_some_and(|error| error.to_string().contains("locks-a"));
        other.want_locks();
        assert!(until(TTL + SLACK, told).await, "{:?}", other.instances());
        tokio::time::sleep(other_ttl + SLACK).await; // the other two would vote by now
        let error = other.lock(LOCK).try_acquire().await.unwrap_err().to_string();
        for words in
            ["cluster \"locks-a\" of 3", "cluster \"locks-b\" of 3", "is of another cluster; no lock is acquired"]
        {
            assert!(error.contains(words), "{error}");
        }
        assert!(first.is_valid() && one.lock("another").try_acquire().await.is_ok());
        let record = fleet[2].command(&["GET", RECORD])?.text().unwrap_or_default();
        assert!(record.ends_with(" locks-a/3/2"), "{record}");

        // What is to be done about it.
        first.release().await?;
        drop(one);
        tokio::time::sleep(TTL).await;
        fleet[2].command(&["DEL", RECORD])?;
        other.lock(LOCK).wait_at_most(2 * other_ttl + SLACK).acquire().await?.release().await?;
        Ok(())
    })
}

/// Both lists are of one service, before and after it has grown.
#[test]
fn a_list_that_has_grown_is_refused_by_the_instances_of_before() -> Outcome {
    on_every_kind(|program| async move {
        let fleet = Fleet::start(&program, 5)?;
        let before = of(&fleet[..3]).cluster("locks").connect().await?;
        all_vote(&before).await?;
        let after = of(&fleet).cluster("locks").build()?;
        let refusal = |at: usize| after.instances()[at].refusal.as_ref().map(ToString::to_string).unwrap_or_default();
        let told = |at: usize| refusal(at).contains("of 3");
        assert!(until(SLACK, || (0..3).all(told)).await, "{:?}", after.instances());
        assert!(after.lock(LOCK).try_acquire().await.is_err());
        assert!(before.lock(LOCK).try_acquire().await.is_ok());
        Ok(())
    })
}
