//! P23: a try of a holder from another client that is not won, in each of the ways in which it can end,
//! leaves what the holder has.

use std::time::Duration;

use redquorum::{Guard, Holder, LeaseView, Redlock};
use redquorum_testkit::{Fleet, Program, Proxy};
use tokio::time::{sleep, timeout};

use crate::support::{PATIENCE, TIMEOUT, builder_of, eventually, fleet_of, ms, on_each_kind, ready};

const TTL: Duration = ms(1_500);

#[derive(Clone, Copy, Debug)]
enum Way {
    Cancelled,
    TimesOut,
    Loses,
    MeetsHungInstances,
    LosesItsConnections,
    GoesWithOthers,
}

const WAYS: [Way; 6] =
    [Way::Cancelled, Way::TimesOut, Way::Loses, Way::MeetsHungInstances, Way::LosesItsConnections, Way::GoesWithOthers];

async fn try_of_me(redlock: &Redlock) -> Option<Guard> {
    redlock.lock("a").holder(Holder::from("me")).try_acquire().await.ok()
}

/// Makes the try of another client end in this way, and sets everything right again.
async fn fail(way: Way, redlock: &Redlock, fleet: &Fleet, proxies: &[Proxy]) {
    let each = |what: &dyn Fn(&Proxy)| proxies.iter().for_each(what);
    match way {
        Way::Cancelled => {
            each(&|proxy| proxy.delay(ms(0), ms(100)).unwrap());
            assert!(timeout(ms(50), try_of_me(redlock)).await.is_err());
        }
        Way::TimesOut => {
            each(&|proxy| proxy.lose_replies().unwrap());
            assert!(try_of_me(redlock).await.is_none());
        }
        Way::Loses => {
            // The lease rests on a bare quorum.
            for server in &fleet[3..] {
                server.command(&["DEL", "a"]).unwrap();
            }
            proxies[2..].iter().for_each(|proxy| proxy.black_hole().unwrap());
            assert!(try_of_me(redlock).await.is_none());
        }
        Way::MeetsHungInstances => {
            fleet[2..].iter().for_each(|server| server.hang().unwrap());
            assert!(try_of_me(redlock).await.is_none());
            fleet[2..].iter().for_each(|server| server.resume().unwrap());
        }
        Way::LosesItsConnections => {
            // The requests arrive; the releases find no connection and are owed.
            each(&|proxy| proxy.delay(ms(0), ms(60)).unwrap());
            let cut = async {
                sleep(ms(30)).await;
                each(&Proxy::cut);
            };
            let (resumed, ()) = tokio::join!(try_of_me(redlock), cut);
            assert!(resumed.is_none());
        }
        Way::GoesWithOthers => {
            each(&|proxy| proxy.lose_replies().unwrap());
            let others = (0..40).map(|number| {
                let redlock = redlock.clone();
                tokio::spawn(async move { redlock.lock(format!("other:{number}")).try_acquire().await.is_err() })
            });
            let others: Vec<_> = others.collect();
            assert!(try_of_me(redlock).await.is_none());
            for other in others {
                assert!(other.await.unwrap());
            }
        }
    }
    sleep(TIMEOUT / 4).await;
    each(&|proxy| proxy.forward().unwrap());
}

/// Tries all the time to get the lock for another, until it does.
async fn nobody_else_gets_it(redlock: Redlock, lease: LeaseView, way: Way) {
    while redlock.lock("a").try_acquire().await.is_err() {
        sleep(ms(10)).await;
    }
    assert!(!lease.is_valid(), "{way:?}: two holders, for {:?} more", lease.remaining());
}

async fn carry_out(way: Way, program: &Program) {
    let fleet = fleet_of(program, 5);
    let proxies: Vec<_> = fleet.iter().map(|server| Proxy::start(server).unwrap()).collect();
    let builder = || builder_of(&fleet).ttl(TTL).max_ttl(TTL);
    let (one, stranger) = (ready(builder()).await, ready(builder()).await);
    let two = ready(builder().instances(proxies.iter().map(Proxy::address)).label("elsewhere")).await;

    let former = try_of_me(&one).await.unwrap();
    let lease = former.lease();
    let others = tokio::spawn(nobody_else_gets_it(stranger, lease.clone(), way));
    fail(way, &two, &fleet, &proxies).await;
    assert!(lease.is_valid(), "{way:?}: this machine is too slow for the test");
    assert!(eventually(PATIENCE, || !lease.is_valid()).await);
    drop(former);
    timeout(PATIENCE, others).await.unwrap().unwrap();
}

#[test]
fn a_try_of_the_same_holder_that_is_not_won_lets_nobody_else_in() {
    on_each_kind(async |program| {
        for way in WAYS {
            carry_out(way, &program).await;
        }
    });
}
