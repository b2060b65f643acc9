//! `max_ttl`, and the list of instances, are changed while clients run (P29, P30), as docs/operations.md says.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redquorum::{Admission, AdmissionStatus, FencingToken, Guard, Redlock, Renewal};
use redquorum_testkit::{Fleet, Server, Stalls};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::support::{Outcome, RECORD, SLACK, all_is_well, ms, on_every_kind, until};

const SHORT: Duration = Duration::from_secs(2);
const LONG: Duration = Duration::from_secs(5);

/// A renewal sets the locks that are held again where they were lost, before the next instance loses them.
const RENEWED: Duration = Duration::from_millis(2_500);

/// What a client may ask for, and how long it has instances wait.
const FORMER: (Duration, Duration) = (SHORT, SHORT);
const BETWEEN: (Duration, Duration) = (SHORT, LONG);
const LATTER: (Duration, Duration) = (LONG, LONG);

/// What the locks of a service protect. Two in one section would be seen, and tokens that do not grow.
#[derive(Default)]
struct Storage {
    inside: Mutex<BTreeSet<usize>>,
    tokens: Mutex<BTreeMap<usize, FencingToken>>,
    done: AtomicU64,
}

/// Clients under load.
#[derive(Default)]
struct Service {
    storage: Arc<Storage>,
}

impl Service {
    /// A process with these terms: it locks again and again, and holds a lock of its own.
    async fn start(&self, name: &str, servers: &[Server], terms: (Duration, Duration)) -> Outcome<Process> {
        let (max_ttl, quarantine) = terms;
        let builder = Redlock::builder().instances(servers.iter().map(Server::address)).admission(Admission::On);
        let builder = builder.ttl(max_ttl).max_ttl(max_ttl).quarantine(quarantine).instance_timeout(ms(1_000));
        let redlock = builder.connect().await?;
        let stalls = Stalls::watch();
        let held = redlock.lock(format!("leader:{name}")).renew(Renewal::Auto).wait_at_most(LONG + SLACK);
        let held = held.acquire().await?;
        let (mut tasks, ends) = (JoinSet::new(), Arc::<AtomicBool>::default());
        for key in 0..4 {
            tasks.spawn(work(redlock.clone(), key, Arc::clone(&self.storage), Arc::clone(&ends)));
        }
        Ok(Process { redlock, held, tasks, ends, stalls })
    }

    /// How much is done in a time.
    async fn progress(&self, time: Duration) -> u64 {
        let before = self.storage.done.load(Ordering::Relaxed);
        sleep(time).await;
        self.storage.done.load(Ordering::Relaxed) - before
    }
}

async fn work(redlock: Redlock, key: usize, storage: Arc<Storage>, ends: Arc<AtomicBool>) {
    let lock = redlock.lock(format!("orders:{key}")).renew(Renewal::Off).wait_at_most(ms(500));
    while !ends.load(Ordering::Relaxed) {
        let Ok(guard) = lock.acquire().await else { continue };
        assert!(storage.inside.lock().unwrap_or_else(PoisonError::into_inner).insert(key), "two are inside");
        let former = storage.tokens.lock().unwrap_or_else(PoisonError::into_inner).insert(key, guard.fencing_token());
        assert!(former.is_none_or(|former| former < guard.fencing_token()), "{former:?} was larger");
        sleep(ms(20)).await; // five clients on one machine leave its processors time for renewals
        assert!(storage.inside.lock().unwrap_or_else(PoisonError::into_inner).remove(&key));
        drop(guard);
        storage.done.fetch_add(1, Ordering::Relaxed);
    }
}

struct Process {
    redlock: Redlock,
    held: Guard,
    tasks: JoinSet<()>,
    ends: Arc<AtomicBool>,
    stalls: Stalls,
}

impl Process {
    /// Ends it as a deployment does; its lock was held all the while.
    async fn end(mut self) -> Outcome {
        let loss = timeout(Duration::ZERO, self.held.lost()).await.ok();
        all_is_well(&self.stalls, loss.is_none(), || format!("{loss:?}, {:?}", self.redlock.stats()));
        self.ends.store(true, Ordering::Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended?; // a panic
        }
        if loss.is_none() {
            self.held.release().await?;
        }
        self.redlock.shutdown(ms(2_000)).await?;
        Ok(())
    }
}

async fn restart_empty(server: &Server, process: &Process) -> Outcome {
    sleep(RENEWED).await;
    server.restart()?;
    all_vote(&process.redlock, LONG).await
}

/// All vote again after a quarantine at the most.
async fn all_vote(redlock: &Redlock, quarantine: Duration) -> Outcome {
    redlock.want_locks();
    sleep(ms(300)).await;
    let votes = || {
        let instances = redlock.instances();
        instances.iter().all(|status| status.admission == AdmissionStatus::Admitted)
    };
    assert!(until(quarantine + SLACK, votes).await, "{:?}", redlock.instances());
    Ok(())
}

