//! What an acquire and a release cost: one write to each instance, one round trip.

use redquorum::Redlock;
use redquorum_testkit::{Client, Fleet, Proxy};
use tokio::time::sleep;

use crate::support::{
    PATIENCE, builder_of, client_of, eventually, fleet_of, free_within, held, ms, on_each_kind, pair, ready, secs,
    timed, with_admission,
};

const ROUNDS: u64 = 25;

fn evalsha(fleet: &Fleet) -> Vec<u64> {
    fleet.iter().map(|server| server.calls("evalsha").unwrap()).collect()
}

/// Waits until every instance has carried out this many commands; more never become fewer.
async fn expect_each(fleet: &Fleet, count: u64) {
    let all = vec![count; fleet.len()];
    assert!(eventually(PATIENCE, || evalsha(fleet) == all).await, "{:?} instead of {count} each", evalsha(fleet));
}

/// Waits until no script is on its way any more: for a tenth of a second none was carried out anywhere.
pub(crate) async fn settled(fleet: &Fleet) {
    let mut before = evalsha(fleet);
    loop {
        sleep(ms(100)).await;
        let now = evalsha(fleet);
        if now == before {
            return;
        }
        before = now;
    }
}

/// `scripts` is how many of each acquire and release are one.
async fn count(fleet: &Fleet, redlock: &Redlock, scripts: u64) {
    fleet.iter().for_each(|server| server.reset_stats().unwrap());
    for round in 0..ROUNDS {
        let guard = redlock.lock("a").try_acquire().await.unwrap();
        expect_each(fleet, scripts * round + scripts - 1).await;
        guard.release().await.unwrap();
        expect_each(fleet, scripts * (round + 1)).await;
    }
    tokio::time::sleep(ms(50)).await;
    expect_each(fleet, scripts * ROUNDS).await;
    if scripts == 1 {
        // The others are plain: each of their commands once, and no more.
        for plain in ["set", "zadd"] {
            assert!(fleet.iter().all(|server| server.calls(plain).unwrap() == ROUNDS), "{plain}");
        }
    }
    // The heartbeat is a TIME; nothing else goes to the instances.
    for other in ["eval", "script|load", "multi", "ping", "hello"] {
        assert!(fleet.iter().all(|server| server.calls(other).unwrap() == 0), "{other}");
    }
}

#[test]
fn an_acquire_and_a_release_are_one_write_each_on_each_instance() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        for (builder, scripts) in [(builder_of(&fleet), 2), (with_admission(&fleet), 1)] {
            // No stall of the machine is to be taken for a hang: what times out is released once more.
            let redlock = ready(builder.instance_timeout(PATIENCE)).await;
            pair(&redlock, "a").await;
            free_within(PATIENCE, &fleet).await;
            count(&fleet, &redlock, scripts).await;
        }
    });
}

#[test]
fn a_refused_try_asks_each_instance_once_and_clears_up_only_where_no_refusal_has_come() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let ours = ready(builder_of(&fleet).instance_timeout(PATIENCE)).await;
        let other = client_of(&fleet).await;
        let _guard = held(&other, "a").await;
        settled(&fleet).await;
        fleet.iter().for_each(|server| server.reset_stats().unwrap());
        let calls = || evalsha(&fleet).iter().sum::<u64>();
        for round in 1..=ROUNDS {
            assert!(ours.lock("a").try_acquire().await.is_err());
            // Until all have answered: tries that wait for a slow instance share a command.
            assert!(eventually(PATIENCE, || calls() >= 5 * round).await, "{}", calls());
        }
        sleep(ms(100)).await; // releases would come by then
        // P5: the verdict falls at the third refusal, and two instances may take their time.
        assert!(calls() <= 7 * ROUNDS, "{}", calls());
    });
}

/// Many tasks at once, each with its own lock; whether one of their tries was in vain.
async fn many_tasks(redlock: &Redlock) -> bool {
    let tasks: Vec<_> = (0..64)
        .map(|task| {
            let redlock = redlock.clone();
            tokio::spawn(async move {
                let mut in_vain = false;
                for _ in 0..10 {
                    match redlock.lock(format!("task-{task}")).try_acquire().await {
                        Ok(guard) => assert!(guard.release().await.unwrap().was_still_held),
                        Err(_) => in_vain = true,
                    }
                }
                in_vain
            })
        })
        .collect();
    let mut in_vain = false;
    for task in tasks {
        in_vain |= task.await.unwrap();
    }
    in_vain
}

