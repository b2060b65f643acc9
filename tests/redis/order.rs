//! Clients that wait for the same lock get it in the order in which they came, and are woken (P25–P27).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use redquorum::{Admission, Builder, Guard, Redlock};
use redquorum_testkit::{Fleet, Reply, Server};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

use crate::counts::settled;
use crate::support::{
    MAX_TTL, PATIENCE, alone_on_each_kind, builder_of, eventually, fleet_of, free_within, held, ms, on_each_kind, pair,
    ready, secs,
};

/// A client that would ask again only after seconds: one that gets in sooner was woken.
fn patient(fleet: &Fleet) -> Builder {
    builder_of(fleet).retry_delay(secs(30), secs(30))
}

async fn clients_by(builder: Builder, count: usize) -> Vec<Redlock> {
    let mut clients = Vec::new();
    for _ in 0..count {
        clients.push(ready(builder.clone()).await);
    }
    clients
}

async fn clients(fleet: &Fleet, count: usize) -> Vec<Redlock> {
    clients_by(patient(fleet), count).await
}

/// With the usual pauses, for what nobody is woken for.
async fn impatient(fleet: &Fleet, count: usize) -> Vec<Redlock> {
    clients_by(builder_of(fleet), count).await
}

/// How many clients listen to a channel of their own, which ends with twelve digits.
fn heard_on(server: &Server) -> usize {
    let said = server.command(&["PUBSUB", "CHANNELS", &format!("redquorum:wake:{}", "?".repeat(12))]).unwrap();
    if let Reply::Array(channels) = said { channels.len() } else { 0 }
}

/// Begins to wait, and returns once the holder knows; the guard comes through the task.
async fn waiting(redlock: &Redlock, holder: &Redlock) -> JoinHandle<Guard> {
    let before = waiting_elsewhere(holder).await;
    let redlock = redlock.clone();
    let task = tokio::spawn(async move { redlock.lock("a").acquire().await.unwrap() });
    knows_of(holder, before + 1).await;
    task
}

/// How many others have told a client that they wait, as far as it has taken that in.
async fn waiting_elsewhere(holder: &Redlock) -> usize {
    holder.inspect("a").await.unwrap().waiting_elsewhere
}

async fn knows_of(holder: &Redlock, waiters: usize) {
    let knows = async {
        while waiting_elsewhere(holder).await < waiters {
            sleep(ms(5)).await;
        }
    };
    assert!(timeout(PATIENCE, knows).await.is_ok(), "nobody was told that it waits");
}

/// How often each was called, read at one moment.
fn calls<const N: usize>(server: &Server, commands: [&str; N]) -> [u64; N] {
    let stats = server.command(&["INFO", "commandstats"]).unwrap().text().unwrap_or_default();
    commands.map(|command| {
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
        line.and_then(|line| line.split(',').next().and_then(|calls| calls.parse().ok())).unwrap_or(0)
    })
}

/// Each gets in, whichever is first.
async fn in_any_order<F: Future<Output = ()>>(waiters: [JoinHandle<Guard>; 2], then: impl Fn(Guard) -> F) {
    let (first, last) = first_woken(waiters).await;
    then(first).await;
    then(woken(last).await).await;
}

/// The one that gets in first, and the other: one that asks just when the lock is released is ahead of the one that is woken.
async fn first_woken([mut one, mut other]: [JoinHandle<Guard>; 2]) -> (Guard, JoinHandle<Guard>) {
    let first = async {
        tokio::select! {
            guard = &mut one => (guard.unwrap(), other),
            guard = &mut other => (guard.unwrap(), one),
        }
    };
    timeout(PATIENCE, first).await.unwrap()
}

async fn woken(task: JoinHandle<Guard>) -> Guard {
    timeout(PATIENCE, task).await.unwrap().unwrap()
}

