//! The cancellation matrix: whatever the instances do and wherever a future is dropped, no key is
//! left behind past the stated bound (P5, P6, P22).

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use redquorum::Redlock;
use redquorum::testing::{Cluster, Hang, TestInstance};

use crate::support::{OUT_OF_MEMORY, TIMEOUT, held, ms, secs, until_voting};

/// There and back for a slow instance.
const TRIP: Duration = ms(20);

/// The ttl of leases that are renewed while they are held: after 75 ms, for this is on a grid.
const RENEWED: Duration = ms(300);

/// What an instance does while the operation runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behaviour {
    Ok,
    Err,
    Slow,
    LosesReplies,
    Never(Hang),
    Down,
}

const BEHAVIOURS: [Behaviour; 8] = [
    Behaviour::Ok,
    Behaviour::Err,
    Behaviour::Slow,
    Behaviour::LosesReplies,
    Behaviour::Never(Hang::Stopped),
    Behaviour::Never(Hang::RepliesLost),
    Behaviour::Never(Hang::RequestsLost),
    Behaviour::Down,
];

impl Behaviour {
    fn begin(self, instance: &TestInstance) {
        match self {
            Self::Ok => {}
            Self::Err => instance.refuse(OUT_OF_MEMORY),
            Self::Slow => instance.slow_down(TRIP / 2, TRIP / 2),
            Self::LosesReplies => instance.lose_replies(2),
            Self::Never(how) => instance.hang(how),
            Self::Down => instance.cut_off(),
        }
    }

    /// Whether requests are carried out meanwhile, and answered.
    const fn is_reachable(self) -> bool {
        matches!(self, Self::Ok | Self::Slow)
    }
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    Acquire,
    Extend,
    Release,
    Wait,
    /// Work under the lock, while its renewals are due (P21).
    Run,
}

#[derive(Clone, Copy, Debug)]
enum Drops {
    AfterPolls(usize),
    At(Duration),
}

async fn dropped<T>(future: impl Future<Output = T>, drops: Drops) -> Option<T> {
    match drops {
        Drops::At(after) => tokio::time::timeout(after, future).await.ok(),
        Drops::AfterPolls(mut left) => {
            let mut future = pin!(future);
            poll_fn(move |cx| {
                let output = if left > 0 { future.as_mut().poll(cx) } else { Poll::Pending };
                left = left.saturating_sub(1);
                match output {
                    Poll::Ready(output) => Poll::Ready(Some(output)),
                    Poll::Pending if left == 0 => Poll::Ready(None),
                    Poll::Pending => Poll::Pending,
                }
            })
            .await
        }
    }
}

/// Carries the operation out until it ends or is dropped. Guards are dropped with it.
async fn run(redlock: &Redlock, cluster: &Cluster, behaviours: [Behaviour; 3], operation: Operation, drops: Drops) {
    let begin = || behaviours.iter().zip(cluster.instances()).for_each(|(does, instance)| does.begin(instance));
    match operation {
        Operation::Acquire => {
            begin();
            dropped(redlock.lock("a").try_acquire(), drops).await;
        }
        Operation::Extend => {
            let guard = held(redlock, "a").await;
            begin();
            dropped(guard.extend(), drops).await;
        }
        Operation::Release => {
            let guard = held(redlock, "a").await;
            begin();
            dropped(guard.release(), drops).await;
        }
        Operation::Run => {
            let work = redlock.lock("a").ttl(RENEWED).wait_at_most(ms(250)).run(async |_| {
                begin();
                tokio::time::sleep(RENEWED).await;
            });
            dropped(work, drops).await;
        }
        Operation::Wait => {
            cluster.instances().for_each(|instance| assert!(instance.set_if_absent("a", "foreign", ms(40))));
            begin();
            dropped(redlock.lock("a").wait_at_most(ms(250)).acquire(), drops).await;
        }
    }
}

async fn nothing_is_left(
    (cluster, redlock): (&Cluster, &Redlock),
    behaviours: [Behaviour; 3],
    operation: Operation,
    drops: Drops,
) {
    run(redlock, cluster, behaviours, operation, drops).await;
    let context = format!("{behaviours:?} {operation:?} {drops:?}");

    tokio::time::sleep(TIMEOUT + TRIP).await;
    for (does, instance) in behaviours.iter().zip(cluster.instances()) {
        assert!(!does.is_reachable() || instance.value("a").is_none(), "{}: {context}", instance.address());
    }
    cluster.instances().for_each(TestInstance::resume);
    // An instance is connected again after a second or so; then follows the retry of a release that was not confirmed.
    tokio::time::sleep(secs(2)).await;
    let extends = cluster.requests().extend;
    assert!(cluster.keys().is_empty(), "{:?}: {context}", cluster.keys());
    tokio::time::sleep(secs(4)).await;
    assert_eq!(cluster.requests().extend, extends, "renewed although nobody holds it: {context}");
    until_voting(redlock, 3).await;
}

const DROPS: [Drops; 12] = [
    Drops::AfterPolls(0),
    Drops::AfterPolls(1),
    Drops::AfterPolls(2),
    Drops::AfterPolls(3),
    Drops::AfterPolls(4),
    Drops::AfterPolls(6),
    Drops::At(ms(5)),
    Drops::At(ms(15)),
    Drops::At(ms(60)),
    Drops::At(ms(199)),
    Drops::At(ms(201)),
    Drops::At(ms(1_000)),
];

/// Before, in the midst of, and after renewals.
const DROPS_OF_A_RUN: [Drops; 6] = [
    Drops::AfterPolls(2),
    Drops::At(ms(75)),
    Drops::At(ms(85)),
    Drops::At(ms(101)),
    Drops::At(ms(290)),
    Drops::At(ms(1_000)),
];

async fn matrix(operation: Operation) {
    // Instances are alike: which of them does what makes no difference.
    let from = |first: usize| first..BEHAVIOURS.len();
    let triples = from(0).flat_map(|a| from(a).flat_map(move |b| from(b).map(move |c| [a, b, c])));
    for behaviours in triples.map(|triple| triple.map(|index| BEHAVIOURS[index])) {
        let drops = if matches!(operation, Operation::Run) { &DROPS_OF_A_RUN[..] } else { &DROPS };
        let cluster = Cluster::new(3);
        let redlock = cluster.builder().connect().await.unwrap(); // leases are renewed
        for drops in drops.iter().copied() {
            nothing_is_left((&cluster, &redlock), behaviours, operation, drops).await;
        }
        assert_eq!(redlock.shutdown(secs(2)).await, Ok(Vec::new()), "{behaviours:?} {operation:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_acquire_leaves_nothing_behind() {
    matrix(Operation::Acquire).await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_extend_leaves_nothing_behind_once_its_guard_is_dropped() {
    matrix(Operation::Extend).await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_release_goes_on() {
    matrix(Operation::Release).await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_run_leaves_nothing_behind() {
    matrix(Operation::Run).await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_wait_leaves_nothing_behind() {
    matrix(Operation::Wait).await;
}
