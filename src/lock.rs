//! A lock that is about to be acquired.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tracing::{Instrument, Span};

use crate::config::{Renewal, Settings};
use crate::error::{AcquireError, BadRequest, RunError, acquire_error};
use crate::guard::Guard;
use crate::holder::Holder;
use crate::lease::{LeaseView, Mode};
use crate::names::{ResourceName, display_name};
use crate::protocol::{Access, LeaseTerms};
use crate::resource::Resource;
use crate::run::run_while_held;
use crate::runtime::Shared;
use crate::runtime::acquire::try_acquire::try_acquire;
use crate::runtime::acquire::waiter::acquire_until;
use crate::runtime::acquire::{AcquireFailure, AcquireParams, Purpose};
use crate::runtime::counters::AcquireOutcome;
use crate::runtime::held_lease::Tenure;
use crate::span;

/// What to lock and how. Made by [`Redlock::lock`](crate::Redlock::lock).
///
/// It is no lock that is held: each [`acquire`](Self::acquire) gives a [`Guard`] of its own, as often as it is called. It
/// may be kept in a struct, shared between tasks and cloned cheaply; it keeps the client and its connections alive.
///
/// ```
/// # use redquorum::testing::Cluster;
/// use redquorum::{AcquireError, Lock, Redlock};
///
/// struct Reports {
///     nightly: Lock,
/// }
///
/// impl Reports {
///     fn new(redlock: &Redlock) -> Self {
///         Self { nightly: redlock.namespace("reports:").lock("nightly") }
///     }
///
///     async fn write(&self) -> Result<(), AcquireError> {
///         let _guard = self.nightly.acquire().await?;
///         Ok(())
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let cluster = Cluster::new(3);
/// # let redlock = cluster.builder().connect().await?;
/// let reports = Reports::new(&redlock);
/// reports.write().await?;
/// reports.write().await?; // as often as needed
/// // The futures borrow nothing.
/// tokio::spawn(redlock.lock("another").acquire()).await??.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct Lock {
    pub(crate) shared: Arc<Shared>,
    settings: Arc<Settings>,
    name: ResourceName,
    ttl: Option<Duration>,
    pub(crate) limit: Option<Duration>,
    holder: Option<Holder>,
    renewal: Renewal,
    max_hold: Option<Duration>,
    at_least: Duration,
    purpose: Purpose,
}

/// The settings of a lock, for what has one under this name.
macro_rules! lock_settings {
    ($lock:ident) => {
        $crate::lock::lease_settings!($lock);

        /// Who wants it: see [`Lock::holder`](crate::Lock::holder).
        pub fn holder(mut self, holder: Holder) -> Self {
            self.$lock = self.$lock.holder(holder);
            self
        }
    };
}
pub(crate) use lock_settings;

/// Those of them without a holder.
macro_rules! lease_settings {
    ($lock:ident) => {
        /// How long each key lives without being extended: see [`Lock::ttl`](crate::Lock::ttl).
        pub fn ttl(mut self, ttl: Duration) -> Self {
            self.$lock = self.$lock.ttl(ttl);
            self
        }

        /// How long it waits until it has it. Default: without end.
        pub fn wait_at_most(mut self, limit: Duration) -> Self {
            self.$lock = self.$lock.wait_at_most(limit);
            self
        }

        /// Whether it is renewed until it is released: see [`Lock::renew`](crate::Lock::renew).
        pub fn renew(mut self, renewal: Renewal) -> Self {
            self.$lock = self.$lock.renew(renewal);
            self
        }

        /// For how long it is renewed at most: see [`Lock::max_hold`](crate::Lock::max_hold).
        pub fn max_hold(mut self, longest: Duration) -> Self {
            self.$lock = self.$lock.max_hold(longest);
            self
        }
    };
}
pub(crate) use lease_settings;

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock")
            .field("namespace", &display_name(&self.settings.namespace))
            .field("resource", &self.name)
            .field("ttl", &self.asked_ttl())
            .field("holder", &self.holder.as_ref().map(Holder::as_str))
            .finish_non_exhaustive()
    }
}

