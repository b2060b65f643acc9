//! P23: a try of a holder that is not won leaves what the holder has. Whatever the instances do and
//! whenever it ends, nobody else gets the lock while the former lease is valid.

use std::time::Duration;

use redquorum::testing::{Cluster, Hang, TestInstance};
use redquorum::{Guard, Holder, LeaseView, Redlock, Renewal};
use tokio::time::{sleep, timeout};

use crate::support::{OUT_OF_MEMORY, ms, renewing, secs, settle};

const TTL: Duration = secs(2);

/// What some of the instances do while a try of the same holder is on its way.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    LosesReplies,
    Slow,
    TooSlow,
    Never(Hang),
    Refuses,
    BreaksConnections,
    Down,
}

const TROUBLES: [Trouble; 9] = [
    Trouble::LosesReplies,
    Trouble::Slow,
    Trouble::TooSlow,
    Trouble::Never(Hang::Stopped),
    Trouble::Never(Hang::RepliesLost),
    Trouble::Never(Hang::RequestsLost),
    Trouble::Refuses,
    Trouble::BreaksConnections,
    Trouble::Down,
];

impl Trouble {
    fn begin(self, instance: &TestInstance) {
        match self {
            Self::LosesReplies => instance.lose_replies(1),
            Self::Slow | Self::BreaksConnections => instance.slow_down(ms(20), ms(20)),
            Self::TooSlow => instance.slow_down(ms(250), ms(20)),
            Self::Never(how) => instance.hang(how),
            Self::Refuses => instance.refuse(OUT_OF_MEMORY),
            Self::Down => instance.cut_off(),
        }
    }

    fn end(self, instance: &TestInstance) {
        instance.resume();
    }
}

/// One case, with what is to be told if it fails.
#[derive(Clone, Copy, Debug)]
struct Case {
    trouble: Trouble,
    /// On so many of five instances.
    on: usize,
    /// When the try is given up; it goes on to its end otherwise.
    given_up_after: Option<Duration>,
    /// Whether the try is for another resource too.
    wide: bool,
    ttl: Duration,
    renewal: Renewal,
}

fn cases() -> impl Iterator<Item = Case> {
    let ends = [None, Some(ms(0)), Some(ms(1)), Some(ms(30)), Some(ms(150))];
    let terms = [(false, TTL), (false, TTL / 2), (true, TTL)];
    let renewals = [Renewal::Off, Renewal::Auto];
    TROUBLES.into_iter().flat_map(move |trouble| {
        [2, 3, 5].into_iter().flat_map(move |on| {
            ends.into_iter().flat_map(move |given_up_after| {
                terms.into_iter().flat_map(move |(wide, ttl)| {
                    renewals.map(|renewal| Case { trouble, on, given_up_after, wide, ttl, renewal })
                })
            })
        })
    })
}

async fn try_of_me(redlock: &Redlock, case: Case) -> Option<Guard> {
    let names = if case.wide { vec!["a", "b"] } else { vec!["a"] };
    let acquire = redlock.lock(names).ttl(case.ttl).holder(Holder::from("me")).try_acquire();
    match case.given_up_after {
        None => acquire.await.ok(),
        Some(end) => timeout(end, acquire).await.ok().and_then(Result::ok),
    }
}

/// Tries to get the lock for another; fails if it does while the lease is valid.
async fn nobody_else_gets_it(redlock: Redlock, lease: LeaseView, case: Case) {
    loop {
        if redlock.lock("a").ttl(TTL).try_acquire().await.is_ok() {
            assert!(!lease.is_valid(), "two holders, for {:?} more: {case:?}", lease.remaining());
            return;
        }
        sleep(ms(97)).await;
    }
}

