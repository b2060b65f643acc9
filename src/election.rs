//! One of several candidates leads, and the others know who.

use std::fmt;
use std::future::pending;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use crate::config::Renewal;
use crate::error::{AcquireError, BadRequest, LeaderError, ReleaseError, RunError, leader_error};
use crate::guard::{Guard, Released};
use crate::lease::LeaseView;
use crate::lock::{Lock, lease_settings};
use crate::protocol::{ClientId, FencingToken, MAX_LEADER_INFO, Value, read_leader};
use crate::resource::Resource;
use crate::run::run_while_held;
use crate::runtime::Shared;
use crate::runtime::acquire::Purpose;
use crate::runtime::ask_all::look;
use crate::runtime::tasks::with_timers;

/// An observer looks so often in a ttl, beside pushes: each look takes a moment, and a third of it is promised.
const LOOKS_PER_TTL: u32 = 4;

/// One of several candidates leads. Made by [`Redlock::election`](crate::Redlock::election).
///
/// It is the lock of this name, with all its guarantees: at most one leader at a time, a loss that is reported, a
/// fencing token that is larger for every later leader. Beside that each leader says who it is: its `info` is stored with the lock.
/// That is text for others, an address say, of at most 1 024 bytes, of which each `%` and `:` counts as three. It is no secret.
///
/// ```
/// # use redquorum::testing::Cluster;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let cluster = Cluster::new(3);
/// # let (redlock, worker) = (cluster.builder().connect().await?, cluster.builder().connect().await?);
/// let leadership = redlock.election("scheduler").campaign("10.0.0.7:8080").await?;
/// println!("leads under token {}", leadership.fencing_token());
///
/// // A worker reads it.
/// let leader = worker.election("scheduler").leader().await?;
/// assert_eq!(leader.map(|leader| leader.info).as_deref(), Some("10.0.0.7:8080"));
/// leadership.resign().await?;
/// # Ok(()) }
/// ```
///
/// All candidates and observers should give the same [`ttl`](Self::ttl).
#[derive(Clone, Debug)]
#[must_use = "an election does nothing until a caller campaigns or reads the leader"]
pub struct Election {
    pub(crate) lock: Lock,
}

/// The lead, for as long as [`remaining`](LeaseView::remaining) says. It has all that a [`Guard`] has.
///
/// It is renewed in the background. Dropping it resigns in the background.
#[derive(Debug)]
#[must_use = "the leader resigns when it is dropped"]
pub struct Leadership<G = Guard> {
    pub(crate) guard: G,
    pub(crate) info: Arc<str>,
}

/// Who leads, as a quorum of instances says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// What it says of itself.
    pub info: String,
    /// Its fencing token: larger for every later leader. Requests to the leader may carry it, so that a former leader can refuse them.
    pub token: FencingToken,
    /// The id of its client: see [`Redlock::client_id`](crate::Redlock::client_id).
    pub client: String,
}

/// Sees one leader after the other. Made by [`Election::observe`].
pub struct Observer {
    pub(crate) shared: Arc<Shared>,
    resource: Resource,
    interval: Duration,
    changes: watch::Receiver<()>,
    /// The largest token so far.
    last: Option<FencingToken>,
}

impl Election {
    lease_settings!(lock);

    /// Waits until this candidate leads: see [`Lock::acquire`]. A leadership is never handed over to another candidate of the same
    /// client: that one has an `info` and a token of its own.
    ///
    /// # Guarantees
    /// As for [`Lock::acquire`]. What observers read is the token of the [`Leadership`].
    ///
    /// # Cancel safety
    /// As there.
    ///
    /// # Errors
    /// As there, and [`BadRequest::InfoTooLong`].
    pub fn campaign(&self, info: &str) -> impl Future<Output = Result<Leadership, AcquireError>> + Send + use<> {
        let (length, info) = (Value::length_of(info), Arc::<str>::from(info));
        let candidate = self.lock.clone().meant_for(Purpose::Leadership(Arc::clone(&info)));
        async move {
            if length > MAX_LEADER_INFO {
                return Err(BadRequest::InfoTooLong { length, most: MAX_LEADER_INFO }.into());
            }
            Ok(Leadership { guard: candidate.acquire().await?, info })
        }
    }

    /// Leads again and again until `work` ends: campaigns, runs `work` while it leads, and when the lead is lost drops the work
    /// where it waits, logs why, and campaigns again. When `work` ends, this resigns and returns what the work returned.
    ///
    /// To stop it, end the work: let it wait for your own signal. Dropping the future also resigns.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use redquorum::testing::Cluster;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let cluster = Cluster::new(3);
    /// # let redlock = cluster.builder().connect().await?;
    /// let (stop, stopped) = tokio::sync::watch::channel(false);
    /// let leading = redlock.election("scheduler").lead("10.0.0.7:8080", async move |leadership| {
    ///     println!("leads under token {}", leadership.fencing_token());
    ///     let _ = stopped.clone().wait_for(|stop| *stop).await; // .. and schedules meanwhile
    /// });
    /// let leading = tokio::spawn(leading);
    /// stop.send(true)?;
    /// leading.await??;
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    /// Safe: the work is dropped, and the lead is given up in the background.
    ///
    /// # Errors
    /// As for [`campaign`](Self::campaign): only what does not pass, unless [`wait_at_most`](Self::wait_at_most) is set.
    pub fn lead<W, T>(&self, info: &str, mut work: W) -> impl Future<Output = Result<T, AcquireError>> + use<W, T>
    where
        W: AsyncFnMut(LeaseView) -> T,
    {
        let (election, info) = (self.clone(), info.to_owned());
        async move {
            loop {
                let leadership = election.campaign(&info).await?;
                let token = leadership.fencing_token();
                match run_while_held(leadership.guard, Duration::ZERO, |lease| work(lease)).await {
                    Ok(output) => return Ok(output),
                    Err(RunError::Acquire(error)) => return Err(error),
                    Err(RunError::Lost(loss)) => {
                        let resource = election.lock.resource()?.display();
                        tracing::warn!(resource, %token, %loss, "the lead was lost; campaigns again");
                    }
                }
            }
        }
    }

