//! Clients that wait for the same lock get it in the order in which they came, and are woken (P25–P27).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use redquorum::{AcquireError, Admission, Builder, Guard, Redlock};
use redquorum_testkit::{Fleet, Reply, Server};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::support::{
    MAX_TTL, PATIENCE, SHORT_TIMEOUT, builder_of, eventually, fleet_of, free_within, held, ms, on_each_kind, pair,
    ready, secs,
};

/// A client that would ask again only after seconds: whoever gets in sooner was woken.
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

fn heard_on(server: &Server) -> usize {
    let said = server.command(&["PUBSUB", "CHANNELS", "redquorum:wake:*"]).unwrap();
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

fn calls(server: &Server, command: &str) -> u64 {
    let stats = server.command(&["INFO", "commandstats"]).unwrap().text().unwrap_or_default();
    let line =
        stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")).map(str::to_owned));
    line.and_then(|line| line.split(',').next().and_then(|calls| calls.parse().ok())).unwrap_or(0)
}

/// Each gets in, whichever is first.
async fn in_any_order<F: Future<Output = ()>>(waiters: [JoinHandle<Guard>; 2], then: impl Fn(Guard) -> F) {
    let [mut one, mut other] = waiters;
    let (first, last) = timeout(PATIENCE, async {
        tokio::select! {
            guard = &mut one => (guard, other),
            guard = &mut other => (guard, one),
        }
    })
    .await
    .unwrap();
    then(first.unwrap()).await;
    then(woken(last).await).await;
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
fn a_client_of_another_library_is_refused_by_what_is_kept_and_gets_in_when_nobody_waits() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let set = |server: &Server| server.command(&["SET", "a", "theirs", "NX", "PX", "5000"]).unwrap();
        // It waits, and is hung when it is its turn.
        let mut listener = redis_listener(&fleet);
        let holder = ready(patient(&fleet)).await;
        let guard = held(&holder, "a").await;
        announce(&fleet, &holder_of(&fleet), "0123456789ab");
        knows_of(&holder, 1).await;
        guard.release().await.unwrap();
        assert!(fleet.iter().all(|server| set(server) == Reply::Nil), "it is kept for the one that waits");
        let refused = holder.lock("a").try_acquire().await.unwrap_err();
        let AcquireError::Contended(held_by) = &refused else { panic!("{refused}") };
        assert!(held_by.by.is_reserved && refused.to_string().contains("waited longest"), "{refused}");
        let free = || fleet.iter().all(|server| server.keys().unwrap().is_empty());
        assert!(eventually(PATIENCE, free).await, "kept for one instance timeout");
        listener.clear();

        held(&holder, "a").await.release().await.unwrap();
        free_within(PATIENCE, &fleet).await;
        assert!(fleet.iter().all(|server| set(server) != Reply::Nil));
    });
}

/// A connection to each server that listens to the channel of a client, and is never read.
fn redis_listener(fleet: &Fleet) -> Vec<redis::Connection> {
    let listen = |server: &Server| {
        let mut connection = redis::Client::open(server.address()).unwrap().get_connection().unwrap();
        let subscribe = redis::cmd("SUBSCRIBE").arg("redquorum:wake:0123456789ab").get_packed_command();
        connection.send_packed_command(&subscribe).unwrap();
        connection.recv_response().unwrap();
        connection
    };
    fleet.iter().map(listen).collect()
}

/// The client that has the lock.
fn holder_of(fleet: &Fleet) -> String {
    let value = fleet[0].command(&["GET", "a"]).unwrap().text().unwrap();
    value.split(':').nth(1).unwrap()[..12].to_owned()
}

/// As a client that waits does.
fn announce(fleet: &Fleet, to: &str, client: &str) {
    let message = format!("w010000000000000001{client}0001a");
    let heard = fleet[0].command(&["PUBLISH", &format!("redquorum:wake:{to}"), &message]).unwrap();
    assert_eq!(heard, Reply::Int(1));
}

