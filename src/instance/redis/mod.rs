//! One Redis or Valkey master: a connection that is kept up by one task, and what is sent over it.

mod address;
mod admission;
pub(crate) mod batch;
mod blocking;
pub(crate) mod classify;
mod conn;
mod connect;
mod connection;
mod credentials;
mod denied;
mod forget_tokens;
pub(crate) mod link;
mod lists;
mod login;
mod open;
mod options;
mod pushes;
mod quarantine_log;
mod questions;
pub(crate) mod resp;
pub(crate) mod scripts;
mod sentinel;
mod standing;
mod stream;
mod supervisor;
mod tls;

#[cfg(all(test, feature = "config"))]
pub(crate) use address::USER_ALONE;
pub(crate) use address::{Address, InstanceSettings};
#[cfg(feature = "config")]
pub(crate) use address::{Fallback, is_readable};
pub use credentials::Credentials;
pub(crate) use credentials::CredentialsSource;
pub(crate) use options::ClientOptions;
#[cfg(feature = "testing")]
pub(crate) use stream::Dialer;
pub use tls::Tls;

use std::fmt;
use std::future::{Future, pending, ready};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::OptionFuture;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::instance::{AdmissionStatus, InstanceStatus};
use crate::instance::{
    Claim, FoundKeys, FoundRecord, KeyState, PublishFuture, Read, ReplyTo, Request, ServerDetails, Trace, Wake,
};
use crate::protocol::{Cause, InstanceId, InstanceSet, Instant, RecordMeaning, Reply};
use crate::resource::Resource;
use admission::operator;
use admission::peers::PeerConnections;
use admission::shared::{SharedAdmission, VoteObstacle};
use connection::InstanceConnection;
use options::ConnectOptions;
use supervisor::ConnectionState;

/// One instance.
///
/// The contract, which the layers above rely on:
///
/// - *Queued when `call` returns.* Calls reach the instance in the order in which `call` was
///   called, so a release that is called after an acquire is carried out after it (P6).
/// - *One reply.* Each request is answered once, by the task of the connection or before `call` returns; no caller has to wait for it.
/// - *No waiting for a connection.* Without one the call is `NotSent` at once; likewise when the
///   instance is known to be silent or has too many calls outstanding.
/// - *A deadline.* The reply comes within the instance timeout, `Unknown` if need be. What an instance answers later is dropped.
/// - *`NotSent` is certain*: the request had and will have no effect.
/// - *From any thread*: `call` needs no runtime and does not block, so that it can be called from a
///   destructor.
pub(crate) struct RedisInstance {
    options: Arc<ConnectOptions>,
    state: watch::Receiver<ConnectionState>,
    /// Those of all instances of the client, this one's too.
    states: Arc<[watch::Receiver<ConnectionState>]>,
    runtime: Handle,
    task: JoinHandle<()>,
}

impl RedisInstance {
    /// Begins to connect to all instances of a client. Must be called within a tokio runtime.
    pub(crate) fn start_all(addresses: Vec<Address>, options: ClientOptions) -> Vec<Self> {
        let client = Arc::new(options);
        let peers = Arc::new(PeerConnections::new(&client));
        let start = |options| Self::start(options, Arc::clone(&peers));
        let mut instances: Vec<_> = client.for_each(addresses).map(start).collect();
        let states: Arc<[_]> = instances.iter().map(|instance| instance.state.clone()).collect();
        instances.iter_mut().for_each(|instance| instance.states = Arc::clone(&states));
        instances
    }

    fn start(options: ConnectOptions, peers: Arc<PeerConnections>) -> Self {
        let (sender, state) = watch::channel(Err(Cause::Connecting));
        let options = Arc::new(options);
        let task = tokio::spawn(supervisor::supervise(Arc::clone(&options), peers, sender));
        Self { options, state, states: Arc::default(), runtime: Handle::current(), task }
    }

    /// The connection, if there is one.
    fn connection(&self) -> ConnectionState {
        self.state.borrow().clone()
    }

    /// The connection, if questions over it are answered.
    fn answering(&self) -> Result<Arc<InstanceConnection>, Cause> {
        self.connection()
            .and_then(|connection| if connection.is_silent() { Err(Cause::Silent) } else { Ok(connection) })
    }