    /// Who leads now; `None` if no client does. It may have changed when this returns.
    ///
    /// A candidate that has the keys of a quorum is returned even if it does not know that, as its answers were lost; it gives them up.
    /// Keys on instances that may have forgotten locks do not count: there a candidate may have set some that are no votes.
    ///
    /// # Cancel safety
    /// Safe: it only reads.
    ///
    /// # Errors
    /// [`LeaderError::Unknown`] if too few instances answer, or vote yet; [`LeaderError::BadRequest`] for a name that cannot be locked.
    pub fn leader(&self) -> impl Future<Output = Result<Option<Leader>, LeaderError>> + Send + use<> {
        let lock = self.lock.clone();
        async move {
            let seen = look(&lock.shared, &lock.resource_to_ask()?).await;
            let value = seen.map_err(|answers| leader_error(&lock.shared, answers))?;
            Ok(value.and_then(|value| Leader::read(&value)))
        }
    }

    /// Sees the present leader, and every later one.
    ///
    /// ```
    /// # use redquorum::testing::Cluster;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let cluster = Cluster::new(3);
    /// # let (redlock, worker) = (cluster.builder().connect().await?, cluster.builder().connect().await?);
    /// let mut leaders = worker.election("scheduler").observe()?;
    /// let leadership = redlock.election("scheduler").campaign("10.0.0.7:8080").await?;
    /// let leader = leaders.next().await;
    /// assert_eq!((leader.info.as_str(), leader.token), ("10.0.0.7:8080", leadership.fencing_token()));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`BadRequest`] for a name that cannot be locked, or a ttl that cannot be.
    pub fn observe(&self) -> Result<Observer, BadRequest> {
        let (shared, resource) = (Arc::clone(&self.lock.shared), self.lock.resource_to_ask()?);
        let interval = self.lock.terms()?.ttl() / LOOKS_PER_TTL;
        let changes = shared.keep_alive.observed().changes_of(&resource);
        Ok(Observer { shared, resource, interval, changes, last: None })
    }
}

impl Observer {
    /// Waits for the next leader: at first the present one, then each that is seen with a larger token.
    ///
    /// A change is seen at once where instances push it (`CLIENT TRACKING`), and a third of a ttl after it at the latest, or an instance
    /// timeout later if an instance hangs. Of several changes in that time the last is seen. While too few instances answer, it waits; in a
    /// child of the process that built the client without end.
    ///
    /// # Guarantees
    /// Tokens only grow: a leader from before the last one that was returned is never returned, with any answers of instances.
    ///
    /// # Cancel safety
    /// Safe: no leader is lost.
    pub async fn next(&mut self) -> Leader {
        if self.shared.is_forked() {
            return pending().await;
        }
        loop {
            self.changes.mark_unchanged(); // what changes from now on is looked at after this look
            let seen = look(&self.shared, &self.resource).await.ok().flatten();
            let leader = seen.and_then(|value| Leader::read(&value));
            if let Some(leader) = leader.filter(|leader| self.last.is_none_or(|last| leader.token > last)) {
                self.last = Some(leader.token);
                return leader;
            }
            tokio::select! {
                Ok(()) = self.changes.changed() => {}
                () = with_timers(&self.shared.runtime, async { sleep(self.interval).await }) => {}
            }
        }
    }
}

impl Leader {
    fn read(value: &[u8]) -> Option<Self> {
        let (token, info) = read_leader(value)?;
        Some(Self { info, token, client: ClientId::of_value(value)?.to_string() })
    }
}

impl<G> Leadership<G> {
    /// What others read of this leader.
    #[must_use]
    pub fn info(&self) -> &str {
        &self.info
    }
}

impl Leadership {
    /// Gives the lead up, and waits until a quorum of instances has answered: see [`Guard::release`].
    ///
    /// # Cancel safety
    /// Safe: the release continues in the background.
    ///
    /// # Errors
    /// As there.
    pub async fn resign(self) -> Result<Released, ReleaseError> {
        self.guard.release().await
    }
}

/// What it shows of its lease, and how to extend it.
impl<G> Deref for Leadership<G> {
    type Target = G;

    fn deref(&self) -> &G {
        &self.guard
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").field("resource", &self.resource).field("last", &self.last).finish_non_exhaustive()
    }
}
