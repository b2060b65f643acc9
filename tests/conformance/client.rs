//! The same client, with admission, on real servers and on instances in the process: the same happens to both,
//! and it must see the same.

use std::time::{Duration, Instant};

use redquorum::testing::{Cluster, Data};
use redquorum::{AcquireError, AdmissionStatus, Builder, Guard, Loss, Redlock, Renewal};
use redquorum_testkit::{Fleet, Program};
use tokio::time::{sleep, timeout};

const TTL: Duration = Duration::from_secs(3);
const PATIENCE: Duration = Duration::from_secs(60);

/// Where the client's instances are.
enum Place {
    Servers(Fleet),
    Process(Cluster),
}

impl Place {
    fn builder(&self) -> Builder {
        let builder = match self {
            Self::Servers(fleet) => Redlock::builder().instances(fleet.addresses()),
            Self::Process(cluster) => cluster.builder(),
        };
        builder.ttl(TTL).max_ttl(TTL).renew(Renewal::Off).instance_timeout(Duration::from_secs(1))
    }

    fn flush(&self, index: usize) {
        match self {
            Self::Servers(fleet) => drop(fleet[index].command(&["FLUSHALL"]).unwrap()),
            Self::Process(cluster) => cluster.instance(index).flush(),
        }
    }

    fn restart_empty(&self, index: usize) {
        match self {
            Self::Servers(fleet) => fleet[index].restart().unwrap(),
            Self::Process(cluster) => cluster.instance(index).start(Data::Nothing),
        }
    }

    fn delete(&self, index: usize, key: &str) {
        match self {
            Self::Servers(fleet) => drop(fleet[index].command(&["DEL", key]).unwrap()),
            Self::Process(cluster) => drop(cluster.instance(index).remove(key)),
        }
    }
}

/// What the client says of an instance, without times.
fn admission(redlock: &Redlock, index: usize) -> &'static str {
    match redlock.instances()[index].admission {
        AdmissionStatus::Admitted => "votes",
        AdmissionStatus::Quarantine(_) => "in quarantine",
        _ => "unknown",
    }
}

/// Waits until the client says this of an instance.
async fn until(redlock: &Redlock, index: usize, expected: &str) {
    let begun = Instant::now();
    while admission(redlock, index) != expected {
        assert!(begun.elapsed() < PATIENCE, "instance {index} is not {expected}: {:?}", redlock.instances());
        sleep(Duration::from_millis(5)).await;
    }
}

async fn until_all_vote(redlock: &Redlock) {
    redlock.want_locks();
    for index in 0..3 {
        until(redlock, index, "votes").await;
    }
}

fn kind(result: &Result<Guard, AcquireError>) -> &'static str {
    match result {
        Ok(_) => "granted",
        Err(AcquireError::Contended(_)) => "contended",
        Err(AcquireError::InQuarantine { .. }) => "in quarantine",
        Err(_) => "another error",
    }
}

/// What a client sees of all that happens.
async fn seen(place: &Place) -> Vec<&'static str> {
    let mut seen = Vec::new();
    let (one, other) = (place.builder().connect().await.unwrap(), place.builder().connect().await.unwrap());
    for client in [&one, &other] {
        until_all_vote(client).await;
    }
    let guard = one.lock("a").acquire().await.unwrap();
    seen.push(kind(&other.lock("a").try_acquire().await));

    let view = guard.lease();
    let waiting = tokio::spawn(async move { view.lost().await });
    sleep(Duration::from_millis(100)).await; // until its keys are watched
    (0..2).for_each(|index| place.delete(index, "a"));
    let loss = timeout(PATIENCE, waiting).await.unwrap().unwrap();
    seen.push(if matches!(loss, Loss::Gone { .. } | Loss::Expired { .. }) { "lost" } else { "not lost" });
    drop(guard);

    (0..2).for_each(|index| place.flush(index));
    for index in 0..2 {
        until(&one, index, "in quarantine").await;
    }
    seen.push(admission(&one, 2));
    seen.push(kind(&one.lock("b").try_acquire().await));
    until_all_vote(&one).await;
    seen.push(kind(&one.lock("b").try_acquire().await));

    place.restart_empty(0);
    until(&one, 0, "in quarantine").await;
    seen.push(kind(&one.lock("c").try_acquire().await));
    until_all_vote(&one).await;
    seen
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_sees_the_same_on_servers_and_on_instances_in_the_process() {
    let in_process = seen(&Place::Process(Cluster::new(3))).await;
    assert_eq!(in_process, ["contended", "lost", "votes", "in quarantine", "granted", "granted"]);
    for program in Program::all_required().unwrap() {
        let fleet = Fleet::start(&program, 3).unwrap();
        assert_eq!(seen(&Place::Servers(fleet)).await, in_process, "{program:?}");
    }
}
