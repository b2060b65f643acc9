//! Five servers and a database, for the process that starts them and for those that it starts.

use std::env;
use std::sync::Arc;

use redquorum::{Admission, AdmissionStatus, Builder, Config, Redlock};
use redquorum_testkit::{Fleet, Program};
use tokio::time::sleep;

use crate::database::{Address, Connection, Database};
use crate::worker::Worker;
use crate::{Outcome, TTL, ms};

const DATABASE: &str = "REDQUORUM_EXAMPLE_DATABASE";

/// Where to lock, and where to write.
#[derive(Debug)]
pub struct Stage {
    config: Config,
    database: Address,
    _owned: Option<(Fleet, Database)>,
}

impl Stage {
    /// Starts all of it. It ends with the value.
    ///
    /// # Errors
    /// When there is no Redis or Valkey server, or something does not come up.
    pub async fn start() -> Outcome<Self> {
        let program = Program::required()?;
        let fleet = Fleet::start(&program, 5)?;
        open(&fleet.addresses()).await?;
        let database = Database::start().await?;
        println!("Five servers to lock against: {program}. The rows are in {}.", database.address());
        let mut config = Config::default();
        config.instances = fleet.addresses();
        Ok(Self { config, database: database.address().clone(), _owned: Some((fleet, database)) })
    }

    /// The stage that the parent of this process has started.
    ///
    /// # Errors
    /// When it has not.
    pub fn of_parent() -> Outcome<Self> {
        Ok(Self { config: Config::from_env()?, database: env::var(DATABASE)?.parse()?, _owned: None })
    }

    /// The addresses of the servers.
    #[must_use]
    pub fn instances(&self) -> &[String] {
        &self.config.instances
    }

    /// A new connection to the database.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn database(&self) -> Outcome<Connection> {
        Connection::open(&self.database).await
    }

    /// How a client of the servers begins. They share this machine with the database and all clients: a request may wait its turn.
    pub fn builder(&self) -> Builder {
        Redlock::builder().config(self.config.clone()).max_ttl(TTL).ttl(TTL).instance_timeout(TTL / 3)
    }

    /// A client whose instances all vote.
    ///
    /// # Errors
    /// When a quorum cannot be reached.
    pub async fn redlock(&self) -> Outcome<Redlock> {
        let redlock = self.builder().connect().await?;
        redlock.want_locks();
        while redlock.instances().iter().any(|instance| instance.admission != AdmissionStatus::Admitted) {
            sleep(ms(5)).await;
        }
        Ok(redlock)
    }

    /// What each of two servers of a service has.
    ///
    /// # Errors
    /// When the database or a quorum cannot be reached.
    pub async fn two_servers(&self) -> Outcome<[Arc<(Redlock, Connection)>; 2]> {
        let one = (self.redlock().await?, self.database().await?);
        let other = (self.redlock().await?, self.database().await?);
        Ok([one, other].map(Arc::new))
    }

    /// Starts this program once more, as a process with this `role`.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn spawn(&self, role: &[&str]) -> Outcome<Worker> {
        let instances = self.config.instances.join(" ");
        let environment = [("REDQUORUM_INSTANCES", instances), (DATABASE, self.database.to_string())];
        Worker::spawn(role, environment)
    }
}

/// Lets servers vote at once that this process has just started, as an operator does who knows that no lock was held on them.
///
/// # Errors
/// When one of them cannot be reached, or was used.
pub async fn open(instances: &[String]) -> Outcome {
    let builder = Redlock::builder().instances(instances).max_ttl(TTL).ttl(TTL).instance_timeout(TTL / 3);
    let operator = builder.admission(Admission::AsRecorded).connect().await?;
    Ok(operator.admission_records().open(TTL).await?)
}

/// The role that [`Stage::spawn`] gave this process; empty in the one that a person has started.
#[must_use]
pub fn role() -> Vec<String> {
    if env::var_os(DATABASE).is_some() { env::args().skip(1).collect() } else { Vec::new() }
}