    fn not_sent(&self, reply_to: ReplyTo, cause: Cause) {
        let reply = Reply::NotSent(cause);
        self.options.standing.replied(&reply);
        reply_to.answer(reply);
    }

    /// A request, unless it is for a vote that cannot be had.
    fn unless_in_vain(
        &self,
        connection: &Arc<InstanceConnection>,
        (request, reply_to): (Request, ReplyTo),
    ) -> Option<(Request, ReplyTo)> {
        if let Request::Acquire(claim) = &request {
            let Some(denied) = connection.denied() else {
                self.answer_when_rights_are_known(connection, reply_to);
                return None;
            };
            if let Some(cause) = denied.to(claim.access) {
                let why = Reply::Unknown(cause.clone());
                self.options.standing.note(self.address(), &why, true, self.options.now());
                self.not_sent(reply_to, cause.clone());
                return None;
            }
            if claim.is_by_own_clock && connection.admission.is_some() {
                self.not_sent(reply_to, Cause::JustConnected); // repeated with a token by its clock
                return None;
            }
        }
        let obstacle = connection.admission.as_ref().and_then(|admission| admission.vote_obstacle(&request));
        match obstacle {
            None => return Some((request, reply_to)),
            Some(VoteObstacle::NotYet) => self.answer_when_recorded(connection, reply_to),
            Some(VoteObstacle::Known(cause)) => self.not_sent(reply_to, cause),
        }
        None
    }

    /// Answers once it is known whether the user may do all that a lock needs: then the request is worth repeating.
    fn answer_when_rights_are_known(&self, connection: &Arc<InstanceConnection>, reply_to: ReplyTo) {
        let (connection, options) = (Arc::clone(connection), Arc::clone(&self.options));
        self.runtime.spawn(async move {
            let reply = Reply::NotSent(connection.ask_rights().await.err().unwrap_or(Cause::JustConnected));
            options.standing.replied(&reply);
            reply_to.answer(reply);
        });
    }

    /// Has the record written, and answers once there is a valid one: then the request is worth repeating, and not before the
    /// other instances are as far, or a bare quorum would have the first lock. It is not sent from here, as its own release
    /// may have been called meanwhile, and must come behind it (P6).
    fn answer_when_recorded(&self, connection: &InstanceConnection, reply_to: ReplyTo) {
        connection.admission.iter().for_each(SharedAdmission::request_record);
        let (states, options) = (self.states.to_vec(), Arc::clone(&self.options));
        let is_settled = |state: &watch::Receiver<ConnectionState>| match &*state.borrow() {
            Ok(connection) => connection.admission.as_ref().is_none_or(|it| !it.is_being_settled()),
            Err(_) => true,
        };
        self.runtime.spawn(async move {
            let _ = timeout(options.client.instance_timeout, options.records.settled(|| states.iter().all(is_settled)))
                .await;
            let reply = Reply::NotSent(Cause::Unrecorded);
            options.standing.replied(&reply);
            reply_to.answer(reply);
        });
    }
}

/// The request.
impl RedisInstance {
    /// The addresses of some instances, for the log: a position in the list says nothing to its reader.
    pub(crate) fn addresses(all: &[Self], some: InstanceSet) -> Vec<String> {
        some.iter().filter_map(|id| all.get(id.index())).map(|instance| instance.address().to_owned()).collect()
    }

    /// The address for people, without credentials.
    pub(crate) fn address(&self) -> &str {
        self.options.address.shown()
    }

    /// Queues a request on each of these.
    pub(crate) fn call_each(
        instances: &[Self],
        targets: InstanceSet,
        request: impl Fn(InstanceId) -> (Request, ReplyTo),
    ) {
        let mut begun = None; // one reading of the clock, and one look at the process, for all
        for id in targets.iter() {
            let Some(instance) = instances.get(id.index()) else { continue };
            let (made_at, is_forked) =
                *begun.get_or_insert_with(|| (instance.options.now(), instance.options.client.process.is_forked()));
            match is_forked {
                true => instance.not_sent(request(id).1, Cause::Forked),
                false => instance.call(request(id), made_at),
            }
        }
    }