#[test]
fn waiting_clients_get_the_lock_in_the_order_in_which_they_came_without_asking_in_between() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let clients = clients(&fleet, 5).await;
        let mut guard = held(&clients[0], "a").await;
        let mut tasks = Vec::new();
        for client in &clients[1..] {
            tasks.push(waiting(client, &clients[0]).await);
        }
        let mut token = guard.fencing_token();
        for task in tasks {
            guard.release().await.unwrap();
            guard = woken(task).await;
            assert!(guard.is_valid() && guard.fencing_token() > token);
            token = guard.fencing_token();
        }
        guard.release().await.unwrap();
        free_within(PATIENCE, &fleet).await;
    });
}

#[test]
fn a_waiter_that_gives_up_passes_on_and_one_that_is_gone_costs_a_pause() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let mut clients = clients(&fleet, 4).await;
        let guard = held(&clients[0], "a").await;
        let gives_up = waiting(&clients[1], &clients[0]).await;
        let next = waiting(&clients[2], &clients[0]).await;
        gives_up.abort();
        let _ = gives_up.await;
        guard.release().await.unwrap();
        woken(next).await.release().await.unwrap();

        let guard = held(&clients[3], "a").await;
        let crashed = waiting(&clients[1], &clients[3]).await;
        let last = waiting(&clients[2], &clients[3]).await;
        crashed.abort();
        let _ = crashed.await;
        drop(clients.remove(1)); // with its connections
        let three = || fleet.iter().all(|server| heard_on(server) == 3);
        assert!(eventually(PATIENCE, three).await);
        guard.release().await.unwrap();
        woken(last).await.release().await.unwrap();
        free_within(PATIENCE, &fleet).await;
    });
}

#[test]
fn a_holder_that_crashed_is_waited_out() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let clients = impatient(&fleet, 3).await;
        let guard = clients[0].lock("a").ttl(ms(1500)).try_acquire().await.unwrap();
        let waiters = [waiting(&clients[1], &clients[0]).await, waiting(&clients[2], &clients[0]).await];
        guard.keep_for(ms(0)).await.unwrap(); // nothing is sent, as if it were gone
        in_any_order(waiters, |guard| async { drop(guard) }).await;
        free_within(PATIENCE, &fleet).await;
    });
}

/// No push, or a right is missing: it asks, as without it.
#[test]
fn clients_that_are_not_heard_get_in_all_the_same() {
    on_each_kind(async |program| {
        for denied in [&["-subscribe"][..], &["-publish"], &["-subscribe", "-publish"], &["resetchannels"]] {
            let fleet = fleet_of(&program, 3);
            let in_order = || builder_of(&fleet);
            for server in fleet.iter() {
                let rule: Vec<&str> = ["ACL", "SETUSER", "default"].iter().chain(denied).copied().collect();
                server.command(&rule).unwrap();
            }
            let (one, other) = (ready(in_order()).await, ready(in_order()).await);
            let guard = held(&one, "a").await;
            let waits = tokio::spawn(async move { other.lock("a").acquire().await.unwrap() });
            sleep(ms(100)).await;
            assert!(guard.release().await.unwrap().was_still_held, "{denied:?}");
            woken(waits).await.release().await.unwrap();
            free_within(PATIENCE, &fleet).await;
        }
    });
}

#[test]
fn instances_that_are_flushed_or_restarted_between_any_two_steps_cost_time_only() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let clients = impatient(&fleet, 3).await;
        for restarts in [false, true] {
            sleep(ms(20)).await; // it has let the lock go for others
            let guard = held(&clients[0], "a").await;
            let waiters = [waiting(&clients[1], &clients[0]).await, waiting(&clients[2], &clients[0]).await];
            disturb(&fleet, 0, restarts);
            guard.release().await.unwrap();
            disturb(&fleet, 1, restarts);
            in_any_order(waiters, |guard| async {
                disturb(&fleet, 2, restarts);
                drop(guard);
            })
            .await;
            all_connected(&clients).await;
            free_within(PATIENCE, &fleet).await;
        }
    });
}

fn disturb(fleet: &Fleet, at: usize, restarts: bool) {
    if restarts {
        fleet[at].kill().unwrap();
        fleet[at].restart().unwrap();
    } else {
        fleet[at].command(&["FLUSHALL"]).unwrap();
    }
}

