//! A stage of five servers, a holder on a bare majority, and those who try to get in.

use std::error::Error;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use redquorum::{Admission, AdmissionStatus, Builder, Guard, Instance, Redlock, Renewal};
use redquorum_testkit::{Fleet, Program, Server, ServerBuilder, Stalls};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::sleep;

pub(crate) type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// The ttl of every lock, and `max_ttl`. Long enough for a server to restart and resynchronise on a
/// busy machine while a lease lives.
pub(crate) const TTL: Duration = Duration::from_secs(4);

/// Clients take a while to connect, and a busy machine takes its time.
pub(crate) const SLACK: Duration = Duration::from_secs(3);

/// For how long a machine may stand still until nothing can be said of a lease that ran out.
const STOOD_STILL: Duration = Duration::from_millis(400);

/// The instance that forgets.
pub(crate) const THIRD: usize = 2;

pub(crate) const LOCK: &str = "orders:42";
pub(crate) const RECORD: &str = "redquorum:admission";

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Asserts that nothing ran out, unless the machine itself stood still.
pub(crate) fn all_is_well(stalls: &Stalls, is_well: bool, seen: impl FnOnce() -> String) {
    let longest = stalls.longest();
    if longest < STOOD_STILL {
        assert!(is_well, "{}", seen());
    } else if !is_well {
        println!("not asked, as the machine stood still for {longest:?}: {}", seen());
    }
}

/// Carries a scenario out on every kind of server side by side.
pub(crate) fn on_every_kind<F>(scenario: impl Fn(Program) -> F + Sync) -> Outcome
where
    F: Future<Output = Outcome>,
{
    let programs = Program::all_required()?;
    side_by_side(programs, scenario)
}

/// As well without the guard, where the test must see what the guard prevents.
pub(crate) fn with_and_without<F>(programs: Vec<Program>, scenario: impl Fn(Program, Admission) -> F + Sync) -> Outcome
where
    F: Future<Output = Outcome>,
{
    let both =
        programs.into_iter().flat_map(|program| [Admission::On, Admission::Off].map(|mode| (program.clone(), mode)));
    side_by_side(both.collect(), |(program, mode)| scenario(program, mode))
}

pub(crate) fn side_by_side<T, F>(cases: Vec<T>, scenario: impl Fn(T) -> F + Sync) -> Outcome
where
    T: Send,
    F: Future<Output = Outcome>,
{
    let run = |case| {
        // The kit blocks this thread; connections are kept up on the other.
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        runtime.block_on(scenario(case))
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = cases.into_iter().map(|case| scope.spawn(|| run(case))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Outcome>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect::<Vec<_>>().into_iter().collect()
    })
}

/// Five servers; clients reach the third through a switch that can lead elsewhere.
pub(crate) struct Stage {
    pub(crate) fleet: Fleet,
    pub(crate) switch: Switch,
    third: Instance,
    mode: Admission,
}

impl Stage {
    pub(crate) async fn start(program: &Program, mode: Admission) -> Outcome<Self> {
        Self::start_with(program, mode, |_, builder| builder).await
    }

    pub(crate) async fn start_with(
        program: &Program,
        mode: Admission,
        set: impl Fn(usize, ServerBuilder) -> ServerBuilder,
    ) -> Outcome<Self> {
        let no_delay = |index, builder: ServerBuilder| set(index, builder.config("repl-diskless-sync-delay", "0"));
        let fleet = Fleet::start_with(program, 5, no_delay)?;
        open(&fleet, TTL).await?;
        let switch = Switch::to(fleet[THIRD].port()).await?;
        let third = Instance::url(switch.address());
        Ok(Self { fleet, switch, third, mode })
    }

    /// Clients that are built from now on reach the third by this.
    pub(crate) fn reach_third_by(&mut self, instance: Instance) {
        self.third = instance;
    }

    pub(crate) fn third(&self) -> &Server {
        &self.fleet[THIRD]
    }

