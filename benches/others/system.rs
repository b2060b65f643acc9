//! The systems, behind one face.

use redquorum::{Admission, AdmissionStatus, Guard, Redlock};
use redquorum_testkit::{Fleet, Program, Server};

use crate::opened::open;
use crate::process::now;
use crate::{Outcome, TTL, etcd, postgres, single, zookeeper};

const INSTANCES: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Ours,
    Single,
    Etcd,
    ZooKeeper,
    Postgres,
}

/// A system that is up.
pub(crate) enum System {
    Ours(Fleet),
    Single(Server),
    Etcd(etcd::Etcd),
    ZooKeeper(zookeeper::ZooKeeper),
    Postgres(postgres::Postgres),
}

/// One user of it, who has at most one lock at once.
pub(crate) enum Session {
    Ours(Redlock),
    Single(single::Session),
    Etcd(etcd::Session),
    ZooKeeper(zookeeper::Session),
    Postgres(postgres::Session),
}

pub(crate) enum Held {
    Ours(Guard),
    Single(single::Held),
    Etcd(etcd::Held),
    ZooKeeper(zookeeper::Held),
    Postgres,
}

impl Kind {
    pub(crate) const ALL: [Self; 5] = [Self::Ours, Self::Single, Self::Etcd, Self::ZooKeeper, Self::Postgres];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ours => "`redquorum` on five Redis",
            Self::Single => "`SET NX PX` on one Redis",
            Self::Etcd => "etcd, three servers, by gRPC",
            Self::ZooKeeper => "ZooKeeper, three servers",
            Self::Postgres => "a PostgreSQL advisory lock, one server",
        }
    }

    /// Nothing if it is not installed.
    pub(crate) async fn start(self) -> Outcome<Option<System>> {
        Ok(match self {
            Self::Ours => Some(System::Ours(Fleet::start(&Program::required()?, INSTANCES)?)),
            Self::Single => Some(System::Single(Server::start(&Program::required()?)?)),
            Self::Etcd => etcd::start().await?.map(System::Etcd),
            Self::ZooKeeper => zookeeper::start().await?.map(System::ZooKeeper),
            Self::Postgres => postgres::start().await?.map(System::Postgres),
        })
    }
}

impl System {
    /// A user with a connection, and a session, of its own.
    pub(crate) async fn session(&self, user: usize) -> Outcome<Session> {
        Ok(match self {
            Self::Ours(fleet) => {
                open(&fleet.addresses(), TTL).await;
                let builder = Redlock::builder().instances(fleet.addresses()).ttl(TTL).max_ttl(TTL);
                let redlock = builder.admission(Admission::On).connect().await?;
                redlock.want_locks();
                let begun = now();
                while redlock.instances().iter().any(|status| status.admission != AdmissionStatus::Admitted) {
                    if begun.elapsed() > 5 * TTL {
                        return Err("not all instances vote".into());
                    }
                    tokio::time::sleep(TTL / 100).await;
                }
                Session::Ours(redlock)
            }
            Self::Single(server) => Session::Single(single::Session::open(&server.address(), user).await?),
            Self::Etcd(etcd) => Session::Etcd(etcd.session(user).await?),
            Self::ZooKeeper(zookeeper) => Session::ZooKeeper(zookeeper.session(user).await?),
            Self::Postgres(postgres) => Session::Postgres(postgres.session().await?),
        })
    }
}

impl Session {
    /// What is done once for each name.
    pub(crate) async fn prepare(&mut self, name: &str) -> Outcome {
        if let Self::ZooKeeper(session) = self { session.prepare(name).await } else { Ok(()) }
    }

    /// Waits until it has the lock.
    pub(crate) async fn acquire(&mut self, name: &str) -> Outcome<Held> {
        Ok(match self {
            Self::Ours(redlock) => Held::Ours(redlock.lock(name).acquire().await?),
            Self::Single(session) => Held::Single(session.acquire(name).await?),
            Self::Etcd(session) => Held::Etcd(session.acquire(name).await?),
            Self::ZooKeeper(session) => Held::ZooKeeper(session.acquire(name).await?),
            Self::Postgres(session) => {
                session.acquire(name).await?;
                Held::Postgres
            }
        })
    }

    pub(crate) async fn release(&mut self, name: &str, held: Held) -> Outcome {
        match (self, held) {
            (Self::Ours(_), Held::Ours(guard)) => Ok(guard.release().await.map(|_| ())?),
            (Self::Single(session), Held::Single(held)) => session.release(name, held).await,
            (Self::Etcd(session), Held::Etcd(held)) => session.release(held).await,
            (Self::ZooKeeper(session), Held::ZooKeeper(held)) => session.release(held).await,
            (Self::Postgres(session), Held::Postgres) => session.release(name).await,
            _ => Err("a lock of another system".into()),
        }
    }
}
