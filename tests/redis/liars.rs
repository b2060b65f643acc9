//! Instances that answer, and more than anybody asked for: what they may cost those who lock beside them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use redquorum::{Redlock, Renewal};
use redquorum_testkit::Server;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::memory::resident;
use crate::support::{
    PATIENCE, alone_on_each_kind, builder_of, eventually, fleet_of, held, on_each_kind, pair, ready, secs, timed,
};

/// The most that a client may grow by beside two of them.
const MOST_GROWTH: usize = 64 * 1024 * 1024;

/// How many tasks lock beside each other.
const TASKS: usize = 8;

/// More than is accepted of any reply, and just below.
const ALMOST_4_MIB: usize = 4 * 1024 * 1024 - 1024;
const ALMOST_1_MIB: usize = 1024 * 1024 - 1024;

/// Stands before a server, and from a moment on answers one write in so many with replies of a size.
#[derive(Clone)]
struct Liar {
    address: String,
    one_in: Arc<AtomicUsize>,
    reply: Arc<Vec<u8>>,
    connections: Arc<AtomicUsize>,
}

impl Liar {
    async fn before(server: &Server, size: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("redis://{}", listener.local_addr().unwrap());
        let reply = Arc::new(format!("${size}\r\n{}\r\n", "x".repeat(size)).into_bytes());
        let liar = Self { address, one_in: Arc::default(), reply, connections: Arc::default() };
        let (of_listener, port) = (liar.clone(), server.port());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                of_listener.connections.fetch_add(1, Ordering::Relaxed);
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else { return };
                tokio::spawn(of_listener.clone().serve(client, server));
            }
        });
        liar
    }

    /// Answers the commands of one write itself, or passes them on.
    async fn serve(self, client: TcpStream, server: TcpStream) {
        let (mut requests, mut replies) = client.into_split();
        let (mut from_server, mut to_server) = server.into_split();
        let (answer, mut answers) = tokio::sync::mpsc::channel::<usize>(64);
        tokio::spawn(async move {
            let mut buffer = vec![0; 64 * 1024];
            loop {
                let is_over = tokio::select! {
                    size = from_server.read(&mut buffer) => match size {
                        Ok(size @ 1..) => replies.write_all(&buffer[..size]).await.is_err(),
                        _ => true,
                    },
                    Some(count) = answers.recv() => replies.write_all(&self.reply.repeat(count)).await.is_err(),
                };
                if is_over {
                    return;
                }
            }
        });
        let (mut buffer, mut writes) = (vec![0; 64 * 1024], 0_usize);
        while let Ok(size @ 1..) = requests.read(&mut buffer).await {
            let one_in = self.one_in.load(Ordering::Relaxed);
            writes += 1;
            if one_in > 0 && writes % one_in == 0 {
                let commands = buffer[..size].windows(3).filter(|bytes| bytes == b"\r\n*").count() + 1;
                if answer.send(commands.min(4)).await.is_err() {
                    return;
                }
            } else if to_server.write_all(&buffer[..size]).await.is_err() {
                return;
            }
        }
    }
}

/// What became of the locks of many tasks.
#[derive(Debug, Default)]
struct Sections {
    took: Vec<Duration>,
    failed: usize,
}

impl Sections {
    fn p99(&mut self) -> Duration {
        self.took.sort_unstable();
        self.took[self.took.len() * 99 / 100]
    }
}

/// Each task acquires and releases a lock of its own, for so long.
async fn sections_for(redlock: &Redlock, long: Duration) -> Sections {
    let stop = Arc::new(AtomicBool::new(false));
    let task = |task: usize| {
        let (redlock, stop) = (redlock.clone(), Arc::clone(&stop));
        tokio::spawn(async move {
            let (name, mut sections) = (format!("task-{task}"), Sections::default());
            while !stop.load(Ordering::Relaxed) {
                let (acquired, took) = timed(redlock.lock(&*name).wait_at_most(PATIENCE).acquire()).await;
                match acquired {
                    Ok(guard) => {
                        sections.took.push(took);
                        drop(guard.release().await);
                    }
                    Err(_) => sections.failed += 1,
                }
            }
            sections
        })
    };
    let tasks: Vec<_> = (0..TASKS).map(task).collect();
    tokio::time::sleep(long).await;
    stop.store(true, Ordering::Relaxed);
    let mut all = Sections::default();
    for task in tasks {
        let sections = task.await.unwrap();
        all.took.extend(sections.took);
        all.failed += sections.failed;
    }
    all
}