/// What the records allow, in milliseconds.
fn allowed(servers: &[Server]) -> Outcome<BTreeSet<String>> {
    let allowed = |server: &Server| {
        let record = server.command(&["GET", RECORD])?.text().ok_or("no record")?;
        Ok(record.split(' ').nth(2).unwrap_or_default().to_owned())
    };
    servers.iter().map(allowed).collect()
}

/// What an operator does with `redquorum admission set`.
async fn set(servers: &[Server], quarantine: Duration) -> Outcome {
    let builder = Redlock::builder().instances(servers.iter().map(Server::address)).admission(Admission::AsRecorded);
    let builder = builder.ttl(SHORT).max_ttl(SHORT).quarantine(quarantine).instance_timeout(ms(1_000));
    let operator = builder.connect().await?;
    Ok(operator.admission_records().set().await?)
}

#[test]
fn max_ttl_is_raised_and_lowered_while_clients_lock_and_an_instance_forgets() -> Outcome {
    on_every_kind(|program| async move {
        let fleet = Fleet::start(&program, 5)?;
        let service = Service::default();
        let first = service.start("a", &fleet, FORMER).await?;
        all_vote(&first.redlock, SHORT).await?;

        let second = service.start("b", &fleet, BETWEEN).await?;
        restart_empty(&fleet[1], &second).await?;
        assert!(service.progress(ms(1_500)).await > 0, "both work beside each other");
        all_vote(&first.redlock, SHORT).await?;
        first.end().await?;
        assert_eq!(allowed(&fleet)?, BTreeSet::from(["2000".to_owned()]), "nothing is raised by itself");
        set(&fleet, LONG).await?;

        let third = service.start("c", &fleet, LATTER).await?;
        restart_empty(&fleet[2], &third).await?;
        assert!(service.progress(ms(1_500)).await > 0, "both work beside each other");
        assert_eq!(allowed(&fleet)?, BTreeSet::from(["5000".to_owned()]));
        second.end().await?;

        // And back: first what is asked for, then what instances say of it, then how long they wait.
        let fourth = service.start("d", &fleet, BETWEEN).await?;
        restart_empty(&fleet[3], &fourth).await?;
        third.end().await?;
        sleep(LONG).await; // the last lock that was asked for as long
        for server in fleet.chunks(1) {
            sleep(RENEWED).await;
            set(server, SHORT).await?;
            all_vote(&fourth.redlock, LONG).await?;
        }
        assert!(service.progress(ms(1_500)).await > 0);
        let last = service.start("e", &fleet, FORMER).await?;
        all_vote(&last.redlock, LONG).await?;
        fourth.end().await?;
        assert!(service.progress(ms(1_500)).await > 0);
        last.end().await
    })
}

#[test]
fn the_list_grows_and_shrinks_by_one_instance_at_a_time_while_clients_lock() -> Outcome {
    on_every_kind(|program| async move {
        let fleet = Fleet::start(&program, 5)?;
        let service = Service::default();
        let mut former = service.start("first", &fleet[..3], FORMER).await?;
        all_vote(&former.redlock, SHORT).await?;
        for count in [4, 5, 4, 3] {
            let next = service.start(&format!("of {count}"), &fleet[..count], FORMER).await?;
            all_vote(&next.redlock, SHORT).await?;
            assert!(service.progress(ms(1_500)).await > 0, "both work beside each other");
            former.end().await?;
            sleep(SHORT).await; // its last lock
            former = next;
        }
        former.end().await
    })
}

#[test]
fn a_client_that_is_too_early_or_left_behind_is_told_and_disturbs_nobody() -> Outcome {
    on_every_kind(|program| async move {
        let fleet = Fleet::start(&program, 3)?;
        let builder = |(max_ttl, quarantine): (Duration, Duration)| {
            let builder = Redlock::builder().instances(fleet.addresses()).ttl(max_ttl).max_ttl(max_ttl);
            builder.quarantine(quarantine).connect_timeout(ms(1_500)).instance_timeout(ms(1_000))
        };
        let former = builder(FORMER).connect().await?;
        all_vote(&former, SHORT).await?;
        let guard = former.lock("a").renew(Renewal::Auto).acquire().await?;
        let refused = builder(LATTER).connect().await.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(refused.contains("allows ttls of 2000 ms") && refused.contains("ask for 5000 ms"), "{refused}");
        former.lock("b").try_acquire().await?.release().await?;

        // And one that was left behind.
        set(&fleet, LONG).await?;
        let latter = builder(LATTER).connect().await?;
        all_vote(&latter, LONG).await?;
        let left_behind = former.lock("c").wait_at_most(ms(1_000)).acquire().await;
        let Err(error) = left_behind else {
            return Err("a client that waits for 2 s is let in where others ask for 5 s".into());
        };
        let seen = format!("{error} {:?}", former.instances());
        assert!(seen.contains("5000 ms"), "{seen}");
        let extended = guard.extend().await;
        assert!(extended.is_err(), "extends are votes: {extended:?}");
        builder(BETWEEN).connect().await?.lock("c").try_acquire().await?.release().await?;
        latter.lock("c").ttl(LONG).try_acquire().await?.release().await?;
        drop(guard);
        Ok(())
    })
}