    pub(crate) fn builder(&self) -> Builder {
        let mut instances: Vec<Instance> = self.fleet.addresses().into_iter().map(Instance::url).collect();
        instances[THIRD] = self.third.clone();
        Redlock::builder()
            .instances(instances)
            .ttl(TTL)
            .max_ttl(TTL)
            .instance_timeout(ms(1_000))
            .admission(self.mode)
            .renew(Renewal::Off)
    }

    /// A client whose instances all vote.
    pub(crate) async fn client(&self) -> Outcome<Redlock> {
        let redlock = self.builder().connect().await?;
        all_vote(&redlock).await?;
        Ok(redlock)
    }

    /// A lease on instances 1, 2 and 3 alone.
    pub(crate) async fn hold_bare_majority(&self, redlock: &Redlock) -> Outcome<Guard> {
        for server in &self.fleet[3..] {
            server.command(&["SET", LOCK, "somebody"])?;
        }
        // One try alone ends as contended where one of the three is late: two others name a holder.
        let guard = redlock.lock(LOCK).wait_at_most(SLACK).acquire().await?;
        sleep(ms(100)).await; // the other two refuse meanwhile
        for server in &self.fleet[3..] {
            assert_eq!(server.command(&["GET", LOCK])?.text().as_deref(), Some("somebody"));
            server.command(&["DEL", LOCK])?;
        }
        for server in &self.fleet[..3] {
            assert_eq!(server.keys()?, [LOCK]);
        }
        Ok(guard)
    }

    /// Old and new clients try to get the lock that `guard` holds, until it is not valid any more: what one of them got.
    async fn second_holder(&self, guard: &Guard, old: &[&Redlock]) -> Outcome<Option<Guard>> {
        let mut second = None;
        while guard.is_valid() && second.is_none() {
            let fresh = self.builder().build()?;
            for client in old.iter().copied().chain([&fresh]) {
                let got = client.lock(LOCK).wait_at_most(ms(100)).acquire().await;
                if guard.is_valid() {
                    second = second.or(got.ok());
                }
            }
        }
        Ok(second)
    }

    /// Old and new clients try to get the lock that `guard` holds. Under guard nobody does until the
    /// lease has ended, and then the third instance votes again by itself; without it a client does.
    pub(crate) async fn storm(&self, guard: &Guard, old: &[&Redlock]) -> Outcome {
        let second = self.second_holder(guard, old).await?;
        if self.mode == Admission::Off {
            assert!(second.is_some(), "without admission there is a second holder: the test bites");
            return Ok(());
        }
        assert!(second.is_none(), "a second holder while the lease of the first was valid: {second:?}");
        for client in old {
            all_vote(client).await?;
        }
        self.fleet[0].kill()?;
        self.fleet[1].kill()?;
        let last = self.builder().connect().await?;
        last.lock(LOCK).wait_at_most(TTL + SLACK).acquire().await?.release().await?;
        Ok(())
    }
}

/// The lock is held on a bare majority of a stage, and another client is there.
pub(crate) struct Held {
    pub(crate) guard: Guard,
    pub(crate) other: Redlock,
    pub(crate) holder: Redlock,
    pub(crate) stage: Stage,
}

impl Held {
    pub(crate) async fn start(program: &Program, mode: Admission) -> Outcome<Self> {
        Self::on(Stage::start(program, mode).await?).await
    }

    pub(crate) async fn on(stage: Stage) -> Outcome<Self> {
        let (holder, other) = (stage.client().await?, stage.client().await?);
        let guard = stage.hold_bare_majority(&holder).await?;
        Ok(Self { guard, other, holder, stage })
    }

    /// The other client, the holder and new ones try to get the lock: see [`Stage::storm`].
    pub(crate) async fn storm(&self) -> Outcome {
        self.stage.storm(&self.guard, &[&self.other, &self.holder]).await
    }

    /// Whether one of them gets it while it is held.
    pub(crate) async fn has_second_holder(&self) -> Outcome<bool> {
        Ok(self.stage.second_holder(&self.guard, &[&self.other, &self.holder]).await?.is_some())
    }
}

