//! Clients that wait for the same lock, over simulated servers: in order, woken, passed on (P25–P27).
#![expect(clippy::disallowed_methods, reason = "the runtime's clock is the true time here")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use redquorum::testing::Cluster;
use redquorum::testing::simulation::{MachineClock, REMEMBERED, Server, builder, remembered, seed_this_thread};
use redquorum::{AcquireError, Admission, Guard, Redlock, Renewal};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{Instant, sleep, timeout};

use crate::support::{TIMEOUT, ms, secs, settle, timed};

const SERVERS: usize = 5;
const WALL_US: u64 = 1_750_000_000_000_000;

/// Whoever gets in sooner did not ask again by itself: the first pause is longer.
pub(crate) const AT_ONCE: Duration = ms(50);

/// The default ttl.
const TTL: Duration = secs(10);

/// After the expiry of what stood in their way, waiters are in within this.
const AFTER_EXPIRY: Duration = ms(250);

/// The longest pause of a waiter.
const LONGEST_PAUSE: Duration = secs(1);

/// Servers, and clients whose wall clocks show the same.
pub(crate) struct Fleet(Vec<Server>, Instant);

impl Fleet {
    pub(crate) fn new() -> Self {
        let server = |index| Server::new(index, Arc::new(MachineClock::new(Instant::now(), WALL_US, 0)));
        Self((0..SERVERS as u64).map(server).collect(), Instant::now())
    }

    pub(crate) async fn client(&self) -> Redlock {
        self.client_with(TIMEOUT).await
    }

    pub(crate) async fn client_with(&self, instance_timeout: Duration) -> Redlock {
        let servers = self.0.clone();
        let clock = Arc::new(MachineClock::new(self.1, WALL_US, 0));
        let dial = move |index: usize| {
            let server = servers[index].clone();
            async move { Ok(connect(&server)) }
        };
        let builder = builder(SERVERS, clock, dial).admission(Admission::Off).instance_timeout(instance_timeout);
        let client = builder.build().unwrap();
        client.wait_connected(secs(1)).await.unwrap();
        sleep(ms(10)).await; // all of them
        client
    }

    /// The channel of the client that has the lock.
    fn channel_of_holder(&self) -> String {
        let value = self.0[0].locks().remove(0).1;
        let id: Vec<u8> = value.split(|byte| *byte == b':').nth(1).unwrap()[..12].to_vec();
        format!("redquorum:wake:{}", String::from_utf8(id).unwrap())
    }
}

fn connect(server: &Server) -> DuplexStream {
    let (ours, theirs) = duplex(1 << 16);
    let server = server.clone();
    tokio::spawn(async move { server.serve(theirs).await });
    ours
}

/// Sends one command, and reads the beginning of the answer.
async fn ask(stream: &mut DuplexStream, words: &[&str]) -> Vec<u8> {
    let mut command = redis::Cmd::new();
    command.arg(words);
    stream.write_all(&command.get_packed_command()).await.unwrap();
    let mut answer = vec![0; 256];
    let count = stream.read(&mut answer).await.unwrap();
    answer.truncate(count);
    answer
}

/// Begins to wait; returns once that is known to whoever is in the way.
pub(crate) async fn waits(client: &Redlock) -> JoinHandle<Guard> {
    let client = client.clone();
    let task = tokio::spawn(async move { client.lock("a").acquire().await.unwrap() });
    sleep(ms(5)).await;
    task
}

/// The guard of whoever waits, which has not asked again by itself.
pub(crate) async fn in_at_once(waits: impl Future<Output = Result<Guard, JoinError>>) -> Guard {
    let (guard, took) = timed(waits).await;
    assert!(took < AT_ONCE, "{took:?}");
    guard.unwrap()
}

/// Works under the lock again and again, `count` tasks of one client at a time.
pub(crate) fn busy_line(client: &Redlock, name: &'static str, count: usize) -> Vec<JoinHandle<()>> {
    let work = || {
        let client = client.clone();
        async move {
            loop {
                let _guard = client.lock(name).acquire().await.unwrap();
                sleep(ms(2)).await;
            }
        }
    };
    (0..count).map(|_| tokio::spawn(work())).collect()
}