#[test]
fn a_waiter_that_is_gone_is_passed_over_and_one_that_gives_up_passes_on() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let mut clients = clients(&fleet, 4).await;
        let guard = held(&clients[0], "a").await;
        let crashed = waiting(&clients[1], &clients[0]).await;
        let gives_up = waiting(&clients[2], &clients[0]).await;
        let last = waiting(&clients[3], &clients[0]).await;
        crashed.abort();
        let _ = crashed.await;
        drop(clients.remove(1)); // with its connections
        let three = || fleet.iter().all(|server| heard_on(server) == 3);
        assert!(eventually(PATIENCE, three).await);
        gives_up.abort();
        let _ = gives_up.await;
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
        let _ = guard.keep_until_expiry(); // nothing is sent, as if it were gone
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
        // Short, as what is kept for a forged client is kept for one timeout.
        let clients = clients_by(patient(&fleet).instance_timeout(SHORT_TIMEOUT), 6).await;
        let (holders, sections, stop) =
            (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (ended, mut all_ended) = mpsc::channel::<()>(1);
        for client in clients {
            let (holders, sections, stop) = (Arc::clone(&holders), Arc::clone(&sections), Arc::clone(&stop));
            let ended = ended.clone();
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let guard = client.lock("a").wait_at_most(PATIENCE).acquire().await.unwrap();
                    assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "two holders at once");
                    sleep(ms(1)).await;
                    holders.fetch_sub(1, Ordering::SeqCst);
                    sections.fetch_add(1, Ordering::Relaxed);
                    let _ = guard.release().await;
                }
                drop(ended);
            });
        }
        drop(ended);
        for round in 0..40_u64 {
            for server in fleet.iter() {
                let Reply::Array(channels) = server.command(&["PUBSUB", "CHANNELS", "redquorum:wake:*"]).unwrap()
                else {
                    panic!("no channels")
                };
                for channel in channels.iter().filter_map(Reply::text) {
                    let forged = [
                        "n000001a".to_owned(),
                        format!("n01{round:016x}0123456789ab0001a"),
                        format!("w01{round:016x}0123456789ab0001a"),
                        format!("f01{round:016x}{}0001a", &channel[15..]),
                        "n".to_owned(),
                    ];
                    let forged = &forged[usize::try_from(round % 5).unwrap()];
                    server.command(&["PUBLISH", &channel, forged]).unwrap();
                }
            }
            sleep(ms(25)).await;
        }
        stop.store(true, Ordering::Relaxed);
        assert!(timeout(secs(30), all_ended.recv()).await.unwrap().is_none());
        assert!(sections.load(Ordering::Relaxed) > 40, "{sections:?}");
        free_within(PATIENCE, &fleet).await;
    });
}

/// A waiting section costs what it cost before, two announcements, and no ask while it waits.
#[test]
fn many_clients_in_turn_cost_few_commands() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let clients = clients(&fleet, 8).await;
        let commands = || {
            fleet
                .iter()
                .map(|server| ["evalsha", "publish"].map(|name| calls(server, name)).iter().sum::<u64>())
                .sum::<u64>()
        };
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

#[test]
fn who_knows_of_others_that_want_the_lock_does_not_ask_by_plain_commands() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let in_order = || builder_of(&fleet).admission(Admission::On).max_ttl(MAX_TTL).ttl(MAX_TTL);
        let (one, other) = (ready(in_order()).await, ready(in_order()).await);
        let plain = || calls(&fleet[0], "getrange");
        pair(&one, "a").await;
        let before = plain();
        assert!(before > 0, "nobody else wants it");
        let guard = held(&one, "a").await;
        let waits = waiting(&other, &one).await;
        guard.release().await.unwrap();
        let asked = plain();
        let again = one.lock("a").wait_at_most(ms(50)).acquire().await;
        assert!(again.is_err() && plain() == asked, "{} instead of {asked}", plain());
        woken(waits).await.release().await.unwrap();
    });
}