/// As [`Held::storm`], of what `begin` gives, for what takes its time: without admission a second holder may come too late
/// on a busy machine, and one in several tries is enough to see that the test bites.
pub(crate) async fn storm<T>(mode: Admission, begin: impl AsyncFn() -> Outcome<(Held, T)>) -> Outcome<(Held, T)> {
    for _ in 0..5 {
        let begun = begin().await?;
        if mode == Admission::On {
            begun.0.storm().await?;
            return Ok(begun);
        }
        if begun.0.has_second_holder().await? {
            return Ok(begun);
        }
    }
    Err("no second holder without admission: this test shows nothing".into())
}

/// How long it takes.
#[expect(clippy::disallowed_methods, reason = "real servers run in real time")]
pub(crate) async fn timed<T>(work: impl Future<Output = T>) -> (T, Duration) {
    let begun = std::time::Instant::now();
    (work.await, begun.elapsed())
}

/// Lets new servers vote at once, for ttls up to this.
pub(crate) async fn open(servers: &[Server], longest_ttl: Duration) -> Outcome {
    let operator = Redlock::builder()
        .instances(servers.iter().map(Server::address))
        .admission(Admission::AsRecorded)
        .max_ttl(longest_ttl)
        .ttl(longest_ttl)
        .instance_timeout(ms(1_000));
    let operator = operator.connect().await?;
    operator.admission_records().open(longest_ttl).await?;
    Ok(())
}

/// Waits until every instance votes, a quarantine at the most.
pub(crate) async fn all_vote(redlock: &Redlock) -> Outcome {
    redlock.want_locks();
    let vote = || {
        redlock
            .instances()
            .iter()
            .all(|status| matches!(status.admission, AdmissionStatus::Admitted | AdmissionStatus::Off))
    };
    let in_time = until(TTL + SLACK, vote).await;
    assert!(in_time, "still not admitted: {:?}", redlock.instances());
    Ok(())
}

/// Asks every few milliseconds until it is true; false if it never was.
pub(crate) async fn until(limit: Duration, probe: impl Fn() -> bool) -> bool {
    let ask = async {
        while !probe() {
            sleep(ms(5)).await;
        }
    };
    tokio::time::timeout(limit, ask).await.is_ok() || probe()
}

/// Makes `replica` a copy of `master`.
pub(crate) async fn resynchronise(replica: &Server, master: &Server) -> Outcome {
    replica.command(&["REPLICAOF", "127.0.0.1", &master.port().to_string()])?;
    let up = || replica.info("replication", "master_link_status").is_ok_and(|status| status.as_deref() == Some("up"));
    assert!(until(Duration::from_secs(10), up).await, "not resynchronised");
    Ok(())
}

pub(crate) fn promote(replica: &Server) -> Outcome {
    replica.command(&["REPLICAOF", "NO", "ONE"])?;
    Ok(())
}

/// A virtual address: an own port that leads to one server or another.
pub(crate) struct Switch {
    port: u16,
    target: Arc<AtomicU16>,
    turned: Arc<Notify>,
}

impl Switch {
    async fn to(port: u16) -> Outcome<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let switch =
            Self { port: listener.local_addr()?.port(), target: Arc::new(port.into()), turned: Arc::default() };
        let (target, turned) = (Arc::clone(&switch.target), Arc::clone(&switch.turned));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass(client, target.load(Ordering::SeqCst), Arc::clone(&turned)));
            }
        });
        Ok(switch)
    }

    pub(crate) fn address(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Leads to another server, and closes what leads to the former.
    pub(crate) fn turn_to(&self, port: u16) {
        self.target.store(port, Ordering::SeqCst);
        self.turned.notify_waiters();
    }
}

async fn pass(mut client: TcpStream, port: u16, turned: Arc<Notify>) {
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", port)).await else { return };
    // As the servers do themselves.
    drop((client.set_nodelay(true), server.set_nodelay(true)));
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
        () = turned.notified() => {}
    }
}
