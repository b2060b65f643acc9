//! P16: clients of a cluster with a name agree on it, on its size and its quorum.

use redquorum::testing::{Cluster, Data};
use redquorum::{AcquireError, Builder, Redlock};
use tokio::time::sleep;

use crate::support::{held, secs, settle};

/// A client that is not what the others are, after it has had time to be told; and what it is told.
async fn second(builder: Builder) -> (Redlock, String) {
    let redlock = builder.build().unwrap();
    sleep(secs(2)).await;
    let error = redlock.lock("other").try_acquire().await.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
    (redlock, error.to_string())
}

#[tokio::test(start_paused = true)]
async fn whoever_comes_second_with_other_settings_is_told_both_values() {
    let cluster = Cluster::new(3);
    let first = cluster.builder().cluster("locks-a").connect().await.unwrap();
    let guard = held(&first, "a").await;
    let ours = "its clients are set to cluster \"locks-a\" of 3 instances with a quorum of 2";
    for (builder, theirs) in [
        (cluster.builder().cluster("locks-b"), "cluster \"locks-b\" of 3 instances with a quorum of 2"),
        (cluster.builder().cluster("locks-a").quorum(3), "cluster \"locks-a\" of 3 instances with a quorum of 3"),
        (cluster.builder(), "no cluster"),
    ] {
        let (_, told) = second(builder).await;
        assert!(told.contains(&format!("{ours}, this one to {theirs};")), "{told}");
    }
    assert!(guard.is_valid());
    let same = cluster.builder().cluster("locks-a").connect().await.unwrap();
    assert!(same.lock("b").try_acquire().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_name_among_clients_that_have_none_is_told_as_well() {
    let cluster = Cluster::new(3);
    let first = cluster.builder().connect().await.unwrap();
    let _guard = held(&first, "a").await;
    let (_, told) = second(cluster.builder().cluster("locks-a")).await;
    assert!(told.contains("its clients are set to no cluster, this one to cluster"), "{told}");
}

/// The others go on with what they hold, and with the instances that are theirs.
#[tokio::test(start_paused = true)]
async fn a_stranger_that_takes_over_an_instance_keeps_the_others_from_new_locks_until_it_is_gone() {
    let cluster = Cluster::new(3);
    let first = cluster.builder().cluster("locks-a").connect().await.unwrap();
    let guard = held(&first, "a").await;
    let stranger = cluster.builder().cluster("locks-b").build().unwrap();
    settle().await;
    // It comes first when one of them is restarted without its data.
    cluster.instance(2).stop();
    sleep(secs(2)).await;
    let mut tries = 0;
    while !first.instances()[2].refusal.as_ref().is_some_and(|reason| reason.to_string().contains("locks-b")) {
        assert!(tries < 200, "never the stranger: {:?}", first.instances()[2]);
        tries += 1;
        cluster.instance(2).start(Data::Nothing);
        sleep(secs(3)).await;
    }
    assert!(guard.is_valid(), "it is renewed on the other two");
    let told = first.lock("b").try_acquire().await.unwrap_err().to_string();
    assert!(told.contains("is of another cluster; no lock is acquired"), "{told}");
    let counted: Vec<u64> = first.instances().iter().map(|status| status.counts.of("cluster_conflict")).collect();
    assert!(counted.iter().all(|count| *count > 0), "not as if there were no connections: {counted:?}");
    drop(stranger);
    cluster.instance(2).start(Data::Nothing);
    sleep(secs(15)).await;
    assert!(first.lock("b").try_acquire().await.is_ok());
    assert!(guard.is_valid());
}

/// P30: both go on beside each other, and exclude each other; a list that is two longer is refused.
#[tokio::test(start_paused = true)]
async fn a_list_of_one_instance_more_is_let_in_and_one_of_two_more_is_told() {
    let cluster = Cluster::new(5);
    let of = |count: usize| cluster.builder_of_first(count).cluster("locks-a");
    let before = of(3).connect().await.unwrap();
    let guard = held(&before, "a").await;
    let (_, told) = second(of(5)).await;
    assert!(told.contains("of 3 instances with a quorum of 2, this one to"), "{told}");
    let after = of(4).connect().await.unwrap();
    sleep(secs(15)).await;
    assert!(guard.is_valid());
    assert!(after.lock("a").try_acquire().await.unwrap_err().is_contended());
    let _second = held(&after, "b").await;
    assert!(before.lock("b").try_acquire().await.unwrap_err().is_contended());
    // Whoever has the shorter list goes by the longer record, and would be told by a list of two more.
    drop((guard, before));
    assert!(of(5).connect().await.unwrap().lock("c").wait_at_most(secs(30)).acquire().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_is_not_there_is_no_other_cluster() {
    let cluster = Cluster::new(3);
    cluster.instance(0).stop();
    let first = cluster.builder().cluster("locks-a").connect().await.unwrap();
    sleep(secs(15)).await;
    assert!(first.lock("b").try_acquire().await.is_ok());
}
