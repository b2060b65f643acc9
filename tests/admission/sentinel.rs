//! An instance whose master is whom Sentinels name: a failover is a quarantine, and no second grant.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redquorum::{Admission, AdmissionStatus, FencingToken, Instance, Redlock};
use redquorum_testkit::{Program, Server};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::support::{
    Held, LOCK, Outcome, Stage, all_vote, ms, on_every_kind, promote, resynchronise, storm, until, with_and_without,
};

const GROUP: &str = "mymaster";

/// How long a failover may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// The replica of one server, and three Sentinels that watch over both.
struct Group {
    replica: Server,
    sentinels: Vec<Server>,
}

impl Group {
    async fn watch_over(program: &Program, master: &Server) -> Outcome<Self> {
        let replica = Server::builder(program).config("repl-diskless-sync-delay", "0").start()?;
        resynchronise(&replica, master).await?;
        let sentinels: Result<Vec<_>, _> = (0..3).map(|_| Server::builder(program).sentinel().start()).collect();
        let group = Self { replica, sentinels: sentinels? };
        let port = master.port().to_string();
        for sentinel in &group.sentinels {
            sentinel.command(&["SENTINEL", "MONITOR", GROUP, "127.0.0.1", &port, "2"])?;
            for (setting, value) in [("down-after-milliseconds", "500"), ("failover-timeout", "3000")] {
                sentinel.command(&["SENTINEL", "SET", GROUP, setting, value])?;
            }
        }
        let knows_all = |sentinel: &Server| {
            told(sentinel, "num-slaves").as_deref() == Some("1")
                && told(sentinel, "num-other-sentinels").as_deref() == Some("2")
        };
        let ready = until(PATIENCE, || group.sentinels.iter().all(knows_all)).await;
        assert!(ready, "the Sentinels do not find each other");
        Ok(group)
    }

    fn instance(&self) -> Instance {
        Instance::sentinel(self.sentinels.iter().map(Server::address), GROUP)
    }

    /// Waits until the replica has been promoted, and takes from it what it may not have got in time.
    async fn promoted(&self) -> Outcome {
        let role = || self.replica.info("replication", "role").is_ok_and(|role| role.as_deref() == Some("master"));
        assert!(until(PATIENCE, role).await, "no failover");
        self.replica.command(&["DEL", LOCK])?;
        let all = || self.sentinels.iter().all(|one| told(one, "port") == Some(self.replica.port().to_string()));
        assert!(until(PATIENCE, all).await, "the Sentinels do not agree");
        Ok(())
    }
}

/// What a Sentinel says of its group.
fn told(sentinel: &Server, name: &str) -> Option<String> {
    let told = sentinel.command(&["SENTINEL", "MASTER", GROUP]).ok()?;
    let words: Vec<_> = told.items().iter().filter_map(redquorum_testkit::Reply::text).collect();
    words.chunks(2).find(|pair| pair[0] == name).map(|pair| pair[1].clone())
}

#[test]
fn a_failover_that_an_operator_begins_lets_no_second_holder_in() -> Outcome {
    with_and_without(Program::all_required()?, |program, mode| async move {
        let fail_over = async || {
            let mut stage = Stage::start(&program, mode).await?;
            let group = Group::watch_over(&program, stage.third()).await?;
            stage.reach_third_by(group.instance());
            let held = Held::on(stage).await?;
            group.sentinels[0].command(&["SENTINEL", "FAILOVER", GROUP])?;
            group.promoted().await?;
            Ok((held, group))
        };
        let (held, group) = storm(mode, fail_over).await?;
        if mode == Admission::On {
            let run_id = group.replica.info("server", "run_id")?;
            assert_eq!(held.other.instances()[2].run_id.clone(), run_id, "the instance is the new master now");
        }
        Ok(())
    })
}

/// The lease may have ended by then; without admission it need not come to a second grant.
#[test]
fn a_failover_of_a_master_that_was_killed_lets_no_second_holder_in() -> Outcome {
    on_every_kind(|program| async move {
        let mut stage = Stage::start(&program, Admission::On).await?;
        let group = Group::watch_over(&program, stage.third()).await?;
        stage.reach_third_by(group.instance());
        let held = Held::on(stage).await?;
        held.stage.third().kill()?;
        let (promoted, stormed) = tokio::join!(group.promoted(), held.storm());
        promoted?;
        stormed?;
        let run_id = group.replica.info("server", "run_id")?;
        assert_eq!(held.other.instances()[2].run_id.clone(), run_id);
        Ok(())
    })
}

