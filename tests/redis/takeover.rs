//! P23: a try of a holder from another client that is not won, in each of the ways in which it can end,
//! leaves what the holder has.

use std::time::Duration;

use redquorum::{Guard, Holder, LeaseView, Redlock};
use redquorum_testkit::{Fleet, Program, Proxy};
use tokio::time::{sleep, timeout};

use crate::support::{PATIENCE, SHORT_TIMEOUT, builder_of, eventually, fleet_of, ms, on_each_kind, ready};

const TTL: Duration = ms(1_500);

#[derive(Clone, Copy, Debug)]
enum TryEnd {
    Cancelled,
    TimesOut,
    Loses,
    MeetsHungInstances,
    LosesItsConnections,
    GoesWithOthers,
}

const TRY_ENDS: [TryEnd; 6] = [
    TryEnd::Cancelled,
    TryEnd::TimesOut,
    TryEnd::Loses,
    TryEnd::MeetsHungInstances,
    TryEnd::LosesItsConnections,
    TryEnd::GoesWithOthers,
];

async fn try_of_me(redlock: &Redlock) -> Option<Guard> {
    redlock.lock("a").holder(Holder::from("me")).try_acquire().await.ok()
}

/// Makes the try of another client end in this way, and sets everything right again.
async fn fail(end: TryEnd, redlock: &Redlock, fleet: &Fleet, proxies: &[Proxy]) {
    let each = |what: &dyn Fn(&Proxy)| proxies.iter().for_each(what);
    match end {
        TryEnd::Cancelled => {
            // Should it be cancelled late, it has ended by its timeout.
            each(&|proxy| proxy.delay(ms(0), ms(400)).unwrap());
            assert!(timeout(ms(50), try_of_me(redlock)).await.ok().flatten().is_none());
        }
        TryEnd::TimesOut => {
            each(&|proxy| proxy.lose_replies().unwrap());
            assert!(try_of_me(redlock).await.is_none());
        }
        TryEnd::Loses => {
            // The lease rests on a bare quorum.
            for server in &fleet[3..] {
                server.command(&["DEL", "a"]).unwrap();
            }
            proxies[2..].iter().for_each(|proxy| proxy.black_hole().unwrap());
            assert!(try_of_me(redlock).await.is_none());
        }
        TryEnd::MeetsHungInstances => {
            fleet[2..].iter().for_each(|server| server.hang().unwrap());
            assert!(try_of_me(redlock).await.is_none());
            fleet[2..].iter().for_each(|server| server.resume().unwrap());
        }
        TryEnd::LosesItsConnections => {
            // The requests arrive; the releases find no connection and stay pending. Should the cut come late, the try
            // has ended by its timeout.
            each(&|proxy| proxy.delay(ms(0), ms(600)).unwrap());
            let cut = async {
                sleep(ms(30)).await;
                each(&Proxy::cut);
            };
            let (resumed, ()) = tokio::join!(try_of_me(redlock), cut);
            assert!(resumed.is_none());
        }
        TryEnd::GoesWithOthers => {
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
    sleep(SHORT_TIMEOUT / 4).await;
    each(&|proxy| proxy.forward().unwrap());
}

/// Tries all the time to get the lock for another, until it does.
async fn nobody_else_gets_it(redlock: Redlock, lease: LeaseView, end: TryEnd) {
    while redlock.lock("a").try_acquire().await.is_err() {
        sleep(ms(10)).await;
    }
    assert!(!lease.is_valid(), "{end:?}: two holders, for {:?} more", lease.remaining());
}

async fn carry_out(end: TryEnd, program: &Program) {
    let fleet = fleet_of(program, 5);
    let proxies: Vec<_> = fleet.iter().map(|server| Proxy::start(server).unwrap()).collect();
    let builder = || builder_of(&fleet).ttl(TTL).max_ttl(TTL);
    let (one, stranger) = (ready(builder()).await, ready(builder()).await);
    // Its tries end long before the lease.
    let two = builder().instances(proxies.iter().map(Proxy::address)).instance_timeout(SHORT_TIMEOUT);
    let two = ready(two.label("elsewhere")).await;

    let former = try_of_me(&one).await.unwrap();
    let lease = former.lease();
    let others = tokio::spawn(nobody_else_gets_it(stranger, lease.clone(), end));
    fail(end, &two, &fleet, &proxies).await;
    assert!(lease.is_valid(), "{end:?}: this machine is too slow for the test");
    assert!(eventually(PATIENCE, || !lease.is_valid()).await);
    drop(former);
    timeout(PATIENCE, others).await.unwrap().unwrap();
}

#[test]
fn a_try_of_the_same_holder_that_is_not_won_lets_nobody_else_in() {
    on_each_kind(async |program| {
        for end in TRY_ENDS {
            carry_out(end, &program).await;
        }
    });
}