async fn all_connected(clients: &[Redlock]) {
    for client in clients {
        crate::support::all_vote(client).await;
    }
}

/// Whatever the table says: forged announcements and wake-ups grant nothing, and cost others nothing but time.
#[test]
fn forged_messages_let_nobody_in_twice() {
    on_each_kind(async |program| {
        let fleet = Arc::new(fleet_of(&program, 3));
        let clients = impatient(&fleet, 6).await;
        let (holders, sections, stop) =
            (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let mut tasks = JoinSet::new();
        for client in clients {
            let (holders, sections, stop) = (Arc::clone(&holders), Arc::clone(&sections), Arc::clone(&stop));
            tasks.spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let guard = client.lock("a").wait_at_most(PATIENCE).acquire().await.unwrap();
                    assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "two holders at once");
                    sleep(ms(1)).await;
                    holders.fetch_sub(1, Ordering::SeqCst);
                    sections.fetch_add(1, Ordering::Relaxed);
                    let _ = guard.release().await;
                }
            });
        }
        for round in 0..400_u64 {
            if round >= 40 && sections.load(Ordering::Relaxed) > 40 {
                break; // a busy machine takes longer for them
            }
            for server in fleet.iter() {
                let Reply::Array(channels) = server.command(&["PUBSUB", "CHANNELS", "redquorum:wake:*"]).unwrap()
                else {
                    panic!("no channels")
                };
                for channel in channels.iter().filter_map(Reply::text) {
                    let forged = [
                        "n000001a".to_owned(),
                        format!("n01{round:016x}0123456789abw0001a"),
                        format!("w01{round:016x}0123456789abr0001a"),
                        format!("f01{round:016x}{}w0001a", &channel[15..]),
                        "n".to_owned(),
                    ];
                    let forged = &forged[usize::try_from(round % 5).unwrap()];
                    server.command(&["PUBLISH", &channel, forged]).unwrap();
                }
            }
            sleep(ms(25)).await;
        }
        stop.store(true, Ordering::Relaxed);
        timeout(secs(30), tasks.join_all()).await.unwrap(); // and panics if one has
        assert!(sections.load(Ordering::Relaxed) > 40, "{sections:?}");
        free_within(PATIENCE, &fleet).await;
    });
}

/// The scripts and messages that each instance has carried out from a release on, until the next waiter has the lock.
async fn costs_of_a_release(fleet: &Fleet, clients: &[Redlock]) -> Vec<[u64; 2]> {
    let guard = clients[0].lock("a").wait_at_most(PATIENCE).acquire().await.unwrap();
    let waiters = [waiting(&clients[1], &clients[0]).await, waiting(&clients[2], &clients[0]).await];
    settled(fleet).await; // a quorum has answered so far
    let count = |server: &Server| calls(server, ["evalsha", "publish"]);
    let before: Vec<[u64; 2]> = fleet.iter().map(count).collect();
    guard.release().await.unwrap();
    let (guard, last) = first_woken(waiters).await;
    let costs = || -> Vec<[u64; 2]> {
        let both = fleet.iter().map(count).zip(&before);
        both.map(|(now, before)| [now[0] - before[0], now[1] - before[1]]).collect()
    };
    let is_done = || costs().iter().all(|[scripts, messages]| *scripts >= 2 && *messages >= 1);
    assert!(eventually(PATIENCE, is_done).await, "{:?}", costs());
    let costs = costs();
    guard.release().await.unwrap();
    woken(last).await.release().await.unwrap();
    free_within(PATIENCE, fleet).await;
    costs
}

#[test]
fn a_release_is_one_script_on_each_instance_and_one_message_to_the_next_waiter() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let clients = impatient(&fleet, 3).await;
        let mut seen = Vec::new();
        // One that is woken by the first instance may be ahead of the release on another, or meets one that asks, and asks once more.
        while seen.last().is_none_or(|costs| *costs != [[2, 1]; 5]) {
            assert!(seen.len() < 5, "the release, the acquire of the next, one message: {seen:?}");
            seen.push(costs_of_a_release(&fleet, &clients).await);
        }
    });
}