/// Gives whether the try was won.
async fn carry_out(case: Case) -> bool {
    let cluster = Cluster::new(5);
    let client = async |label| cluster.builder().ttl(TTL).max_ttl(TTL).label(label).connect().await.unwrap();
    let (one, two, stranger) = (client("one/1").await, client("two/2").await, client("stranger/3").await);
    let lock = one.lock("a").holder(Holder::from("me")).renew(case.renewal);
    let former = lock.try_acquire().await.unwrap();
    sleep(ms(5)).await; // for a larger token

    cluster.instances().take(case.on).for_each(|instance| case.trouble.begin(instance));
    let others = tokio::spawn(nobody_else_gets_it(stranger, former.lease(), case));
    let other_end = async {
        if let Trouble::BreaksConnections = case.trouble {
            sleep(ms(10)).await;
            cluster.instances().take(case.on).for_each(|instance| instance.break_connections(ms(90)));
        }
    };
    let (resumed, ()) = tokio::join!(try_of_me(&two, case), other_end);
    let is_won = resumed.is_some();
    if is_won {
        others.abort(); // it goes on for its holder, and the former will be told
        // Or the clients try for long to release what the instances may still have.
        cluster.instances().for_each(|instance| case.trouble.end(instance));
        return true;
    }
    sleep(ms(100)).await;
    cluster.instances().for_each(|instance| case.trouble.end(instance));
    sleep(TTL + ms(500)).await;
    drop(former);
    timeout(TTL * 2, others).await.unwrap().unwrap(); // nothing is left behind
    false
}

#[tokio::test(start_paused = true)]
async fn a_try_of_the_same_holder_that_is_not_won_lets_nobody_else_in() {
    let (mut won, mut not_won) = (0, 0);
    for case in cases() {
        *(if carry_out(case).await { &mut won } else { &mut not_won }) += 1;
    }
    println!("{won} tries were won, {not_won} were not");
    assert!(won > 100 && not_won > 400, "{won} and {not_won}");
}

/// Counter-example: the release of each of them deleted what the one before had taken over.
#[tokio::test(start_paused = true)]
async fn tries_one_after_the_other_leave_the_lease_as_it_was() {
    let (cluster, one) = renewing(5).await;
    let two = cluster.builder().connect().await.unwrap();
    let former = one.lock("a").holder(Holder::from("me")).renew(Renewal::Off).try_acquire().await.unwrap();
    let values = || cluster.instances().map(|instance| (instance.value("a"), instance.expires_in("a")));
    let before: Vec<_> = values().collect();
    cluster.instances().skip(2).for_each(|instance| instance.refuse(OUT_OF_MEMORY));
    for _ in 0..10 {
        assert!(two.lock("a").holder(Holder::from("me")).try_acquire().await.is_err());
        settle().await;
    }
    assert_eq!(values().collect::<Vec<_>>(), before);
    cluster.instances().for_each(TestInstance::resume);
    assert!(former.release().await.unwrap().was_still_held);
    assert!(cluster.keys().is_empty());
}

/// It was won, but whoever had asked for it was gone.
#[tokio::test(start_paused = true)]
async fn a_lease_that_nobody_took_gives_back_what_it_took_over() {
    let (cluster, one) = renewing(5).await;
    let two = cluster.builder().connect().await.unwrap();
    let former = one.lock("a").holder(Holder::from("me")).renew(Renewal::Off).try_acquire().await.unwrap();
    let values = || cluster.instances().map(|instance| (instance.value("a"), instance.expires_in("a")));
    let before: Vec<_> = values().collect();
    let mut unpolled = Box::pin(two.lock("a").holder(Holder::from("me")).try_acquire());
    assert!(timeout(ms(0), &mut unpolled).await.is_err());
    settle().await;
    assert_ne!(values().collect::<Vec<_>>(), before, "it is won by now");
    drop(unpolled);
    settle().await;
    assert_eq!(values().collect::<Vec<_>>(), before);
    assert!(former.is_valid());
}

/// What was taken over ends no sooner than it would have, so its release is pending for as long.
#[tokio::test(start_paused = true)]
async fn the_release_of_what_was_taken_over_from_a_longer_lease_is_not_forgotten_after_the_own_ttl() {
    let cluster = Cluster::new(3);
    let client = async || cluster.builder().max_ttl(secs(60)).connect().await.unwrap();
    let (former, redlock) = (client().await, client().await);
    let lock = |redlock: &Redlock, ttl| redlock.lock("a").holder(Holder::from("job")).renew(Renewal::Off).ttl(ttl);
    let _ = lock(&former, secs(60)).try_acquire().await.unwrap().keep_until_expiry();
    let guard = lock(&redlock, secs(5)).try_acquire().await.unwrap();
    cluster.instance(2).cut_off();
    guard.release().await.unwrap();
    sleep(secs(20)).await;
    cluster.instance(2).resume();
    sleep(secs(5)).await;
    assert!(cluster.keys().is_empty(), "{:?}", cluster.keys());
}