async fn expect_shared(fleet: &Fleet, redlock: &Redlock) {
    fleet.iter().for_each(|server| server.reset_stats().unwrap());
    assert!(!many_tasks(redlock).await);
    free_within(PATIENCE, fleet).await;
    println!("{:?} commands for {} requests", evalsha(fleet), 64 * 10 * 2);
    assert!(evalsha(fleet).iter().all(|calls| *calls <= 64 * 10), "{:?}", evalsha(fleet));
}

#[test]
fn many_tasks_at_once_share_commands() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let redlock = ready(builder_of(&fleet).instance_timeout(PATIENCE)).await;
        expect_shared(&fleet, &redlock).await;
    });
}

/// One such error ended the sharing until the next reconnect.
#[test]
fn requests_share_commands_again_after_an_instance_was_busy() {
    on_each_kind(async |program| {
        let quick = |_, set: redquorum_testkit::ServerBuilder| set.config("busy-reply-threshold", "50");
        let fleet = Fleet::start_with(&program, 3, quick).unwrap();
        let redlock = ready(builder_of(&fleet).instance_timeout(PATIENCE)).await;
        for server in fleet.iter() {
            let mut client = Client::connect(server.port(), ms(20)).unwrap();
            assert!(client.command(&["EVAL", "while true do end", "0"]).is_err(), "it does not end");
            assert!(eventually(PATIENCE, || server.command(&["PING"]).is_err()).await, "it has begun");
        }
        assert!(many_tasks(&redlock).await, "the instances are busy");
        for server in fleet.iter() {
            server.command(&["SCRIPT", "KILL"]).unwrap();
            assert!(eventually(PATIENCE, || server.command(&["PING"]).is_ok()).await);
        }
        free_within(PATIENCE, &fleet).await;
        expect_shared(&fleet, &redlock).await;
    });
}

#[test]
fn an_acquire_and_a_release_are_one_round_trip_each() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 3);
        let proxies: Vec<_> = fleet.iter().map(|server| Proxy::start(server).unwrap()).collect();
        // Not the default timeout: nothing here is to be taken for a hang.
        let builder = builder_of(&fleet).instances(proxies.iter().map(Proxy::address)).instance_timeout(PATIENCE);
        let redlock = ready(builder).await;
        pair(&redlock, "a").await;
        proxies.iter().for_each(|proxy| proxy.delay(ms(30), ms(30)).unwrap());
        let (mut acquires, mut releases) = (Vec::new(), Vec::new());
        for _ in 0..8 {
            let (guard, took) = timed(held(&redlock, "a")).await;
            acquires.push(took);
            releases.push(timed(guard.release()).await.1);
        }
        for least in [acquires.iter().min().unwrap(), releases.iter().min().unwrap()] {
            assert!(*least >= ms(60) && *least < ms(120), "one trip takes 60 ms: {acquires:?} {releases:?}");
        }
    });
}

/// The most keys in one command: those of the largest lock.
const MOST_KEYS: i64 = 256;

/// 64 locks of 256 names each were one script of 425 ms, and everybody else waited for it.
#[test]
fn locks_of_many_names_do_not_share_a_command() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 3);
        // A machine of which others have the most takes its time, and no lock is to age by that.
        let builder = builder_of(&fleet).instance_timeout(secs(30)).max_ttl(secs(300)).ttl(secs(300));
        let redlock = ready(builder).await;
        for server in fleet.iter() {
            server.command(&["CONFIG", "SET", "slowlog-log-slower-than", "100"]).unwrap();
            server.command(&["CONFIG", "SET", "slowlog-max-len", "10000"]).unwrap();
        }
        let tasks: Vec<_> = (0..32)
            .map(|task| {
                let redlock = redlock.clone();
                tokio::spawn(async move {
                    let names: Vec<String> = (0..256).map(|name| format!("{task}:{name}")).collect();
                    redlock.lock_all(names).acquire().await.unwrap().release().await.unwrap();
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        for server in fleet.iter() {
            let said = server.command(&["SLOWLOG", "GET", "10000"]).unwrap();
            let scripts: Vec<_> = said
                .items()
                .iter()
                .filter(|entry| entry.items()[3].items()[0].text().unwrap().eq_ignore_ascii_case("evalsha"))
                .map(|entry| (entry.items()[2].int().unwrap(), entry.items()[3].items()[2].int().unwrap()))
                .collect();
            let longest = scripts.iter().max().unwrap();
            let most = scripts.iter().map(|(_, keys)| *keys).max().unwrap();
            println!(
                "{} scripts, the longest {} us with {} keys, {most} keys at most",
                scripts.len(),
                longest.0,
                longest.1
            );
            assert!(most <= MOST_KEYS, "{most} keys in one command");
        }
        free_within(PATIENCE, &fleet).await;
    });
}