/// A client that is still connected to the former master, and one that comes to the new one.
#[test]
fn two_clients_on_two_sides_of_a_failover_both_hold_a_lock_unless_the_quorum_is_large_enough() -> Outcome {
    on_every_kind(|program| async move {
        let mut stage = Stage::start(&program, Admission::On).await?;
        let group = Group::watch_over(&program, stage.third()).await?;
        let before = [3, 4].map(|quorum| stage.builder().quorum(quorum));
        // As if the Sentinels could not reach the former master, to make a replica of it.
        for sentinel in &group.sentinels {
            sentinel.command(&["SENTINEL", "REMOVE", GROUP])?;
        }
        promote(&group.replica)?;
        let port = group.replica.port().to_string();
        for sentinel in &group.sentinels {
            sentinel.command(&["SENTINEL", "MONITOR", GROUP, "127.0.0.1", &port, "2"])?;
        }
        stage.reach_third_by(group.instance());
        let after = [3, 4].map(|quorum| stage.builder().quorum(quorum));
        for (quorum, (before, after)) in [3, 4].into_iter().zip(before.into_iter().zip(after)) {
            let (former, new) = (before.connect().await?, after.connect().await?);
            all_vote(&former).await?;
            all_vote(&new).await?;
            let run_ids = [&former, &new].map(|client| client.instances()[2].run_id.clone());
            assert_ne!(run_ids[0], run_ids[1], "one instance, and two processes that vote");
            let first = match quorum {
                3 => stage.hold_bare_majority(&former).await?,
                _ => former.lock(LOCK).try_acquire().await?,
            };
            // Not one try only: where one of the three that are free is late it ends as contended.
            let second = new.lock(LOCK).wait_at_most(ms(1_500)).acquire().await;
            assert!(first.is_valid());
            assert_eq!(second.is_ok(), quorum == 3, "with a quorum of {quorum}: {second:?}");
            first.release().await?;
            if let Ok(second) = second {
                second.release().await?;
            }
        }
        Ok(())
    })
}

/// What those who compete for one lock see of each other.
#[derive(Default)]
struct Seen {
    last: Mutex<Option<FencingToken>>,
    count: AtomicU64,
    ends: AtomicBool,
}

async fn compete(redlock: Redlock, seen: Arc<Seen>) {
    while !seen.ends.load(Ordering::Relaxed) {
        let Ok(guard) = redlock.lock(LOCK).wait_at_most(ms(500)).acquire().await else { continue };
        let token = guard.fencing_token();
        let former = seen.last.lock().unwrap_or_else(PoisonError::into_inner).replace(token);
        assert!(former < Some(token), "{former:?} was before {token:?}");
        sleep(ms(20)).await;
        let last = *seen.last.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(last == Some(token) || !guard.is_valid(), "{last:?} came in beside {token:?}");
        seen.count.fetch_add(1, Ordering::Relaxed);
        drop(guard.release().await);
    }
}

/// With the quorum that docs/managed.md asks for. The promoted replica has lost the lock, and waits; the other four go on.
#[test]
fn a_failover_while_clients_compete_costs_a_quarantine_and_lets_nobody_in_beside_another() -> Outcome {
    on_every_kind(|program| async move {
        let mut stage = Stage::start(&program, Admission::On).await?;
        let group = Group::watch_over(&program, stage.third()).await?;
        stage.reach_third_by(group.instance());
        let (seen, mut tasks) = (Arc::<Seen>::default(), JoinSet::new());
        let mut clients = Vec::new();
        for _ in 0..3 {
            let client = stage.builder().quorum(4).connect().await?;
            all_vote(&client).await?;
            (0..2).for_each(|_| drop(tasks.spawn(compete(client.clone(), Arc::clone(&seen)))));
            clients.push(client);
        }
        group.sentinels[0].command(&["SENTINEL", "FAILOVER", GROUP])?;
        let waits = || {
            let statuses = clients.iter().map(|client| client.instances()[2].admission);
            statuses.filter(|status| matches!(status, AdmissionStatus::Quarantine(_))).count()
        };
        let (promoted, in_quarantine) = tokio::join!(group.promoted(), until(PATIENCE, || waits() == 3));
        promoted?;
        assert!(in_quarantine, "nobody waits for the new master: {:?}", clients[0].instances());
        let before = seen.count.load(Ordering::Relaxed);
        let go_on = until(PATIENCE, || seen.count.load(Ordering::Relaxed) > before + 10).await;
        assert!(go_on, "the other four are a quorum");
        for client in &clients {
            all_vote(client).await?;
        }
        seen.ends.store(true, Ordering::Relaxed);
        while let Some(ended) = tasks.join_next().await {
            ended?; // a panic
        }
        println!("{program}: {} locks", seen.count.load(Ordering::Relaxed));
        Ok(())
    })
}