/// A waiting section costs what it cost before, two announcements, and no ask while it waits.
#[test]
fn many_clients_in_turn_cost_few_commands() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let clients = impatient(&fleet, 8).await;
        let commands =
            || fleet.iter().map(|server| calls(server, ["evalsha", "publish"]).iter().sum::<u64>()).sum::<u64>();
        let before = commands();
        let counts: Vec<_> = clients
            .into_iter()
            .map(|client| {
                tokio::spawn(async move {
                    for _ in 0..25 {
                        let guard = client.lock("a").acquire().await.unwrap();
                        sleep(ms(2)).await;
                        guard.release().await.unwrap();
                    }
                })
            })
            .collect();
        for count in counts {
            timeout(secs(60), count).await.unwrap().unwrap();
        }
        let each = (commands() - before) as f64 / 200.0;
        println!("{each} commands a section");
        assert!(each < 40.0, "{each}");
    });
}

/// How many sections of 2 ms each client gets within three seconds: the first by a loop of single tries, every millisecond.
async fn sections(clients: Vec<Redlock>) -> Vec<usize> {
    let stop = Arc::new(AtomicBool::new(false));
    let works = clients.into_iter().enumerate().map(|(number, client)| {
        let stop = Arc::clone(&stop);
        tokio::spawn(async move {
            let mut sections = 0;
            while !stop.load(Ordering::Relaxed) {
                let lock = client.lock("a");
                let guard =
                    if number == 0 { lock.try_acquire().await.ok() } else { Some(lock.acquire().await.unwrap()) };
                if let Some(guard) = guard {
                    sleep(ms(2)).await;
                    guard.release().await.unwrap();
                    sections += 1;
                }
                if number == 0 {
                    sleep(ms(1)).await;
                }
            }
            sections
        })
    });
    let works: Vec<_> = works.collect();
    sleep(secs(3)).await;
    stop.store(true, Ordering::Relaxed);
    let mut sections = Vec::new();
    for work in works {
        sections.push(timeout(PATIENCE, work).await.unwrap().unwrap());
    }
    sections
}

#[test]
fn a_loop_of_single_tries_gets_a_tenth_of_the_sections_beside_waiters_at_most() {
    alone_on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let clients = impatient(&fleet, 17).await;
        let mut seen = Vec::new();
        // Where something else keeps the machine busy the waiters are woken late, and the loop comes first more often.
        let is_fair = loop {
            let sections = sections(clients.clone()).await;
            println!("{sections:?}");
            let is_fair = sections[0] * 10 <= sections.iter().sum();
            seen.push(sections);
            if is_fair || seen.len() == 3 {
                break is_fair;
            }
        };
        assert!(is_fair, "{seen:?}");
        free_within(PATIENCE, &fleet).await;
    });
}

#[test]
fn who_knows_of_others_that_want_the_lock_does_not_ask_by_plain_commands() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let in_order = || builder_of(&fleet).admission(Admission::On).max_ttl(MAX_TTL).ttl(MAX_TTL);
        let (one, other) = (ready(in_order()).await, ready(in_order()).await);
        // Both set the key; only the script looks up its token.
        let asked = || calls(&fleet[0], ["set", "zscore"]);
        let [set, looked_up] = asked();
        pair(&one, "a").await;
        let by_plain_commands = || asked() == [set + 1, looked_up];
        assert!(eventually(PATIENCE, by_plain_commands).await, "nobody else wants it: {:?}", asked());
        let guard = held(&one, "a").await;
        let waits = waiting(&other, &one).await;
        // The other has asked once before it knew, here perhaps later than a quorum.
        assert!(eventually(PATIENCE, || asked()[0] >= set + 3).await, "{:?}", asked());
        guard.release().await.unwrap();
        let [set, looked_up] = asked();
        let again = one.lock("a").wait_at_most(ms(50)).acquire().await;
        let [set_again, looked_up_again] = asked();
        assert!(again.is_err(), "{again:?}");
        assert!(set_again - set <= looked_up_again - looked_up, "by scripts alone");
        woken(waits).await.release().await.unwrap();
    });
}
