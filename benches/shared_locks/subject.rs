//! What is compared, behind one face: each waits until it is in.

use std::sync::Arc;
use std::time::Duration;

use distkit::DistkitRedisKey;
use distkit::lock::{LockOptions, RwLock};
use distributed_lock_core::traits::{DistributedReaderWriterLock, LockHandle, ReaderWriterLockProvider};
use distributed_lock_redis::RedisLockProvider;
use futures_util::future::BoxFuture;
use redis::aio::ConnectionManager;
use redquorum::Redlock;
use rslock::LockManager;

use crate::plain::Plain;
use crate::{Outcome, Stage, TTL, admitted};

/// After how long those that poll, and have a setting for it, try again.
const POLL: Duration = Duration::from_millis(5);

/// Releases a lock when it is awaited.
pub(crate) type Release = BoxFuture<'static, Outcome>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// This library's read-write lock.
    Ours,
    /// Its ordinary lock, which knows no readers.
    OursLock,
    /// The crate distributed-lock-redis on all servers.
    Port,
    /// The same on one.
    PortOnOne,
    /// The crate distkit, which knows one server.
    Distkit,
    /// The crate rslock, which knows no readers.
    Rslock,
    /// `SET NX PX`, likewise.
    Plain,
    /// A lock in this process: the least that waiting can take.
    Local,
}

/// A connected client. Clones share connections.
#[derive(Clone)]
pub(crate) enum Client {
    Ours(Redlock),
    OursLock(Redlock),
    Port(Arc<RedisLockProvider>),
    Distkit(ConnectionManager),
    Rslock(LockManager),
    Plain(Plain),
    Local(Arc<tokio::sync::RwLock<()>>),
}

impl Kind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ours => "redquorum rw_lock",
            Self::OursLock => "redquorum lock",
            Self::Port => "distributed-lock-redis",
            Self::PortOnOne => "distributed-lock-redis, 1 server",
            Self::Distkit => "distkit, 1 server",
            Self::Rslock => "rslock",
            Self::Plain => "SET NX PX",
            Self::Local => "tokio RwLock, no server",
        }
    }

    pub(crate) async fn connect(self, stage: &Stage) -> Outcome<Client> {
        let (all, one) = (stage.fleet.addresses(), stage.single.address());
        Ok(match self {
            Self::Ours => Client::Ours(admitted::connect(all).await?),
            Self::OursLock => Client::OursLock(admitted::connect(all).await?),
            Self::Port => Client::Port(port(&all).await?),
            Self::PortOnOne => Client::Port(port(&[one]).await?),
            Self::Distkit => Client::Distkit(redis::Client::open(one)?.get_connection_manager().await?),
            Self::Rslock => {
                let mut manager = LockManager::new(all);
                manager.set_retry(u32::MAX, POLL);
                Client::Rslock(manager)
            }
            Self::Plain => Client::Plain(Plain::connect(&all).await?),
            Self::Local => Client::Local(Arc::default()),
        })
    }

    /// So many clients. Those of a lock in this process share it.
    pub(crate) async fn connect_all(self, stage: &Stage, count: usize) -> Outcome<Vec<Client>> {
        let first = self.connect(stage).await?;
        let mut clients = vec![first.clone()];
        for _ in 1..count {
            clients.push(if self == Self::Local { first.clone() } else { self.connect(stage).await? });
        }
        Ok(clients)
    }
}

/// With the shares of its defaults.
pub(crate) async fn port(addresses: &[String]) -> Outcome<Arc<RedisLockProvider>> {
    let builder = RedisLockProvider::builder().urls(addresses).expiry(TTL);
    Ok(Arc::new(builder.extension_cadence(TTL / 3).min_validity(TTL * 9 / 10).build().await?))
}

/// What a future releases as soon as it is polled.
pub(crate) fn released<T, E>(release: impl Future<Output = Result<T, E>> + Send + 'static) -> Release
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    Box::pin(async { release.await.map(drop).map_err(Into::into) })
}

/// The same, where nothing is told of it.
fn done<T>(release: impl Future<Output = T> + Send + 'static) -> Release {
    Box::pin(async {
        release.await;
        Ok(())
    })
}

impl Client {
    /// Waits without end. Those that know no readers are always in alone.
    pub(crate) async fn enter(&self, name: &str, access: Access) -> Outcome<Release> {
        Ok(match (self, access) {
            (Self::Ours(redlock), Access::Read) => released(redlock.rw_lock(name).read().await?.release()),
            (Self::Ours(redlock), Access::Write) => released(redlock.rw_lock(name).write().await?.release()),
            (Self::OursLock(redlock), _) => released(redlock.lock(name).acquire().await?.release()),
            (Self::Port(provider), _) => {
                let lock = provider.create_reader_writer_lock(name);
                match access {
                    // Its `acquire_read` tries once, whatever its timeout.
                    Access::Read => loop {
                        match lock.try_acquire_read().await? {
                            Some(handle) => break released(handle.release()),
                            None => tokio::time::sleep(POLL).await,
                        }
                    },
                    Access::Write => released(lock.acquire_write(None).await?.release()),
                }
            }
            (Self::Distkit(connection), _) => {
                let lock = distkit_lock(connection, name)?;
                match access {
                    Access::Read => released(lock.read().await?.release()),
                    Access::Write => released(lock.write().await?.release()),
                }
            }
            (Self::Rslock(manager), _) => {
                let lock = manager.acquire_no_guard(name, TTL).await?;
                done(async move { lock.release().await })
            }
            (Self::Plain(plain), _) => {
                let (plain, name, value) = (plain.clone(), name.to_owned(), plain.acquire(name).await?);
                done(async move { plain.release(&name, &value).await })
            }
            (Self::Local(lock), Access::Read) => {
                let guard = Arc::clone(lock).read_owned().await;
                done(async { drop(guard) })
            }
            (Self::Local(lock), Access::Write) => {
                let guard = Arc::clone(lock).write_owned().await;
                done(async { drop(guard) })
            }
        })
    }
}

/// A lock object is one owner there, so each caller has its own.
fn distkit_lock(connection: &ConnectionManager, name: &str) -> Outcome<Arc<RwLock>> {
    let options = LockOptions::new(DistkitRedisKey::try_from(name.replace(':', "-"))?, connection.clone());
    Ok(RwLock::new(LockOptions { ttl: TTL, retry_interval: POLL, ..options }))
}
