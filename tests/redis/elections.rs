//! Elections on real servers: leaders that are killed, hung or cut off, and who sees that.
#![expect(clippy::disallowed_methods, reason = "tests on real servers measure real time")]

use std::time::{Duration, Instant};

use redquorum::{Admission, Builder, FencingToken, Loss, Observer, Redlock};
use redquorum_testkit::{Fleet, Program, Proxy};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::support::{
    PATIENCE, TIMEOUT, alone_on_each_kind, fleet_of, free_within, ms, on_each_kind, ready, secs, timed,
};

const TTL: Duration = ms(1500);

/// After the ttl others look at once, or after a pause.
const NEXT_LEADS: Duration = ms(1500 + 1000);

fn builder(fleet: &Fleet) -> Builder {
    builder_at(fleet.addresses())
}

fn builder_at(addresses: Vec<String>) -> Builder {
    Redlock::builder().instances(addresses).ttl(TTL).admission(Admission::Off).instance_timeout(ms(200))
}

/// How a leader fails.
#[derive(Clone, Copy, Debug)]
enum Failure {
    /// Its process ends, so that nothing is released.
    Killed,
    /// What it sends arrives nowhere any more, and it hears nothing.
    CutOff,
    /// All of its keys are deleted.
    Robbed,
}

/// A leader on a runtime of its own, behind proxies.
struct Candidate {
    runtime: Option<Runtime>,
    proxies: Vec<Proxy>,
    lost: oneshot::Receiver<(Loss, Instant)>,
    token: FencingToken,
}

impl Candidate {
    async fn lead(fleet: &Fleet, name: &str) -> Self {
        let proxies: Vec<Proxy> = fleet.iter().map(|server| Proxy::start(server).unwrap()).collect();
        let addresses: Vec<String> = proxies.iter().map(Proxy::address).collect();
        let builder = builder_at(addresses);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (tell, lost) = oneshot::channel();
        let name = name.to_owned();
        let leads = runtime.spawn(async move {
            let redlock = ready(builder).await;
            let leadership = redlock.election("e").campaign(&name).await.unwrap();
            let (token, lease) = (leadership.fencing_token(), leadership.lease());
            tokio::spawn(async move {
                let loss = lease.lost().await;
                let _ = tell.send((loss, Instant::now()));
            });
            std::mem::forget((leadership, redlock)); // so that the end of its runtime releases nothing
            token
        });
        Self { token: leads.await.unwrap(), runtime: Some(runtime), proxies, lost }
    }

    fn fail(&mut self, how: Failure, fleet: &Fleet) {
        match how {
            Failure::Killed => self.runtime.take().into_iter().for_each(Runtime::shutdown_background),
            Failure::CutOff => self.proxies.iter().for_each(|proxy| proxy.black_hole().unwrap()),
            Failure::Robbed => fleet.iter().for_each(|server| drop(server.command(&["DEL", "e"]).unwrap())),
        }
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

async fn follows_a_leader_that_is(how: Failure, program: &Program) {
    let fleet = fleet_of(program, 5);
    let (next, worker) = (ready(builder(&fleet)).await, ready(builder(&fleet)).await);
    let mut observer = worker.election("e").observe().unwrap();
    let mut leader = Candidate::lead(&fleet, "first").await;
    assert_eq!(observer.next().await.token, leader.token);
    let campaign = tokio::spawn(next.election("e").campaign("next"));
    sleep(ms(700)).await; // it is renewed, and another waits
    assert!(!campaign.is_finished());
    let failed = Instant::now();
    leader.fail(how, &fleet);
    let has_failed = Instant::now(); // a server may take its time until it has deleted the key
    let follower = timeout(PATIENCE, campaign).await.unwrap().unwrap().unwrap();
    let took = failed.elapsed();
    let (seen, seen_after) = timed(observer.next()).await;
    println!("{how:?}: the next leads after {took:?}, seen {seen_after:?} later");
    assert!(took < NEXT_LEADS && seen_after < 2 * TTL / 3, "{took:?}, {seen_after:?}");
    assert_eq!((seen.info.as_str(), seen.token), ("next", follower.fencing_token()));
    assert!(seen.token > leader.token);
    if !matches!(how, Failure::Killed) {
        let (loss, at) = timeout(PATIENCE, &mut leader.lost).await.unwrap().unwrap();
        let (since, in_time) = if matches!(how, Failure::Robbed) { (has_failed, ms(300)) } else { (failed, TTL) };
        let after = at.saturating_duration_since(since);
        println!("{how:?}: told after {after:?}: {loss}");
        assert!(after <= in_time, "{after:?}");
    }
    let _ = follower.resign().await; // unconfirmed where the machine stands still for longer than the timeout
}

#[test]
fn a_leader_that_is_killed_is_followed_in_time() {
    alone_on_each_kind(async |program| follows_a_leader_that_is(Failure::Killed, &program).await);
}

#[test]
fn a_leader_that_is_cut_off_knows_it_before_the_next_one_leads() {
    alone_on_each_kind(async |program| follows_a_leader_that_is(Failure::CutOff, &program).await);
}

#[test]
fn a_leader_that_is_robbed_knows_it_at_once() {
    alone_on_each_kind(async |program| follows_a_leader_that_is(Failure::Robbed, &program).await);
}

/// Sees leaders until a while has passed without another.
async fn tokens(mut observer: Observer) -> Vec<FencingToken> {
    let mut seen = Vec::new();
    while let Ok(leader) = timeout(secs(2), observer.next()).await {
        seen.push(leader.token);
    }
    seen
}

#[test]
fn observers_see_many_leaders_in_the_order_of_their_tokens() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let mut candidates = JoinSet::new();
        let mut observers = JoinSet::new();
        for _ in 0..3 {
            let redlock = ready(builder(&fleet)).await;
            observers.spawn(tokens(redlock.election("e").observe().unwrap()));
        }
        for number in 0..4 {
            let redlock = ready(builder(&fleet).instance_timeout(TIMEOUT)).await;
            candidates.spawn(async move {
                let mut led = Vec::new();
                for round in 0..6 {
                    let leadership = redlock.election("e").campaign(&format!("{number}/{round}")).await.unwrap();
                    led.push(leadership.fencing_token());
                    sleep(ms(100)).await; // a machine that stands still once hides a few of them
                    leadership.resign().await.unwrap();
                }
                led
            });
        }
        let led: Vec<FencingToken> = candidates.join_all().await.into_iter().flatten().collect();
        for seen in observers.join_all().await {
            println!("{} of {} leaders were seen", seen.len(), led.len());
            assert!(seen.windows(2).all(|pair| pair[0] < pair[1]) && seen.iter().all(|token| led.contains(token)));
            assert!(seen.len() >= led.len() / 2, "by push they are seen at once");
        }
        free_within(PATIENCE, &fleet).await;
    });
}
