//! A server in the process with which its clients exchange bytes, as with Redis, over any stream.
//!
//! It knows the commands that this library sends, and its scripts. Their Lua is run by an [`Interpreter`], where a test gives it one, else
//! their mirror takes its place. It pushes to tracking and subscribed connections. Its data has the time of its own wall clock.

mod commands;
mod data;
mod info;
mod resp;
mod scripts;
mod session;
mod steps;

pub(super) use self::commands::integer;
pub use self::resp::Answer;
pub(super) use self::resp::{Input, read};
pub use self::scripts::{Called, Interpreter, ScriptCall};
pub use self::steps::{KeyState, Said, Step, StepKind};

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::Arg;
use tokio::sync::Notify;

use self::info::{Ids, Process};
use self::scripts::Call;
use self::session::Session;
use super::clock::MachineClock;
use crate::clock::Clock;
use crate::instance::redis::scripts::{self as library, ScriptKind};
use crate::protocol::{AdmissionRecord, FencingToken, Instant, ProcessIdentity, READERS, RecordOrigin};
use crate::resource::{ADMISSION_KEY, RESERVED, TOKENS_KEY};
use crate::testing::instance::Requests;
use crate::testing::mirror::store::Store;

/// One server, shared by all its connections. Cheap to clone; clones are the same server.
#[derive(Clone)]
pub struct Server(Arc<Shared>);

struct Shared {
    clock: Arc<MachineClock>,
    state: Mutex<State>,
}

/// With what data an instance's process begins, or continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// With none.
    Nothing,
    /// With what is there.
    Present,
    /// With what was there when it was saved.
    Saved,
}

/// What a full server says.
const OUT_OF_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";

/// What a server denies its clients while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// Memory: what may need more of it is refused, but in a script that has written before.
    Memory,
    /// The right to this command.
    Right(&'static str),
}

#[derive(Debug)]
struct State {
    store: Store,
    saved: Store,
    process: Process,
    ids: Ids,
    /// Whether it takes connections, and whether it stands still (SIGSTOP).
    is_up: bool,
    is_hung: bool,
    faults: Faults,
    requests: Requests,
    /// The scripts that it was given, by their hashes.
    scripts: BTreeMap<&'static str, ScriptKind>,
    interpreter: Option<Interpreter>,
    sessions: BTreeMap<u64, Session>,
    next_session: u64,
    /// The connections that get a push of the next change of a key.
    readers: BTreeMap<Vec<u8>, BTreeSet<u64>>,
    /// CLIENT TRACKING is denied to all users.
    denies_tracking: bool,
    denial: Option<Denial>,
    /// The script that runs has written something.
    has_written: bool,
    commands: u64,
    /// Notified once so many commands were carried out.
    awaited: Vec<(u64, Arc<Notify>)>,
    odd_commands: Vec<String>,
    /// What it did, if a judge records it.
    steps: Option<Vec<Step>>,
}

/// What is wrong with a server that runs.
#[derive(Debug, Default)]
struct Faults {
    /// It breaks the connection in place of so many answers to requests.
    lost_replies: usize,
    /// The error that it answers every request with, and carries none out.
    refusal: Option<String>,
    /// The token that it claims to have stored, for every acquire.
    claimed: Option<FencingToken>,
}

impl Faults {
    /// Whether the next reply is one of those that get lost.
    fn loses_reply(&mut self) -> bool {
        let is_lost = self.lost_replies > 0;
        self.lost_replies -= usize::from(is_lost);
        is_lost
    }
}

