//! A first look: five servers, one lock, two clients, and two of the servers fail.
//!
//! `make demo`, or `cargo run --package redquorum-quickstart`. It starts its own servers on free ports of
//! 127.0.0.1 and ends them again. Without a Redis or Valkey server on this machine it runs on
//! instances inside the process.

use std::time::{Duration, Instant};

use redquorum::testing::{Cluster, Data, Hang};
use redquorum::{Admission, AdmissionStatus, Builder, InstanceStatus, Redlock};
use redquorum_testkit::{Error, Fleet, Program};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

const INSTANCES: usize = 5;
const DEAD: usize = 3;
const HUNG: usize = 4;

/// Of every lock here.
const TTL: Duration = Duration::from_secs(2);

#[tokio::main]
async fn main() -> Outcome {
    let place = Place::start()?;
    let start = now();
    place.introduce();
    place.open().await?;
    let alice = place.client("alice").connect().await?;
    let bob = place.client("bob").connect().await?;
    alice.want_locks();
    let votes = |status: &InstanceStatus| matches!(status.admission, AdmissionStatus::Admitted | AdmissionStatus::Off);
    wait_until(|| [&alice, &bob].iter().flat_map(|client| client.instances()).all(|status| votes(&status))).await;
    println!("All five vote after {:.1?}.\n", start.elapsed());

    println!("Alice and Bob are two clients. Each step with the time that it took:\n");
    let start = now();
    let guard = alice.lock("orders:42").acquire().await?;
    let (valid, token) = (guard.remaining(), guard.fencing_token());
    step(start, &format!("Alice locks \"orders:42\"; it is valid for {valid:.2?}"));
    note(&format!("her fencing token is {token}: store it with what the lock protects"));

    let start = now();
    match bob.lock("orders:42").try_acquire().await {
        Ok(_) => return Err("two clients hold one lock".into()),
        Err(error) => {
            step(start, "Bob tries to lock it and is refused:");
            note(&error.to_string());
        }
    }

    place.fail()?;
    let start = now();
    let other = alice.lock("orders:43").acquire().await?;
    step(start, "Alice locks \"orders:43\" with the three that are left");

    let start = now();
    let valid = guard.extend().await?;
    step(start, &format!("Alice extends \"orders:42\"; from now it is valid for {valid:.2?}"));

    let start = now();
    let released = guard.release().await?;
    step(start, &format!("Alice releases \"orders:42\"; was it still hers? {}", yes(released.was_still_held)));

    let start = now();
    let guard = bob.lock("orders:42").acquire().await?;
    let later = guard.fencing_token();
    step(start, "Bob locks \"orders:42\"");
    note(&format!("his fencing token is {later}; larger than hers? {}", yes(later > token)));

    place.repair()?;
    wait_until(|| {
        alice.instances().iter().all(|status| status.connected && status.admission != AdmissionStatus::Unknown)
    })
    .await;
    println!("How Alice's client sees the instances:\n");
    alice.instances().iter().for_each(show);

    drop((guard, other)); // their releases go on in the background
    alice.shutdown(TTL).await?; // and here they are waited for, also those that were pending on the hung instance
    bob.shutdown(TTL).await?;
    println!("\nThe guards are dropped, the clients shut down. Keys left on the instances: {}", place.keys_left()?);
    Ok(())
}

/// Where the instances are.
enum Place {
    Servers(Fleet),
    Process(Cluster),
}

impl Place {
    fn start() -> Outcome<Self> {
        match Program::required() {
            Ok(program) => Ok(Self::Servers(Fleet::start(&program, INSTANCES)?)),
            Err(Error::NoProgram) => Ok(Self::Process(Cluster::new(INSTANCES))),
            Err(error) => Err(error.into()),
        }
    }