impl Lock {
    pub(crate) fn new(shared: Arc<Shared>, settings: Arc<Settings>, name: ResourceName) -> Self {
        let (renewal, max_hold) = (settings.renewal, settings.max_hold);
        let (ttl, limit, holder, at_least, purpose) = (None, None, None, Duration::ZERO, Purpose::Lock);
        Self { shared, settings, name, ttl, limit, holder, renewal, max_hold, at_least, purpose }
    }

    /// How long its keys live without being extended.
    pub(crate) fn asked_ttl(&self) -> Duration {
        self.ttl.unwrap_or(self.settings.ttl)
    }

    /// The same for another purpose.
    pub(crate) fn meant_for(self, purpose: Purpose) -> Self {
        Self { purpose, ..self }
    }

    /// The same for another name.
    pub(crate) fn named(self, name: ResourceName) -> Self {
        Self { name, ..self }
    }

    /// How long the keys live without being extended, in whole milliseconds. Default: the client's
    /// `ttl`. At most the client's `max_ttl`, at least twice the drift.
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// How long [`acquire`](Self::acquire) waits. Default: without end.
    ///
    /// At least one round is carried out, so it may take one instance timeout longer. If this client acquires more than
    /// 256 locks at once, that round may not begin in time: then nothing was sent
    /// ([`AcquireError::TryAgain`]).
    pub const fn wait_at_most(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// The same [`Holder`] may re-enter the lock in this client. Default: none, and every guard excludes every other.
    pub fn holder(mut self, holder: Holder) -> Self {
        self.holder = Some(holder);
        self
    }

    /// Whether the lock is renewed until it is released. Default: as the client's
    /// [`renew`](crate::Builder::renew).
    pub const fn renew(mut self, renewal: Renewal) -> Self {
        self.renewal = renewal;
        self
    }

    /// For how long the lock is renewed at most, from when its guard is returned; it ends one ttl after that
    /// at the latest. Default: as the client's [`max_hold`](crate::Builder::max_hold).
    pub const fn max_hold(mut self, longest: Duration) -> Self {
        self.max_hold = Some(longest);
        self
    }

    /// For how long no client gets the lock again after [`try_run`](Self::try_run) has acquired it, however soon its work ends, and with
    /// whatever output: for a job that each of several machines starts by its own clock, and that is to be done once. Longer than their
    /// clocks differ; the mark lasts by the drift longer ([`drift_ppm`](crate::Builder::drift_ppm), a hundredth), so 1.02 times it, and the ttl,
    /// shorter than from one start to the next: a day's job has 23 hours. Default: zero; ten years at most.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use redquorum::testing::Cluster;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let cluster = Cluster::new(3);
    /// # let redlock = cluster.builder().connect().await?;
    /// let nightly = redlock.lock("report:nightly").at_least(Duration::from_secs(600));
    /// assert_eq!(nightly.try_run(async |_lease| "written").await?, Some("written"));
    /// assert_eq!(nightly.try_run(async |_lease| "by a machine whose clock is behind").await?, None);
    /// # Ok(()) }
    /// ```
    ///
    /// When the work ends sooner its lock is left as the mark of [`Guard::keep_for`], for what is left of the time. That is repeated until a
    /// quorum confirms it, for a ttl at most; if none does, the log warns. Where a [`holder`](Self::holder) has the lock more than
    /// once, all of it is left. Work that was dropped, has panicked or has lost its lock leaves no mark; machines that were refused
    /// before do not come again.
    ///
    /// [`acquire`](Self::acquire) and [`run`](Self::run) refuse it: one that waits would do the job again when the mark ends.
    /// [`try_acquire`](Self::try_acquire) does not read it.
    pub const fn at_least(mut self, time: Duration) -> Self {
        self.at_least = time;
        self
    }

    /// Waits until the lock is acquired.
    ///
    /// Waits while another client holds it, and while too few instances answer, until the limit
    /// of [`wait_at_most`](Self::wait_at_most) or without end.
    ///
    /// Waiters of one client queue for a lock, first come, first served. A lock that one of them releases
    /// passes to the next without a request, with a larger fencing token: 16 times in a row while other clients wait, and for a second at
    /// most. A [`holder`](Self::holder) that has the lock already gets another guard of it at once.
    ///
    /// Waiting clients get the lock in the order in which they came: each publishes to the holder's client, which wakes the first of them when
    /// it releases the lock, and pauses its own acquires of that lock for once to twice the least [`retry_delay`](crate::Builder::retry_delay). That needs
    /// `SUBSCRIBE` and `PUBLISH` on channels that begin with `redquorum:wake:`. If the rights are missing or a message gets lost, a client tries
    /// again after pauses from [`retry_delay`](crate::Builder::retry_delay).
    ///
    /// # Guarantees
    /// When it returns a guard, a quorum of instances has granted it, and until the
    /// guard's validity has passed no other client can get one, within the limits that the crate's
    /// documentation states.
    ///
    /// # Cancel safety
    /// Safe. Keys that the unfinished acquire may have set are deleted in the background: at once on
    /// reachable instances, on reconnect elsewhere, by the ttl at the latest.
    ///
    /// A future that is kept but not polled delays others by an instance timeout at most. Then its lock goes to the next waiter, or is
    /// released, and the future queues again when it is polled.
    ///
    /// # Errors
    /// [`AcquireError::DeadlinePassed`] with the cause of the last round;
    /// [`AcquireError::BadRequest`] and [`AcquireError::ClientUnusable`] at once. No key stays behind.
    pub fn acquire(&self) -> impl Future<Output = Result<Guard, AcquireError>> + Send + use<> {
        self.clone().acquire_as(true) // so that the future borrows nothing
    }

    /// Tries once, without waiting for the holder of the lock.
    ///
    /// Takes one round trip to the quorum-th fastest instance. It is repeated at once if this client's wall clock turned
    /// out to be behind, or instances had lost their scripts, and after a pause if no client is known to hold the lock.
    ///
    /// # Guarantees
    /// Of any number of clients that try a free lock at the same moment one gets it, also while a minority of the
    /// instances is dead, hung or in quarantine (rule P31 in [`guide::protocol`](crate::guide::protocol)). The others get
    /// [`AcquireError::Contended`](crate::AcquireError::Contended), which always means that a client holds it.
    /// If votes split, the winner has it after a few round trips and pauses of some milliseconds. After eight repeats,
    /// whose pauses are an instance timeout and two rounds at most, the try ends as
    /// [`AcquireError::SplitVote`](crate::AcquireError::SplitVote).
    ///
    /// It fails at once, without a request, while a caller of this client holds the lock or waits for it: as
    /// [`AcquireError::Contended`](crate::AcquireError::Contended), or with the last failure of the waiters.
    /// Single tries of one client for the same lock share rounds: those that come while one is under way wait for its end, and share the
    /// verdict of the next, which begins after they came. While 256 attempts for other locks are under way a try waits for its turn, but
    /// fails with the first of them that began after it came and found no quorum.
    /// After a release for another client that waits, a try pauses for once to twice the least
    /// [`retry_delay`](crate::Builder::retry_delay), so that the other comes first, and then asks.
    ///
    /// # Cancel safety
    /// As for [`acquire`](Self::acquire).
    ///
    /// # Errors
    /// Any [`AcquireError`] but `DeadlinePassed`. No key stays behind.
    pub fn try_acquire(&self) -> impl Future<Output = Result<Guard, AcquireError>> + Send + use<> {
        self.clone().acquire_as(false)
    }

    /// Acquires the lock, waiting as [`acquire`](Self::acquire) does, and runs `work` while it is
    /// held. Then releases it, waits for a quorum to answer, and returns the output of the work.
    ///
    /// The work gets a view of its lease, for the fencing token and the time that remains. If
    /// the lease is lost the work is dropped where it waits; work that never waits cannot be.
    /// A panic of the work is passed on, and the lock released in the background.
    ///
    /// A release that too few instances confirm, or that finds the lock gone, says nothing against the work. The log
    /// warns of it. To decide by it, use [`acquire`](Self::acquire) and [`Guard::release`].
    ///
    /// # The work's own error
    /// Work that can fail gives a `Result` inside the `Result`: two errors, two question marks.
    ///
    /// ```
    /// # use redquorum::testing::Cluster;
    /// # async fn charge() -> std::io::Result<u32> { Ok(42) }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let cluster = Cluster::new(3);
    /// # let redlock = cluster.builder().connect().await?;
    /// let charged = redlock.lock("order:42").run(async |_lease| charge().await).await??;
    /// assert_eq!(charged, 42);
    /// # Ok(()) }
    /// ```
    ///
    /// The compiler warns of the one that is forgotten:
    ///
    /// ```compile_fail
    /// #![deny(unused_must_use)]
    /// # async fn charge() -> std::io::Result<u32> { Ok(42) }
    /// # async fn f(redlock: redquorum::Redlock) -> Result<(), Box<dyn std::error::Error>> {
    /// redlock.lock("order:42").run(async |_lease| charge().await).await?; // an error of `charge` would vanish
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    /// Safe: the work is dropped, and the lock is released in the background.
    ///
    /// # Errors
    /// [`RunError::Acquire`] if the work was not begun; [`RunError::Lost`] if it was dropped.
    pub fn run<W, F>(&self, work: W) -> impl Future<Output = Result<F::Output, RunError>> + use<W, F>
    where
        W: FnOnce(LeaseView) -> F,
        F: Future,
    {
        let acquired = self.acquire();
        async move { run_while_held(acquired.await?, Duration::ZERO, work).await }
    }

    /// Runs `work` as [`run`](Self::run) does if the lock is free, and returns `None` at once if another client holds it, or a mark keeps it.
    /// For work that one of several processes should do; see [`at_least`](Self::at_least).
    ///
    /// Of several that try at the same moment one does the work, as [`try_acquire`](Self::try_acquire) guarantees.
    ///
    /// ```
    /// # use redquorum::testing::Cluster;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let cluster = Cluster::new(3);
    /// # let redlock = cluster.builder().connect().await?;
    /// match redlock.lock("job:nightly").try_run(async |_lease| 42).await? {
    ///     Some(rows) => println!("done: {rows}"),
    ///     None => println!("another process does it"),
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # The work's own error
    /// Work that can fail gives an `Option` of a `Result`, of which the compiler does not warn if it is ignored.
    /// [`transpose`](Option::transpose) brings the `Result` out:
    ///
    /// ```
    /// # use redquorum::testing::Cluster;
    /// # async fn tidy_up() -> std::io::Result<u32> { Ok(42) }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let cluster = Cluster::new(3);
    /// # let redlock = cluster.builder().connect().await?;
    /// let tidied = redlock.lock("job:tidy-up").try_run(async |_lease| tidy_up().await).await?.transpose()?;
    /// assert_eq!(tidied, Some(42));
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    /// As for [`run`](Self::run).
    ///
    /// # Errors
    /// As for [`run`](Self::run), where the lock is not acquired because of the instances;
    /// [`AcquireError::SplitVote`] if it stayed undecided who gets it: try again.
    pub fn try_run<W, F>(&self, work: W) -> impl Future<Output = Result<Option<F::Output>, RunError>> + use<W, F>
    where
        W: FnOnce(LeaseView) -> F,
        F: Future,
    {
        let (acquired, at_least) = (self.try_acquire(), self.checked_at_least());
        async move {
            let at_least = at_least?;
            match acquired.await {
                Ok(guard) => run_while_held(guard, at_least, work).await.map(Some),
                Err(AcquireError::Contended(_)) => Ok(None),
                Err(error) => Err(error.into()),
            }
        }
    }

    /// Before anything is locked: a mark that cannot be would be told of when the work is done.
    fn checked_at_least(&self) -> Result<Duration, AcquireError> {
        let is_none = self.at_least.is_zero();
        let checked =
            if is_none { Ok(()) } else { self.settings.terms_to_keep(self.at_least.max(self.asked_ttl())).map(drop) };
        checked.map(|()| self.at_least).map_err(AcquireError::BadRequest)
    }

    /// Acquires it for a reader or a writer: waits for it, or tries once.
    pub(crate) async fn acquire_as<M: Mode>(self, waits: bool) -> Result<Guard<M>, AcquireError> {
        self.refuse_to_wait_for_itself(M::ACCESS)?;
        if waits && !self.at_least.is_zero() {
            return Err(BadRequest::AtLeastWaits.into());
        }
        let params = self.params_as(M::ACCESS)?;
        let span = match waits {
            true => span::operation!("acquire", params.resource.display()),
            false => span::operation!("try_acquire", params.resource.display()),
        };
        // What is pinned here is not moved again, and it is large.
        let acquired = std::pin::pin!(async {
            match waits {
                true => acquire_until(&self.shared, &params, self.limit).await,
                false => try_acquire(&self.shared, &params).await,
            }
        });
        self.observed(&params.resource, span, acquired).await
    }

    /// P34: a holder that reads would wait for itself to write; and to read again, behind a writer of this client.
    pub(crate) fn refuse_to_wait_for_itself(&self, access: Access) -> Result<(), AcquireError> {
        let Some(holder) = self.holder.as_ref().map(Holder::as_str).filter(|holder| !holder.is_empty()) else {
            return Ok(());
        };
        let resource = self.resource()?;
        let (slots, reads) = (&self.shared.slots, self.shared.keep_alive.is_read_by(&resource, holder));
        let waits = match access {
            Access::Write => reads,
            Access::Read => {
                slots.is_held_by(&resource, holder, &*self.shared.clock)
                    || (reads && slots.is_waited_for_to_write(&resource))
            }
        };
        if waits { Err(BadRequest::WaitsForItself { holder: holder.to_owned() }.into()) } else { Ok(()) }
    }

    pub(crate) fn terms(&self) -> Result<LeaseTerms, BadRequest> {
        self.settings.terms(self.ttl)
    }

    pub(crate) fn resource(&self) -> Result<Resource, BadRequest> {
        Ok(Resource::new(&self.settings.namespace, self.name.as_bytes())?)
    }

    /// The resource, for a question about it.
    pub(crate) fn resource_to_ask(&self) -> Result<Resource, BadRequest> {
        self.shared.check_process()?;
        self.resource()
    }

    pub(crate) fn params(&self) -> Result<Arc<AcquireParams>, AcquireError> {
        self.params_as(Access::Write)
    }

    fn params_as(&self, access: Access) -> Result<Arc<AcquireParams>, AcquireError> {
        let params = self.resource().and_then(|resource| {
            self.holder.as_ref().map_or(Ok(()), Holder::check)?;
            Ok(Arc::new(AcquireParams {
                resource,
                access,
                terms: self.terms()?,
                holder: self.holder.as_ref().map_or_else(|| "".into(), Holder::text),
                renews: self.renewal == Renewal::Auto,
                max_hold: self.max_hold,
                purpose: self.purpose.clone(),
            }))
        });
        params.map_err(AcquireError::BadRequest)
    }

    /// Carries an acquire out, and reports to the log and to metrics how it ended.
    pub(crate) async fn observed<M: Mode>(
        &self,
        resource: &Resource,
        span: Span,
        acquired: impl Future<Output = Result<Tenure, AcquireFailure>>,
    ) -> Result<Guard<M>, AcquireError> {
        let begun = self.shared.clock.now();
        // The guard is made before anything is reported: the guard releases its lock even if a listener panics.
        let guard = |tenure| Guard::new(Arc::clone(&self.shared), Arc::clone(&self.settings), tenure);
        let result = match self.shared.is_forked() {
            true => Err(AcquireFailure::Forked),
            false => async { acquired.await.map(guard) }.instrument(span.clone()).await,
        };
        let took = self.shared.clock.now().saturating_since(begun);
        let result = result.map_err(|failure| acquire_error(&self.shared, resource, failure));
        let outcome = match &result {
            Ok(guard) => AcquireOutcome::Acquired { is_handed_over: guard.tenure.is_handed_over },
            Err(error) if error.is_contended() => AcquireOutcome::Contended,
            Err(error) => AcquireOutcome::Failed(error.kind()),
        };
        self.shared.counters.acquire_ended(outcome, took);
        span.in_scope(|| log_acquire(resource, &result, &span));
        result
    }
}

fn log_acquire<M: Mode>(resource: &Resource, result: &Result<Guard<M>, AcquireError>, span: &Span) {
    match result {
        Ok(guard) => {
            let (token, is_handed_over) = (guard.tenure.token, guard.tenure.is_handed_over);
            let resource = guard.tenure.claim().resource.display(); // of several, the one that was won
            tracing::debug!(resource, %token, is_handed_over, "acquired");
            span.record("redquorum.fencing_token", token.as_i64());
            span::ended(span, "acquired");
        }
        Err(error) => {
            if error.is_contended() {
                span::ended(span, "contended");
            } else {
                span::failed(span, error.kind(), error);
            }
            tracing::debug!(resource = resource.display(), %error, "not acquired");
        }
    }
}
