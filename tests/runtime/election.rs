//! One leads, the others know who, and see leaders in their order.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use redquorum::testing::{Cluster, Data, TestInstance};
use redquorum::{Election, FencingToken, LeaderError, Leadership, Loss, Redlock, Renewal};
use tokio::time::{sleep, timeout};

use crate::support::{TIMEOUT, how_many_have, ms, renewing, secs, settle, timed};

const TTL: std::time::Duration = secs(9);

async fn clients<const N: usize>(cluster: &Cluster) -> [Redlock; N] {
    let mut clients = Vec::new();
    for _ in 0..N {
        clients.push(cluster.builder().ttl(TTL).connect().await.unwrap());
    }
    clients.try_into().unwrap()
}

async fn leader(election: &Election) -> Option<(String, FencingToken)> {
    election.leader().await.unwrap().map(|leader| (leader.info, leader.token))
}

fn seen(leadership: &Leadership) -> (String, FencingToken) {
    (leadership.info().to_owned(), leadership.fencing_token())
}

fn remove(cluster: &Cluster) {
    for instance in cluster.instances() {
        instance.remove("e");
    }
}

#[tokio::test(start_paused = true)]
async fn one_leads_and_everybody_knows_who_under_which_token() {
    let cluster = Cluster::new(3);
    let [one, other, worker] = clients(&cluster).await;
    let asked = worker.election("e");
    assert_eq!(leader(&asked).await, None);
    let first = one.election("e").campaign("10.0.0.1:80 100%").await.unwrap();
    let found = asked.leader().await.unwrap().unwrap();
    assert_eq!((found.info.as_str(), found.token), ("10.0.0.1:80 100%", first.fencing_token()));
    assert_eq!(found.client, one.client_id());

    let next = tokio::spawn(other.election("e").campaign("two"));
    settle().await;
    assert!(worker.lock("e").try_acquire().await.unwrap_err().is_contended(), "the lock of this name is behind it");
    let first_token = first.fencing_token();
    assert!(first.resign().await.unwrap().was_still_held);
    let (next, took) = timed(next).await;
    let next = next.unwrap().unwrap();
    assert!(took < ms(20) && next.fencing_token() > first_token);
    assert_eq!(leader(&asked).await, Some(seen(&next)));
    next.resign().await.unwrap();
    assert_eq!(leader(&asked).await, None);
    let _lock = worker.lock("e").acquire().await.unwrap();
    assert_eq!(leader(&asked).await, None, "who has the lock and nothing to say leads nobody");
}