/// Two of five answer one write in so many with so many bytes for each command.
fn two_of_five_answer_too_much(one_in: usize, size: usize) {
    alone_on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let mut addresses = fleet.addresses();
        let liars = [Liar::before(&fleet[0], size).await, Liar::before(&fleet[1], size).await];
        addresses.iter_mut().zip(&liars).for_each(|(address, liar)| address.clone_from(&liar.address));
        let redlock = ready(builder_of(&fleet).instances(addresses).renew(Renewal::Auto)).await;
        let long_held = redlock.lock("held").ttl(secs(2)).try_acquire().await.unwrap();
        let mut before = sections_for(&redlock, secs(2)).await;
        let memory = resident();

        liars.iter().for_each(|liar| liar.one_in.store(one_in, Ordering::Relaxed));
        let mut beside = sections_for(&redlock, secs(4)).await;
        let growth = resident().zip(memory).map_or(0, |(now, before)| now.saturating_sub(before));
        let connections = liars.each_ref().map(|liar| liar.connections.load(Ordering::Relaxed));
        println!(
            "one in {one_in}, {size} bytes: {} sections, p99 {:?}; before {}, p99 {:?}; {} failed; {} MiB more; connections {connections:?}",
            beside.took.len() / 2,
            beside.p99(),
            before.took.len(),
            before.p99(),
            beside.failed,
            growth / 1024 / 1024,
        );
        assert!(growth <= MOST_GROWTH, "{growth} bytes more");
        assert_eq!(beside.failed, 0);
        assert!(beside.took.len() / 2 >= before.took.len() / 20, "starved");
        assert!(connections.iter().all(|count| (2..20).contains(count)), "{connections:?}");
        assert!(long_held.is_valid() && long_held.extend().await.is_ok());
        let said = |status: &redquorum::InstanceStatus| status.last_error.clone().unwrap_or_default();
        let instances = redlock.instances();
        let why = if size == ALMOST_4_MIB { "a reply longer than" } else { "" };
        assert!(instances.iter().take(2).all(|status| said(status).contains(why)), "{instances:?}");
        drop(long_held);
        let (ended, took) = timed(redlock.shutdown(secs(3))).await;
        assert!(took <= secs(4), "{ended:?} after {took:?}");
    });
}

/// They took more than 70 % of the processor.
#[test]
fn instances_that_answer_too_much_starve_nobody() {
    two_of_five_answer_too_much(1, ALMOST_4_MIB);
}

#[test]
fn instances_that_answer_as_much_as_is_taken_starve_nobody() {
    two_of_five_answer_too_much(1, ALMOST_1_MIB);
}

/// Of 128 000 sections 3 400 were left, and 349 had no quorum.
#[test]
fn instances_that_now_and_then_answer_too_much_starve_nobody() {
    two_of_five_answer_too_much(50, ALMOST_4_MIB);
}

/// It is used again, without a restart of anybody.
#[test]
fn an_instance_that_answered_too_much_once_votes_again() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 3);
        let liar = Liar::before(&fleet[0], 64 * 1024).await;
        let mut addresses = fleet.addresses();
        addresses[0].clone_from(&liar.address);
        let redlock = ready(builder_of(&fleet).instances(addresses)).await;
        liar.one_in.store(1, Ordering::Relaxed);
        assert!(eventually(PATIENCE, || !redlock.instances()[0].connected).await);
        for _ in 0..10 {
            pair(&redlock, "a").await;
        }
        liar.one_in.store(0, Ordering::Relaxed);
        assert!(eventually(PATIENCE, || redlock.instances()[0].connected).await);
        let guard = held(&redlock, "a").await;
        assert!(eventually(PATIENCE, || guard.redundancy().held_on == 3).await, "{:?}", guard.redundancy());
    });
}