    fn introduce(&self) {
        match self {
            Self::Servers(fleet) => {
                let ports: Vec<String> = fleet.iter().map(|server| server.port().to_string()).collect();
                println!("Five servers run on 127.0.0.1, ports {}: {}.", ports.join(", "), fleet[0].program());
                println!(
                    "New instances could be old ones that forgot their locks, and would wait for max_ttl, here {TTL:?}."
                );
                println!("But this program has just started them, and says that nobody held a lock on them.");
            }
            Self::Process(_) => {
                println!("No Redis or Valkey server was found: five instances inside this process take their place.");
                println!("`make servers` installs real ones; REDQUORUM_SERVER=/path/to/server names one.");
            }
        }
    }

    /// As `redquorum admission open` does.
    async fn open(&self) -> Outcome {
        let Self::Servers(_) = self else { return Ok(()) };
        // All are asked, and all must answer.
        let operator = self.client("operator").admission(Admission::AsRecorded).instance_timeout(TTL / 3);
        Ok(operator.connect().await?.admission_records().open(TTL).await?)
    }

    fn client(&self, label: &str) -> Builder {
        let builder = match self {
            Self::Servers(fleet) => Redlock::builder().instances(fleet.addresses()),
            Self::Process(cluster) => cluster.builder(),
        };
        builder.ttl(TTL).max_ttl(TTL).label(label)
    }

    /// Kills one and hangs another.
    fn fail(&self) -> Outcome {
        let (dead, hung) = (DEAD + 1, HUNG + 1);
        match self {
            Self::Servers(fleet) => {
                fleet[DEAD].kill()?;
                fleet[HUNG].hang()?;
                println!("\n           -- instance {dead} is killed (SIGKILL), instance {hung} hangs (SIGSTOP) --\n");
            }
            Self::Process(cluster) => {
                cluster.instance(DEAD).stop();
                cluster.instance(HUNG).hang(Hang::Stopped);
                println!("\n           -- instance {dead} stops, instance {hung} hangs --\n");
            }
        }
        Ok(())
    }

    /// Starts the one that was killed and resumes the one that hangs.
    fn repair(&self) -> Outcome {
        match self {
            Self::Servers(fleet) => {
                fleet[DEAD].restart()?;
                fleet[HUNG].resume()?;
            }
            Self::Process(cluster) => {
                cluster.instance(DEAD).start(Data::Nothing);
                cluster.instance(HUNG).resume();
            }
        }
        println!(
            "\n           -- instance {} is started again, empty, and instance {} goes on --\n",
            DEAD + 1,
            HUNG + 1
        );
        Ok(())
    }

    fn keys_left(&self) -> Outcome<usize> {
        match self {
            Self::Servers(fleet) => {
                Ok(fleet.iter().map(|server| server.keys().map(|keys| keys.len())).sum::<Result<_, _>>()?)
            }
            Self::Process(cluster) => Ok(cluster.keys().len()),
        }
    }
}

async fn wait_until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[expect(clippy::disallowed_methods, reason = "it shows how long things take")]
fn now() -> Instant {
    Instant::now()
}

/// Prints a step that was begun at `start` and is over now.
fn step(start: Instant, what: &str) {
    println!("{:>8.2} ms  {what}", start.elapsed().as_secs_f64() * 1_000.0);
}

/// Prints a remark to the step before.
fn note(what: &str) {
    println!("             {what}");
}

const fn yes(is_so: bool) -> &'static str {
    if is_so { "yes" } else { "no" }
}

fn show(status: &InstanceStatus) {
    let InstanceStatus { address, version, connected, .. } = status;
    let state = match status.admission {
        AdmissionStatus::Admitted => "votes".to_owned(),
        AdmissionStatus::Quarantine(left) => format!("in quarantine, {left:.1?} left"),
        AdmissionStatus::Off if *connected => "votes".to_owned(),
        _ => status.last_error.clone().unwrap_or_else(|| "not connected".to_owned()),
    };
    let version = version.as_deref().unwrap_or_default();
    println!("             {address:<16} {version:<14} {state}");
}