#[tokio::test(start_paused = true)]
async fn waiting_clients_get_in_one_after_the_other_as_soon_as_the_lock_is_let_go() {
    let fleet = Fleet::new();
    let mut guard = fleet.client().await.lock("a").try_acquire().await.unwrap();
    let mut tasks = Vec::new();
    for _ in 0..6 {
        tasks.push(waits(&fleet.client().await).await);
    }
    for task in tasks {
        guard.release().await.unwrap();
        // Whoever comes next keeps it: another's turn does not come.
        let (next, took) = timed(timeout(secs(30), task)).await;
        assert!(took < AT_ONCE, "{took:?}");
        guard = next.unwrap().unwrap();
        sleep(ms(300)).await; // others ask meanwhile, in whatever order
    }
    guard.release().await.unwrap();
    sleep(2 * TIMEOUT).await;
    assert!(fleet.0.iter().all(|server| server.locks().is_empty() && server.odd_commands().is_empty()));
}

/// Those of one client who wait, the first in front.
async fn line_of(client: &Redlock, count: usize) -> VecDeque<JoinHandle<Guard>> {
    let mut line = VecDeque::new();
    for _ in 0..count {
        line.push_back(waits(client).await);
    }
    line
}

/// Lets the lock go to the next in line.
async fn hand_over(guard: Guard, line: &mut VecDeque<JoinHandle<Guard>>) -> Guard {
    drop(guard);
    line.pop_front().unwrap().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_line_beside_which_nobody_waits_keeps_the_lock() {
    let fleet = Fleet::new();
    let client = fleet.client().await;
    let mut guard = client.lock("a").try_acquire().await.unwrap();
    let mut line = line_of(&client, 40).await;
    let set = fleet.0[0].locks();
    for _ in 0..40 {
        guard = hand_over(guard, &mut line).await;
        assert_eq!(fleet.0[0].locks(), set);
    }
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_beside_a_line_gets_in_when_its_turn_is_over_and_nobody_pauses() {
    let fleet = Fleet::new();
    let (client, other) = (fleet.client().await, fleet.client().await);
    let mut guard = client.lock("a").try_acquire().await.unwrap();
    let mut line = line_of(&client, 40).await;
    let mut elsewhere = waits(&other).await;
    for _ in 0..16 {
        guard = hand_over(guard, &mut line).await;
        assert!(!elsewhere.is_finished());
    }
    guard.release().await.unwrap();
    let (got, took) = timed(&mut elsewhere).await;
    assert!(took < AT_ONCE, "{took:?}");
    sleep(ms(5)).await; // the line is announced
    got.unwrap().release().await.unwrap();
    in_at_once(line.pop_front().unwrap()).await.release().await.unwrap();
    for next in line {
        next.await.unwrap().release().await.unwrap();
    }
}

/// As a client of another library does, of whom nobody knows.
#[tokio::test(start_paused = true)]
async fn whoever_asks_again_every_5_ms_finds_the_lock_of_a_line_free_within_5_seconds() {
    let fleet = Fleet::new();
    let client = fleet.client().await;
    let guard = client.lock("a").try_acquire().await.unwrap();
    let workers = busy_line(&client, "a", 4);
    sleep(ms(5)).await;
    drop(guard);
    let free = || fleet.0.iter().filter(|server| server.locks().is_empty()).count();
    let mut tries = 0;
    while free() < SERVERS {
        sleep(ms(5)).await;
        tries += 1;
        assert!(tries < 1_000, "in vain for 5 s");
    }
    assert!(tries > 10, "it was not free for a while");
    workers.into_iter().for_each(|worker| worker.abort());
}

#[tokio::test(start_paused = true)]
async fn a_successor_that_hangs_costs_an_instance_timeout_and_a_pause() {
    let fleet = Fleet::new();
    let (holder, waiter) = (fleet.client().await, fleet.client().await);
    let guard = holder.lock("a").try_acquire().await.unwrap();
    let mut hung: Vec<DuplexStream> = fleet.0.iter().map(connect).collect();
    for stream in &mut hung {
        ask(stream, &["SUBSCRIBE", "redquorum:wake:0123456789ab"]).await;
    }
    let announced = "w0100000000000000010123456789ab0001a"; // before all others
    let heard = ask(&mut connect(&fleet.0[0]), &["PUBLISH", &fleet.channel_of_holder(), announced]).await;
    assert_eq!(heard, b":1\r\n");
    let waits = waits(&waiter).await;
    guard.release().await.unwrap();
    let refused = holder.lock("a").try_acquire().await.unwrap_err();
    assert!(matches!(&refused, AcquireError::Contended(held_by) if held_by.by.is_reserved), "{refused}");
    let (next, took) = timed(waits).await;
    assert!(took < TIMEOUT + LONGEST_PAUSE, "{took:?}");
    next.unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_goes_away_when_it_is_its_turn_passes_it_on_at_once() {
    let fleet = Fleet::new();
    let (one, two) = (fleet.client().await, fleet.client().await);
    let guard = fleet.client().await.lock("a").try_acquire().await.unwrap();
    let mut goes = Box::pin(one.lock("a").acquire());
    assert!(timeout(ms(5), &mut goes).await.is_err());
    let next = waits(&two).await;
    guard.release().await.unwrap();
    settle().await; // it is woken, and not polled
    drop(goes);
    in_at_once(next).await.release().await.unwrap();
}

/// Its connections end with it: nothing is kept for it.
#[tokio::test(start_paused = true)]
async fn a_waiter_whose_client_is_gone_is_passed_over() {
    let fleet = Fleet::new();
    let (gone, two) = (fleet.client().await, fleet.client().await);
    let guard = fleet.client().await.lock("a").try_acquire().await.unwrap();
    let goes = waits(&gone).await;
    let next = waits(&two).await;
    goes.abort();
    assert!(goes.await.is_err());
    drop(gone);
    sleep(ms(20)).await;
    guard.release().await.unwrap();
    in_at_once(next).await.release().await.unwrap();
}

/// What stands in the way tells when it expires, and whoever waits asks then (P27).
#[tokio::test(start_paused = true)]
async fn the_waiters_of_a_holder_that_crashed_get_in_within_a_quarter_of_a_second_of_its_expiry() {
    for seed in 0..12 {
        seed_this_thread(seed);
        for count in [1, 5] {
            let fleet = Fleet::new();
            let holder = fleet.client().await;
            let began = Instant::now();
            let guard = holder.lock("a").renew(Renewal::Off).try_acquire().await.unwrap();
            let _ = guard.keep_until_expiry();
            drop(holder); // and who waits is known to nobody
            let mut tasks = Vec::new();
            for _ in 0..count {
                let client = fleet.client().await;
                tasks.push(tokio::spawn(async move {
                    client.lock("a").acquire().await.unwrap().release().await.unwrap();
                    Instant::now()
                }));
            }
            for task in tasks {
                let after = task.await.unwrap() - began;
                assert!(after >= TTL && after <= TTL + AFTER_EXPIRY, "{after:?} with {count} and seed {seed}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_handed_the_lock_and_goes_away_passes_it_on_to_the_next_client_at_once() {
    let fleet = Fleet::new();
    let (one, two) = (fleet.client().await, fleet.client().await);
    let guard = one.lock("a").try_acquire().await.unwrap();
    let mut goes = Box::pin(one.lock("a").acquire());
    assert!(timeout(ms(5), &mut goes).await.is_err());
    let next = waits(&two).await;
    drop(guard); // handed over within the client
    drop(goes);
    in_at_once(next).await.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_goes_away_while_its_ask_is_on_its_way_leaves_the_lock_to_the_next_at_once() {
    for steps in 0..30 {
        let fleet = Fleet::new();
        let (one, two) = (fleet.client().await, fleet.client().await);
        let guard = fleet.client().await.lock("a").try_acquire().await.unwrap();
        let mut goes = Box::pin(one.lock("a").acquire());
        assert!(timeout(ms(5), &mut goes).await.is_err());
        let next = waits(&two).await;
        drop(guard);
        for _ in 0..steps {
            tokio::task::yield_now().await;
        }
        drop(goes); // before, while or after it asks
        let (next, took) = timed(next).await;
        assert!(took < AT_ONCE, "{took:?} after {steps}");
        next.unwrap().release().await.unwrap();
    }
}

/// A client that was woken and won, and of which nobody waits, remembered until the next message that a wake-up might come.
#[tokio::test(start_paused = true)]
async fn what_is_known_of_waiters_is_forgotten_although_no_message_comes() {
    let fleet = Fleet::new();
    let clients = [fleet.client().await, fleet.client().await, fleet.client().await];
    let mut guard = clients[0].lock("a").try_acquire().await.unwrap();
    let mut tasks = Vec::new();
    for client in &clients[1..] {
        tasks.push(waits(client).await);
    }
    for task in tasks {
        guard.release().await.unwrap();
        guard = task.await.unwrap();
    }
    assert!(clients.iter().flat_map(remembered).any(|(_, entries)| entries > 0), "or this shows nothing");
    sleep(REMEMBERED).await;
    for client in &clients {
        assert!(remembered(client).iter().all(|(_, entries)| *entries == 0), "{:?}", remembered(client));
    }
    guard.release().await.unwrap();
}

/// It has announced itself, and so a release names it; what is kept for it goes on to the next.
#[tokio::test(start_paused = true)]
async fn a_client_that_waits_no_more_passes_its_turn_on_at_once() {
    let fleet = Fleet::new();
    let (one, two) = (fleet.client().await, fleet.client().await);
    for another_waits in [true, false] {
        let guard = fleet.client().await.lock("a").try_acquire().await.unwrap();
        let goes = waits(&one).await;
        let next = if another_waits { Some(waits(&two).await) } else { None };
        goes.abort();
        assert!(goes.await.is_err());
        guard.release().await.unwrap();
        sleep(ms(10)).await;
        match next {
            Some(next) => assert!(timeout(AT_ONCE, next).await.is_ok(), "the next is woken"),
            None => assert!(two.lock("a").try_acquire().await.is_ok(), "nothing is kept for anybody"),
        }
        sleep(2 * TIMEOUT).await;
    }
}

/// P27: whoever is heard asks seldom, and again when what is in its way expires.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_heard_asks_seldom_and_all_ask_when_what_is_in_the_way_expires() {
    let cluster = Cluster::new(SERVERS);
    let client = async || cluster.builder().connect().await.unwrap();
    let (holder, waiter) = (client().await, client().await);
    let guard = holder.lock("a").try_acquire().await.unwrap();
    let before = cluster.requests().acquire;
    assert!(timeout(secs(2), waiter.lock("a").acquire()).await.is_err());
    let asked = (cluster.requests().acquire - before) / SERVERS;
    assert!((2..=7).contains(&asked), "after 0.1, 0.2, 0.4, 0.5 and 0.5 s at the soonest: {asked} times");
    guard.release().await.unwrap();
    for name in ["b", "c", "d", "e", "f"] {
        cluster.instances().for_each(|instance| assert!(instance.set_if_absent(name, "another's", secs(30))));
        let (next, took) = timed(waiter.lock(name).acquire()).await;
        assert!(next.is_ok() && took >= secs(30) && took < secs(30) + AT_ONCE, "{took:?}");
    }
}

/// P27: those who hold forget within seconds who waits, and are told again before that.
#[tokio::test(start_paused = true)]
async fn a_waiter_is_woken_however_long_it_has_waited() {
    for seed in 0..4 {
        seed_this_thread(seed);
        let fleet = Fleet::new();
        let guard = fleet.client().await.lock("a").try_acquire().await.unwrap();
        let next = waits(&fleet.client().await).await;
        sleep(secs(15)).await;
        guard.release().await.unwrap();
        in_at_once(next).await.release().await.unwrap();
    }
}