#[tokio::test(start_paused = true)]
async fn the_value_tells_the_token_of_its_leader_also_above_one_that_is_stored() {
    let cluster = Cluster::new(5);
    let [worker] = clients(&cluster).await;
    for ahead in [ms(300), secs(30)] {
        let late = cluster.builder_with_wall_clock_behind(ms(500)).connect().await.unwrap();
        for instance in cluster.instances().take(4) {
            let score = instance.wall_us() + u64::try_from(ahead.as_micros()).unwrap() - 1_735_689_600_000_000;
            #[expect(clippy::cast_precision_loss, reason = "it is below 2^53")]
            instance.set_token_score("e", score as f64);
        }
        let leadership = late.election("e").campaign("me").await.unwrap();
        let stats = late.stats();
        assert_eq!((stats.acquired, stats.acquire_rounds), (1, 3), "one attempt, which was repeated above it");
        assert_eq!(leader(&worker.election("e")).await, Some(seen(&leadership)));
        sleep(TIMEOUT).await;
        let values: Vec<_> = cluster.instances().filter_map(|instance| instance.value("e")).collect();
        assert!(values.len() >= 4 && values.iter().all(|value| *value == values[0]), "no former value stays");
        assert!(String::from_utf8_lossy(&values[0]).contains(&leadership.fencing_token().to_string()));
        leadership.resign().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_leadership_is_never_handed_over() {
    let (cluster, redlock) = renewing(3).await;
    let election = redlock.election("e");
    let mut leadership = election.campaign("0").await.unwrap();
    for candidate in 1..4 {
        let next = tokio::spawn(election.campaign(&candidate.to_string()));
        let lock = tokio::spawn(redlock.lock("e").acquire());
        settle().await;
        drop(leadership);
        leadership = timeout(secs(2), next).await.unwrap().unwrap().unwrap();
        assert_eq!(leader(&election).await, Some(seen(&leadership)));
        assert_eq!(leadership.fencing_token().get() % 4096, 0, "it has a grant of its own");
        lock.abort();
        settle().await;
    }
    drop(leadership);
    // What a lock lets go is no leadership either.
    let lock = redlock.lock("e").acquire().await.unwrap();
    let next = tokio::spawn(election.campaign("last"));
    settle().await;
    drop(lock);
    let last = timeout(secs(2), next).await.unwrap().unwrap().unwrap();
    assert_eq!(leader(&election).await, Some(seen(&last)));
    assert_eq!(redlock.stats().handed_over, 0);
    drop(last);
    sleep(TIMEOUT).await;
    assert_eq!(how_many_have(&cluster, "e"), 0);
}

#[tokio::test(start_paused = true)]
async fn observers_see_each_leader_at_once_and_tokens_that_only_grow() {
    let cluster = Cluster::new(3);
    let [one, other, worker] = clients(&cluster).await;
    let mut observer = worker.election("e").observe().unwrap();
    let mut own = one.election("e").observe().unwrap();
    let mut last = None;
    for (at, candidate) in [&one, &other, &one, &other].into_iter().enumerate() {
        let leadership = candidate.election("e").campaign(&at.to_string()).await.unwrap();
        let (seen_by, took) = timed(observer.next()).await;
        assert_eq!((seen_by.info, seen_by.token), seen(&leadership));
        assert!(took < ms(50), "{took:?}");
        assert!(Some(seen_by.token) > last);
        last = Some(leadership.fencing_token());
        assert_eq!(own.next().await.token, leadership.fencing_token());
        assert!(timeout(secs(60), observer.next()).await.is_err(), "one that stays is told once");
        leadership.resign().await.unwrap();
        sleep(ms(10)).await;
    }
}

/// P13: its value tells its token, also below the floor.
#[tokio::test(start_paused = true)]
async fn a_leader_whose_token_was_forgotten_is_seen_under_it_and_followed_under_a_larger_one() {
    let cluster = Cluster::new(3);
    let [one, other, worker] = clients(&cluster).await;
    let first = one.election("e").campaign("first").await.unwrap();
    sleep(secs(120)).await;
    assert!(cluster.instances().all(|instance| instance.floor() > Some(first.fencing_token())));
    let mut observer = worker.election("e").observe().unwrap();
    let seen_by = observer.next().await;
    assert_eq!((seen_by.info, seen_by.token), seen(&first));
    assert_eq!(leader(&worker.election("e")).await, Some(seen(&first)));
    assert!(timeout(TTL, observer.next()).await.is_err());
    let token = first.fencing_token();
    first.resign().await.unwrap();
    let next = other.election("e").campaign("next").await.unwrap();
    assert!(next.fencing_token() > token);
    assert_eq!(observer.next().await.token, next.fencing_token());
}

#[tokio::test(start_paused = true)]
async fn without_pushes_a_leader_is_seen_within_a_third_of_a_ttl() {
    let cluster = Cluster::new(3);
    let [candidate] = clients(&cluster).await;
    let worker = cluster.builder().ttl(TTL).without_watched_keys().connect().await.unwrap();
    for after in [0, 700, 1900, 2200] {
        let mut observer = worker.election("e").observe().unwrap();
        let seeing = tokio::spawn(async move { observer.next().await }); // one call, which looks again and again
        sleep(ms(after)).await;
        let leadership = candidate.election("e").campaign("me").await.unwrap();
        let (seen_by, took) = timed(timeout(secs(60), seeing)).await;
        assert_eq!(seen_by.unwrap().unwrap().token, leadership.fencing_token());
        assert!(took <= TTL / 3, "{took:?}");
        leadership.resign().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn an_older_leader_that_comes_back_is_refused() {
    let cluster = Cluster::new(3);
    let [one, other, worker] = clients(&cluster).await;
    let mut observer = worker.election("e").observe().unwrap();
    let former = one.election("e").campaign("former").await.unwrap();
    assert_eq!(observer.next().await.info, "former");
    let values: Vec<_> = cluster.instances().map(|instance| instance.value("e").unwrap()).collect();
    former.resign().await.unwrap();
    let next = other.election("e").campaign("next").await.unwrap();
    assert_eq!(observer.next().await.info, "next");
    // As late extends may.
    cluster.instances().zip(&values).for_each(|(instance, value)| instance.set("e", value));
    assert_eq!(worker.election("e").leader().await.unwrap().unwrap().info, "former");
    assert!(timeout(secs(30), observer.next()).await.is_err());
    assert!(matches!(next.lost().await, Loss::TakenOver { .. } | Loss::Expired { .. }));
    drop(next);
    remove(&cluster);
    let last = other.election("e").campaign("last").await.unwrap();
    assert_eq!(observer.next().await.token, last.fencing_token());
}

#[tokio::test(start_paused = true)]
async fn a_candidate_that_has_the_key_of_a_minority_leads_nobody() {
    let cluster = Cluster::new(3);
    let [one, worker] = clients(&cluster).await;
    let former = one.election("e").campaign("former").await.unwrap();
    let value = cluster.instance(0).value("e").unwrap();
    former.resign().await.unwrap();
    cluster.instance(0).set("e", &value); // as a candidate that is refused may for a moment
    assert_eq!(leader(&worker.election("e")).await, None);
    let mut observer = worker.election("e").observe().unwrap();
    assert!(timeout(secs(30), observer.next()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_crashes_is_followed_within_its_ttl() {
    let cluster = Cluster::new(3);
    let [one, other, worker] = clients(&cluster).await;
    let mut observer = worker.election("e").observe().unwrap();
    let crashed = one.election("e").renew(Renewal::Off).campaign("crashed").await.unwrap();
    std::mem::forget(crashed);
    assert_eq!(observer.next().await.info, "crashed");
    let (next, took) = timed(other.election("e").campaign("next")).await;
    assert!(took <= TTL + ms(100), "{took:?}");
    let (seen_by, took) = timed(observer.next()).await;
    assert_eq!((seen_by.info, seen_by.token), seen(&next.unwrap()));
    assert!(took < ms(50), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn who_leads_again_and_again_drops_the_work_of_a_lost_lead_and_stops_with_its_work() {
    let cluster = Cluster::new(3);
    let [one, worker] = clients(&cluster).await;
    let mut observer = worker.election("e").observe().unwrap();
    let (begun, dropped) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    struct Dropped(Arc<AtomicU32>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let (counted, ended) = (Arc::clone(&begun), Arc::clone(&dropped));
    let leading = tokio::spawn(one.election("e").lead("me", async move |leadership| {
        let _dropped = Dropped(Arc::clone(&ended));
        if counted.fetch_add(1, Ordering::SeqCst) < 3 {
            std::future::pending::<()>().await;
        }
        leadership.fencing_token()
    }));
    let mut last = None;
    for lead in 1..4 {
        let token = observer.next().await.token;
        assert!(Some(token) > last);
        last = Some(token);
        settle().await;
        assert_eq!((begun.load(Ordering::SeqCst), dropped.load(Ordering::SeqCst)), (lead, lead - 1));
        remove(&cluster);
        sleep(ms(100)).await;
    }
    let token = timeout(secs(5), leading).await.unwrap().unwrap().unwrap();
    assert!(Some(token) > last);
    assert_eq!((begun.load(Ordering::SeqCst), dropped.load(Ordering::SeqCst)), (4, 4));
    assert_eq!(leader(&worker.election("e")).await, None, "it has resigned");
    assert_eq!(one.stats().lost_by_deletion, 3);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_shut_down_leads_no_more() {
    let (cluster, redlock) = renewing(3).await;
    let leading = tokio::spawn(redlock.election("e").lead("me", async |_lead| std::future::pending::<()>().await));
    settle().await;
    sleep(ms(10)).await;
    assert_eq!(how_many_have(&cluster, "e"), 3);
    redlock.shutdown(secs(1)).await.unwrap();
    assert_eq!(leading.await.unwrap().unwrap_err().kind(), "shut_down");
    assert_eq!(how_many_have(&cluster, "e"), 0);
}

#[tokio::test(start_paused = true)]
async fn who_leads_is_not_known_while_too_few_instances_answer() {
    let cluster = Cluster::new(3);
    let [one, worker] = clients(&cluster).await;
    let leadership = one.election("e").campaign("me").await.unwrap();
    cluster.instance(0).stop();
    settle().await;
    assert_eq!(leader(&worker.election("e")).await, Some(seen(&leadership)));
    cluster.instance(1).stop();
    settle().await;
    let error = worker.election("e").leader().await.unwrap_err();
    assert!(matches!(&error, LeaderError::Unknown { unknown, .. } if unknown.len() == 2), "{error}");
    assert!(error.is_retryable());
}

#[tokio::test(start_paused = true)]
async fn an_info_that_is_too_long_is_refused_and_the_longest_is_read() {
    let (cluster, redlock) = renewing(3).await;
    let election = redlock.election("e");
    for info in ["x".repeat(1025), ":".repeat(342)] {
        let error = election.campaign(&info).await.unwrap_err();
        assert!(error.to_string().contains("at most 1024") && !error.is_retryable(), "{error}");
        assert_eq!(election.lead(&info, async |_lead| ()).await.unwrap_err().kind(), "bad_request");
    }
    for info in ["x".repeat(1024), ":%".repeat(170), "é".repeat(512), String::new(), " a  b ".to_owned()] {
        let leadership = election.campaign(&info).await.unwrap();
        assert_eq!(leader(&election).await, Some((info, leadership.fencing_token())));
        leadership.resign().await.unwrap();
    }
    assert!(redlock.election("").observe().is_err() && redlock.election("").leader().await.is_err());
    assert!(election.clone().ttl(secs(3600)).observe().is_err());
    drop(cluster);
}

/// Counter-example: a candidate that never won was returned, beside a leader that was valid. A flush had taken the record away with
/// the key, and its plain attempt set one all the same.
#[tokio::test(start_paused = true)]
async fn a_candidate_whose_keys_are_on_flushed_instances_does_not_lead() {
    let cluster = Cluster::new(3);
    let [one, other, worker] = clients(&cluster).await;
    let leadership = one.election("e").campaign("one").await.unwrap();
    cluster.instances().for_each(|instance| instance.slow_down(ms(0), ms(20)));
    cluster.instances().take(2).for_each(TestInstance::flush);
    let candidate = tokio::spawn(other.election("e").campaign("two")); // before it hears of the flush
    sleep(ms(1)).await;
    assert!(how_many_have(&cluster, "e") == 3 && leadership.is_valid());
    for _ in 0..50 {
        match worker.election("e").leader().await {
            Ok(leader) => assert!(leader.as_ref().is_none_or(|leader| leader.info == "one"), "{leader:?}"),
            Err(error) => assert!(error.to_string().contains("forgotten") && error.is_retryable(), "{error}"),
        }
    }
    drop(leadership);
    let next = timeout(secs(30), candidate).await.unwrap().unwrap().unwrap();
    assert_eq!(leader(&worker.election("e")).await, Some(seen(&next)));
}

#[tokio::test(start_paused = true)]
async fn an_observer_that_wants_no_lock_sees_who_leads_after_a_majority_was_restarted() {
    let cluster = Cluster::new(3);
    let [one, worker] = clients(&cluster).await;
    let mut observer = worker.election("e").observe().unwrap();
    let former = one.election("e").campaign("former").await.unwrap();
    assert_eq!(observer.next().await.token, former.fencing_token());
    cluster.instances().take(2).for_each(|instance| instance.start(Data::Nothing));
    former.lost().await;
    drop(former);
    let next = one.election("e").campaign("next").await.unwrap();
    let (seen_by, took) = timed(observer.next()).await;
    assert_eq!((seen_by.info, seen_by.token), seen(&next));
    assert!(took <= TTL / 3, "{took:?}");
}