    fn call(&self, (request, reply_to): (Request, ReplyTo), made_at: Instant) {
        if matches!(request, Request::Acquire(_)) {
            self.options.records.want_locks();
        }
        match self.connection() {
            Err(cause) => self.not_sent(reply_to, cause),
            Ok(connection) => {
                let sent = self.unless_in_vain(&connection, (request, reply_to));
                connection.call(sent.into_iter(), made_at);
            }
        }
    }

    /// Queues several requests, which share writes.
    pub(crate) fn call_all(&self, requests: Vec<(Request, ReplyTo)>) {
        let is_forked = self.options.client.process.is_forked();
        match if is_forked { Err(Cause::Forked) } else { self.connection() } {
            Err(cause) => requests.into_iter().for_each(|(_, reply_to)| self.not_sent(reply_to, cause.clone())),
            Ok(connection) => {
                let sent = requests.into_iter().filter_map(|request| self.unless_in_vain(&connection, request));
                let sent: Vec<_> = sent.collect(); // what is not sent is answered before the mutex of the queue is taken
                connection.call(sent.into_iter(), self.options.now());
            }
        }
    }

    /// Checks the keys of leases, and requests one push at the next change of them.
    pub(crate) fn check_keys(&self, claims: Vec<Arc<Claim>>) -> impl Future<Output = Vec<KeyState>> + use<> {
        let count = claims.len();
        let checked = self.answering().ok().map(|connection| questions::check_keys(&connection, claims));
        async move { OptionFuture::from(checked).await.flatten().unwrap_or_else(|| vec![KeyState::Unknown; count]) }
    }

    /// Reads what is stored for a lock of one resource; changes nothing.
    pub(crate) fn read(&self, resource: &Resource) -> impl Future<Output = Read> + use<> {
        let read = self.answering().map(|connection| questions::read(&connection, resource));
        async { read?.await }
    }

    /// Reads which of several locks are free; changes nothing.
    pub(crate) fn are_free(&self, resources: &[Resource]) -> impl Future<Output = Result<Vec<bool>, Cause>> + use<> {
        let free = self.answering().map(|connection| questions::are_free(&connection, resources));
        async { free?.await }
    }

    /// Reads the value of a lock that others hold, and requests one push at its next change.
    pub(crate) fn look(&self, resource: &Resource) -> impl Future<Output = Result<Option<Vec<u8>>, Cause>> + use<> {
        let looked = self.answering().map(|connection| questions::look(connection, resource));
        async { looked?.await }
    }

    /// Reads the server's own report; changes nothing.
    pub(crate) fn examine(&self) -> impl Future<Output = Result<ServerDetails, Cause>> + use<> {
        let connection = self.answering();
        async { questions::examine(&*connection?).await }
    }

    /// Looks for keys of texts that match, at about so many keys; changes nothing.
    pub(crate) fn scan(&self, pattern: Vec<u8>, most: usize) -> impl Future<Output = Result<FoundKeys, Cause>> + use<> {
        // Many steps, which keep no connection that is given up meanwhile.
        let asked = self.answering().map(|connection| (connection.conn.clone(), connection.deadline()));
        async move {
            let (conn, deadline) = asked?;
            questions::scan((&conn, deadline), &pattern, most).await
        }
    }

    /// Reads its admission record; changes nothing.
    pub(crate) fn read_record(&self) -> impl Future<Output = Result<FoundRecord, Cause>> + use<> {
        let connection = self.answering();
        async { operator::read(&*connection?).await }
    }

    /// Writes its first record, so that it votes at once, if it shows no trace of use; or only looks (P15).
    pub(crate) fn open_record(&self, writes: bool) -> impl Future<Output = Result<Trace, Cause>> + use<> {
        let listener = self.options.client.listener.as_ref();
        let channel = listener.map(|listener| listener.client.channel()).unwrap_or_default();
        let connection = self.answering();
        async move { operator::open(&*connection?, &channel, writes).await }
    }

    /// Gives a record that was found, and is for its process, this client's time (P29); gives whether it was still there.
    pub(crate) fn set_record(&self, found: FoundRecord) -> impl Future<Output = Result<bool, Cause>> + use<> {
        let connection = self.answering();
        async move { operator::set(&*connection?, &found).await }
    }

    /// Whether messages to this client come over it (P25).
    pub(crate) fn hears(&self) -> bool {
        self.state.borrow().as_ref().is_ok_and(|connection| connection.hears == Some(true))
    }