impl Server {
    /// A process without data; `seed` decides its ids.
    #[must_use]
    pub fn new(seed: u64, clock: Arc<MachineClock>) -> Self {
        let mut ids = Ids(seed);
        let process = Process::begin(&mut ids);
        let mut store = Store::default();
        store.note_changes();
        let state = State {
            saved: store.clone(),
            store,
            process,
            ids,
            is_up: true,
            is_hung: false,
            faults: Faults::default(),
            requests: Requests::default(),
            scripts: BTreeMap::new(),
            interpreter: None,
            sessions: BTreeMap::new(),
            next_session: 1,
            readers: BTreeMap::new(),
            denies_tracking: false,
            denial: None,
            has_written: false,
            commands: 0,
            awaited: Vec::new(),
            odd_commands: Vec::new(),
            steps: None,
        };
        Self(Arc::new(Shared { clock, state: Mutex::new(state) }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What happens to it.
impl Server {
    /// The process ends. Its clients are disconnected, and none can connect.
    pub fn stop(&self) {
        let mut state = self.state();
        (state.is_up, state.is_hung) = (false, false);
        state.disconnect_all();
    }

    /// Another process begins in its place.
    pub fn start(&self, data: Data) {
        let mut state = self.state();
        state.disconnect_all();
        state.begin(data);
    }

    /// A replica that has run for long, with this data of its master, takes its place.
    pub fn fail_over(&self, data: Data) {
        let mut state = self.state();
        state.disconnect_all();
        state.begin(data);
        let State { process, ids, .. } = &mut *state;
        process.end_replication(ids);
    }

    /// The process follows another master for a moment, takes over its data, and is a master again.
    pub fn resynchronise(&self, data: Data) {
        let mut state = self.state();
        state.replace(data);
        let State { process, ids, .. } = &mut *state;
        process.end_replication(ids);
    }

    /// The process loads data in place of its own.
    pub fn restore(&self, data: Data) {
        self.state().replace(data);
    }

    /// The process becomes a replica: it takes no writes until it [fails over](Self::fail_over).
    pub fn demote(&self) {
        self.state().process.is_master = false;
    }

    /// SCRIPT FLUSH.
    pub fn forget_scripts(&self) {
        self.state().scripts.clear();
    }

    /// FLUSHALL.
    pub fn flush(&self) {
        let mut state = self.state();
        state.replace(Data::Nothing);
        state.process.flushes += 1;
    }

    /// FLUSHDB of another database: its own data stays, and its clients get a push as after any flush.
    pub fn flush_another_database(&self) {
        let mut state = self.state();
        state.process.flushes += 1;
        state.tell_of_flush();
    }

    /// It has a record that has let it vote for so long already, for ttls up to `longest`.
    pub fn admit(&self, longest: Duration, already: Duration) {
        let already_ms = u64::try_from(already.as_millis()).unwrap_or(u64::MAX);
        let from_ms = (self.0.clock.wall_us() / 1_000).saturating_sub(already_ms);
        let mut state = self.state();
        let record = AdmissionRecord {
            identity: ProcessIdentity::new(&state.process.run_id, &state.process.replication_id),
            vote_from_ms: from_ms,
            longest_ttl_ms: u64::try_from(longest.as_millis()).unwrap_or(u64::MAX),
            origin: RecordOrigin::Waits,
            order: from_ms,
        };
        state.store.set(ADMISSION_KEY.as_bytes(), record.to_wire().as_bytes(), None);
    }

    /// A record that it has of its process allows ttls up to `longest` from now on.
    pub(crate) fn allow(&self, longest: Duration) {
        let state = &mut *self.state();
        let record = state.store.get(ADMISSION_KEY.as_bytes()).and_then(AdmissionRecord::from_wire);
        let own = ProcessIdentity::new(&state.process.run_id, &state.process.replication_id);
        if let Some(record) = record.filter(|record| record.identity == own) {
            let longest_ttl_ms = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
            let record = AdmissionRecord { longest_ttl_ms, ..record };
            state.store.set(ADMISSION_KEY.as_bytes(), record.to_wire().as_bytes(), None);
        }
    }

    /// Deletes the keys of all locks, as by hand.
    pub fn delete_locks(&self) {
        self.with_data(|store, _| {
            let locks: Vec<_> = store.keys().filter(|key| !key.starts_with(RESERVED)).map(<[u8]>::to_vec).collect();
            for key in locks {
                store.remove(&key);
            }
        });
    }

    /// Stores a token for this lock that is ahead of the clock by so much, as by hand.
    pub fn store_token_ahead(&self, lock: &[u8], by: Duration) {
        let by_us = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
        let token = FencingToken::propose(self.0.clock.wall_us().saturating_add(by_us), None);
        // A store that has another type of value there keeps it.
        let _ = self.with_data(|store, _| store.set_score(TOKENS_KEY.as_bytes(), lock, token.to_score()));
    }

    /// A client whose clock shows `wall` has it forget the tokens that are older than `retention`.
    pub fn forget_tokens(&self, wall: Duration, retention: Duration) {
        let wall_us = u64::try_from(wall.as_micros()).unwrap_or(u64::MAX);
        let command = library::forget_tokens(wall_us, retention);
        let words = command.args_iter().skip(3).map(|word| if let Arg::Simple(word) = word { word } else { &[] });
        let args: Vec<_> = words.collect();
        let mut state = self.state();
        let now = self.now();
        state.store.expire(now);
        let call = Call { script: ScriptKind::ForgetTokens, keys: &[], args: &args, wall_us: self.0.clock.wall_us() };
        let _ = call.run(&mut state); // what it answers is for clients only
    }

    /// From now on no changes are pushed: no user has the right to CLIENT TRACKING.
    pub fn deny_tracking(&self) {
        self.state().denies_tracking = true;
    }

    /// From now on it denies its clients this, or nothing.
    pub fn deny(&self, denial: Option<Denial>) {
        self.state().denial = denial;
    }

    /// Waits until it has carried out so many commands more. The waiting task continues before the next one, where others may
    /// come in between.
    ///
    /// # Cancel safety
    /// Dropping the future ends the wait.
    pub async fn after_commands(&self, count: u64) {
        let reached = Arc::new(Notify::new());
        {
            let mut state = self.state();
            let at = state.commands + count;
            state.awaited.push((at, Arc::clone(&reached)));
        }
        reached.notified().await;
    }

    /// Keeps a copy of the data as it is.
    pub fn save(&self) {
        let mut state = self.state();
        state.saved = state.store.clone();
    }

    /// The process stands still: it takes connections, and reads nothing.
    pub fn hang(&self) {
        self.state().is_hung = true;
    }

    /// It continues.
    pub fn go_on(&self) {
        let mut state = self.state();
        state.is_hung = false;
        state.wake_all();
    }
}

/// What it does wrong.
impl Server {
    /// Carries out the next `count` requests, but breaks the connection in place of the answer.
    pub(crate) fn lose_replies(&self, count: usize) {
        self.state().faults.lost_replies = count;
    }

    /// Answers every request with this error, and carries none out.
    pub(crate) fn refuse(&self, error: String) {
        self.state().faults.refusal = Some(error);
    }

    /// Answers every acquire that it has stored this token, and carries none out.
    pub(crate) fn claim_token(&self, token: FencingToken) {
        self.state().faults.claimed = Some(token);
    }

    /// Does all that right again.
    pub(crate) fn end_faults(&self) {
        self.state().faults = Faults::default();
    }
}

/// How it does.
impl Server {
    /// Its clock.
    #[must_use]
    pub fn clock(&self) -> &MachineClock {
        &self.0.clock
    }

    /// Whether there is a process, however it does.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.state().is_up
    }

    /// Whether there is a process that does not stand still.
    #[must_use]
    pub fn is_running(&self) -> bool {
        let state = self.state();
        state.is_up && !state.is_hung
    }

    /// How many commands it has carried out.
    #[must_use]
    pub fn commands(&self) -> u64 {
        self.state().commands
    }

    /// Commands that it did not understand: it lacks something that the library does.
    #[must_use]
    pub fn odd_commands(&self) -> Vec<String> {
        self.state().odd_commands.clone()
    }

    /// What differs between its data and that of another server, by key.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Option<String> {
        self.with_data(|one, _| other.with_data(|other, _| one.difference(other)))
    }

    /// From now on it runs the scripts that it is given.
    pub fn run_scripts_by(&self, interpreter: Interpreter) {
        self.state().interpreter = Some(interpreter);
    }

    /// The longest ttl that its admission record allows.
    #[must_use]
    pub fn longest_ttl(&self) -> Option<Duration> {
        self.state().longest_ttl()
    }

    /// From now on it notes what it does.
    pub fn watch(&self) {
        self.state().steps = Some(Vec::new());
    }

    /// What it did since this was last read.
    #[must_use]
    pub fn take_steps(&self) -> Vec<Step> {
        self.state().steps.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The keys of all locks, with their values; of those that are read, with each reader and each writer that waits.
    #[must_use]
    pub fn locks(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.with_data(|store, _| {
            let locks = store.keys().filter(|key| !key.starts_with(RESERVED));
            let of_key = |key: &[u8]| {
                let members = store.scores(key).into_iter().map(|(member, _)| member);
                let members: Vec<_> = members.filter(|member| member != READERS).collect();
                if members.is_empty() { vec![store.get(key).unwrap_or_default().to_vec()] } else { members }
            };
            locks.flat_map(|key| of_key(key).into_iter().map(|value| (key.to_vec(), value))).collect()
        })
    }

    /// How many requests it has carried out.
    pub(crate) fn requests(&self) -> Requests {
        self.state().requests
    }

    /// Looks at the data as it is now, or changes it as by hand.
    pub(crate) fn with_data<T>(&self, access: impl FnOnce(&mut Store, Instant) -> T) -> T {
        let now = self.now();
        let mut state = self.state();
        state.store.expire(now);
        let found = access(&mut state.store, now);
        state.tell_changes(None);
        found
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(self.0.clock.wall_us().saturating_mul(1_000))
    }
}

impl State {
    fn begin(&mut self, data: Data) {
        (self.is_up, self.is_hung) = (true, false);
        self.scripts.clear();
        self.readers.clear();
        self.process = Process::begin(&mut self.ids);
        self.load(data);
    }

    fn longest_ttl(&self) -> Option<Duration> {
        let record = self.store.get(ADMISSION_KEY.as_bytes()).and_then(AdmissionRecord::from_wire);
        record.map(|record| Duration::from_millis(record.longest_ttl_ms))
    }

    fn load(&mut self, data: Data) {
        match data {
            Data::Nothing => self.store.flush(),
            Data::Present => {}
            Data::Saved => self.store = self.saved.clone(),
        }
    }

    /// All data is replaced while clients are connected.
    fn replace(&mut self, data: Data) {
        self.load(data);
        self.tell_of_flush();
        self.readers.clear();
    }

    /// Every connection gets a push of any flush.
    fn tell_of_flush(&mut self) {
        self.sessions.values_mut().for_each(|session| session.invalidate(&Answer::Nothing));
    }

    /// Pushes what has changed to its readers, `by` a connection, if it was one.
    fn tell_changes(&mut self, by: Option<u64>) {
        for key in self.store.take_changes() {
            for reader in self.readers.remove(&key).unwrap_or_default() {
                if let Some(session) = self.sessions.get_mut(&reader).filter(|session| session.hears_of_changes_by(by))
                {
                    session.invalidate(&Answer::List(vec![Answer::bytes(&key)]));
                }
            }
        }
    }

    fn disconnect(&mut self, number: u64) {
        if let Some(session) = self.sessions.remove(&number) {
            session.wake();
        }
    }

    fn disconnect_all(&mut self) {
        std::mem::take(&mut self.sessions).into_values().for_each(|session| session.wake());
    }

    fn wake_all(&self) {
        self.sessions.values().for_each(Session::wake);
    }

    /// A new connection: its number, and what wakes it.
    fn connect(&mut self, tag: u64) -> (u64, Arc<Notify>) {
        let (number, wake) = (self.next_session, Arc::<Notify>::default());
        self.next_session += 1;
        self.sessions.insert(number, Session::new(number, Arc::clone(&wake), tag));
        (number, wake)
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        let about = (&state.process.run_id, state.is_up, state.is_hung);
        f.debug_struct("Server").field("run_id, up, hung", &about).finish_non_exhaustive()
    }
}