    /// Queues a message for another client.
    pub(crate) fn publish(&self, wake: Wake) -> PublishFuture {
        match self.connection() {
            Ok(connection) => connection.publish(&wake),
            Err(_) => Box::pin(ready(false)),
        }
    }

    /// What its wall clock shows at least at `now` of the client's clock, in microseconds since the Unix epoch;
    /// `None` if that is not known.
    pub(crate) fn wall_us(&self, now: Instant) -> Option<u64> {
        Some(self.state.borrow().as_ref().ok()?.admission.as_ref()?.state().wall_us(now))
    }

    /// Why requests would not be sent now; `None` when connected.
    pub(crate) fn obstacle(&self) -> Option<Cause> {
        self.state.borrow().as_ref().err().cloned()
    }

    /// How long a question to it took lately, as far as that is known.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        self.options.standing.lock().round_trip
    }

    /// Why it is connected and gives this client no vote, if that is for the client's settings.
    pub(crate) fn refusal(&self) -> Option<Cause> {
        self.state.borrow().as_ref().ok()?.refusal()
    }

    /// The client wants locks: from now on it writes the records of its instances where that is to be done.
    pub(crate) fn want_locks(&self) {
        self.options.records.want_locks();
    }

    /// Ends when the instance is connected and does not refuse this client for its settings, at once if it is.
    pub(crate) fn wait_accepted(&self) -> impl Future<Output = ()> + use<> {
        self.wait_for(|connection| connection.refusal().is_none())
    }

    /// Ends when the instance is connected, at once if it is.
    pub(crate) fn wait_connected(&self) -> impl Future<Output = ()> + use<> {
        self.wait_for(|_| true)
    }

    fn wait_for(&self, fits: fn(&InstanceConnection) -> bool) -> impl Future<Output = ()> + use<> {
        let mut state = self.state.clone();
        async move {
            let fits = |state: &ConnectionState| state.as_ref().is_ok_and(|connection| fits(connection));
            if state.wait_for(fits).await.is_err() {
                pending().await // its task has ended, with the client or its runtime
            }
        }
    }

    /// How it does, without a request.
    pub(crate) fn status(&self) -> InstanceStatus {
        if self.options.client.process.is_forked() {
            let (address, last_error) = (self.address().to_owned(), Some(Cause::Forked.to_string()));
            return InstanceStatus { address, last_error, ..InstanceStatus::default() };
        }
        let now = self.options.now();
        let mut status = self.options.standing.status(self.address(), now);
        match &*self.state.borrow() {
            Ok(connection) => {
                status.connected = true;
                status.admission = AdmissionStatus::Off;
                if let Some(admission) = &connection.admission {
                    let state = admission.state();
                    match state.meaning() {
                        RecordMeaning::Recorded => {
                            let left = state.quarantine_left(now);
                            status.admission = match left.is_zero() {
                                true => AdmissionStatus::Admitted,
                                false => AdmissionStatus::Quarantine(left),
                            };
                            status.max_ttl = Some(Duration::from_millis(state.record().longest_ttl_ms));
                            status.flushed_ago = state.flushed_ago(now);
                        }
                        RecordMeaning::Refused(reason) => {
                            status.admission = AdmissionStatus::Refused;
                            status.refusal = Some(reason.to_string());
                        }
                        RecordMeaning::Unrecorded => status.admission = AdmissionStatus::Unrecorded,
                    }
                    status.clock_steps = state.watch().steps();
                }
            }
            Err(Cause::Connecting) => {} // nothing has gone wrong yet
            Err(cause) => status.last_error = Some(cause.to_string()),
        }
        status
    }

    /// How many requests over its present connection wait to be sent or for their replies.
    #[cfg(feature = "testing")]
    pub(crate) fn outstanding(&self) -> usize {
        self.state.borrow().as_ref().map_or(0, |connection| connection.outstanding())
    }
}

impl fmt::Debug for RedisInstance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisInstance").field("address", &self.address()).field("state", &*self.state.borrow()).finish()
    }
}

impl Drop for RedisInstance {
    fn drop(&mut self) {
        if !self.options.client.process.is_forked() {
            self.task.abort();
        }
    }
}
