//! The network between clients and servers: streams whose bytes take time, are held up in one direction,
//! and break off anywhere.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use redquorum::testing::simulation::MachineClock;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::invariants::released::SentSoFar;
use crate::rng::Rng;
use crate::scenario::Delays;
use crate::time::{instant, now, sleep_until};

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// From a client to a server.
    Up,
    /// Back.
    Down,
}

/// Everything between one client and one server. Cheap to clone; clones are the same.
#[derive(Clone)]
pub(crate) struct Link(Arc<Mutex<State>>);

/// When byte after byte of a connection was written or read by its client: the moment at which the one with this number was.
pub(crate) fn passed(connection: &Connection, way: Way, byte: u64) -> Option<Passed> {
    let pipes = lock(connection);
    let passed = &pipes[way as usize].passed;
    passed.get(passed.partition_point(|passed| passed.bytes <= byte)).copied()
}

/// When the last bytes passed.
pub(crate) fn last_passed(connection: &Connection, way: Way) -> Option<Passed> {
    lock(connection)[way as usize].passed.last().copied()
}

struct State {
    clock: Arc<MachineClock>,
    rng: Rng,
    delays: Delays,
    /// Until when nothing comes through, upwards and downwards.
    held_up: [Duration; 2],
    /// How long after a connection broke arrives what was on its way over it.
    late: Duration,
    /// Until when anything has been in its way.
    disturbed: Duration,
    /// The newest connection.
    newest: Option<Connection>,
    /// What was sent upwards, if that is read.
    sent: Option<SentSoFar>,
    /// Commands that were read by the server after their connection had broken.
    late_commands: u64,
}

pub(crate) type Connection = Arc<Mutex<[Pipe; 2]>>;

/// So many bytes have passed by then, in true time and by the clock of the client's machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passed {
    pub(crate) bytes: u64,
    pub(crate) at: Duration,
    pub(crate) reading: Duration,
}

/// One direction of one connection.
pub(crate) struct Pipe {
    on_the_way: VecDeque<Chunk>,
    last_arrival: Duration,
    /// Nothing more comes after what is on its way.
    is_ended: bool,
    /// The reader is told of an error instead of an end.
    is_reset: bool,
    /// How many bytes still go through before the connection breaks.
    breaks_after: Option<usize>,
    reader: Option<Waker>,
    /// What the client has written or read so far.
    passed: Vec<Passed>,
    /// When it has asked for something since it has heard anything.
    unanswered: Vec<Duration>,
}

/// What was written at once.
struct Chunk {
    arrives: Duration,
    bytes: Vec<u8>,
    /// How much of it has been read.
    taken: usize,
}

impl Chunk {
    fn left(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }
}

impl Link {
    /// `is_read` if all that the client sends is looked at.
    pub(crate) fn new(rng: Rng, delays: Delays, is_read: bool, clock: Arc<MachineClock>) -> Self {
        let (held_up, late) = ([Duration::ZERO; 2], Duration::ZERO);
        Self(Arc::new(Mutex::new(State {
            clock,
            rng,
            delays,
            held_up,
            late,
            disturbed: Duration::ZERO,
            newest: None,
            sent: is_read.then(SentSoFar::default),
            late_commands: 0,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Both ends of a new connection, once a request for it has come through and back.
    pub(crate) async fn connect(&self, server_is_up: impl Fn() -> bool) -> io::Result<(End, End)> {
        for way in [Way::Up, Way::Down] {
            loop {
                let (delay, until) = {
                    let mut state = self.lock();
                    (state.delay(), state.held_up[way as usize])
                };
                if until <= now() {
                    sleep(delay).await;
                    break;
                }
                sleep_until(until).await;
            }
            if !server_is_up() {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
        }
        let connection: Connection = Arc::new(Mutex::new([Pipe::new(now()), Pipe::new(now())]));
        let mut state = self.lock();
        // A new connection is another one than that which a planned break is about.
        state.newest = Some(Arc::clone(&connection));
        state.disturbed = state.disturbed.max(now());
        let clock = &state.clock;
        let end = |reads, writes| {
            let (link, connection, clock) = (self.clone(), Arc::clone(&connection), Arc::clone(clock));
            End { link, connection, reads, writes, clock, timer: None }
        };
        Ok((end(Way::Down, Way::Up), end(Way::Up, Way::Down)))
    }

    /// Nothing comes through one way for so long; nothing is lost.
    pub(crate) fn hold_up(&self, way: Way, time: Duration) {
        let until = now() + time;
        let state = &mut *self.lock();
        let held_up = &mut state.held_up[way as usize];
        *held_up = until.max(*held_up);
        state.disturbed = state.disturbed.max(until);
    }

    pub(crate) fn hold_up_both(&self, time: Duration) {
        [Way::Up, Way::Down].into_iter().for_each(|way| self.hold_up(way, time));
    }

    /// The present connection breaks after so many bytes more in one direction. A part of what is on its
    /// way upwards still arrives, and late.
    pub(crate) fn break_after(&self, way: Way, bytes: usize, late: Duration) {
        let mut state = self.lock();
        state.late = late;
        let Some(connection) = state.newest.clone() else { return };
        drop(state);
        if bytes == 0 {
            self.break_now(&mut lock(&connection));
        } else {
            lock(&connection)[way as usize].breaks_after = Some(bytes);
        }
    }

    /// The server at its end stood still until now.
    pub(crate) fn note_disturbed(&self) {
        let mut state = self.lock();
        state.disturbed = state.disturbed.max(now());
    }

    /// Whether it has been connected since this instant, with nothing in the way.
    pub(crate) fn is_undisturbed_since(&self, since: Duration) -> bool {
        self.is_connected() && self.lock().disturbed <= since
    }

    /// The longest that bytes take one way.
    pub(crate) fn slowest(&self) -> Duration {
        let Delays { most, slow, slow_permille, .. } = self.lock().delays;
        Duration::from_millis(most + if slow_permille > 0 { slow } else { 0 })
    }

    /// Whether there is a connection.
    pub(crate) fn is_connected(&self) -> bool {
        let state = self.lock();
        state.newest.as_ref().is_some_and(|connection| lock(connection).iter().all(|pipe| !pipe.is_ended))
    }

    /// What was sent behind a release.
    pub(crate) fn sent_violations(&self) -> Vec<(Vec<u8>, String)> {
        self.lock().sent.as_mut().map(|sent| std::mem::take(&mut sent.violations)).unwrap_or_default()
    }

    /// When the client has asked over the present connection since it has heard anything over it.
    pub(crate) fn unanswered(&self, nth: usize) -> Option<Duration> {
        let state = self.lock();
        let pipes = lock(state.newest.as_ref()?);
        let pipe = pipes.iter().all(|pipe| !pipe.is_ended).then_some(&pipes[Way::Up as usize])?;
        pipe.unanswered.get(nth).copied()
    }

    pub(crate) fn late_commands(&self) -> u64 {
        self.lock().late_commands
    }

    /// From now on it is as good as a network can be.
    pub(crate) fn heal(&self) {
        let mut state = self.lock();
        (state.held_up, state.late, state.delays) = ([now(); 2], Duration::ZERO, Delays::CALM);
        if let Some(connection) = &state.newest {
            lock(connection).iter_mut().for_each(|pipe| pipe.breaks_after = None);
        }
    }

    fn break_now(&self, [up, down]: &mut [Pipe; 2]) {
        let mut state = self.lock();
        up.cut(&mut state.rng);
        let late = state.late;
        up.on_the_way.iter_mut().for_each(|chunk| chunk.arrives += late);
        down.on_the_way.clear();
        for pipe in [up, down] {
            pipe.is_ended = true;
            pipe.is_reset = true;
            pipe.wake();
        }
    }
}

impl State {
    fn delay(&mut self) -> Duration {
        let Delays { least, most, slow_permille, slow } = self.delays;
        let slow = if self.rng.permille(slow_permille) { self.rng.below(slow) } else { 0 };
        Duration::from_millis(self.rng.between(least, most) + slow)
    }
}

impl Pipe {
    const fn new(now: Duration) -> Self {
        Self {
            on_the_way: VecDeque::new(),
            last_arrival: now,
            is_ended: false,
            is_reset: false,
            breaks_after: None,
            reader: None,
            passed: Vec::new(),
            unanswered: Vec::new(),
        }
    }

    /// Loses all that is on its way from some byte on.
    fn cut(&mut self, rng: &mut Rng) {
        let total: usize = self.on_the_way.iter().map(|chunk| chunk.left().len()).sum();
        let mut left = rng.index(total + 1);
        for chunk in &mut self.on_the_way {
            chunk.bytes.truncate(chunk.taken + left);
            left -= chunk.left().len();
        }
        self.on_the_way.retain(|chunk| !chunk.left().is_empty());
    }

    fn note_passed(&mut self, bytes: usize, clock: &MachineClock) {
        let before = self.passed.last().map_or(0, |passed| passed.bytes);
        self.passed.push(Passed { bytes: before + bytes as u64, at: now(), reading: clock.reading() });
    }

    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

/// One end of a connection.
pub(crate) struct End {
    link: Link,
    connection: Connection,
    reads: Way,
    writes: Way,
    clock: Arc<MachineClock>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl End {
    pub(crate) const fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Wakes the reader at this instant, or says that it has come.
    fn wait(&mut self, until: Duration, cx: &mut Context<'_>) -> Poll<()> {
        if until <= now() {
            return Poll::Ready(());
        }
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(until)));
        if timer.deadline() != instant(until) {
            timer.as_mut().reset(instant(until));
        }
        timer.as_mut().poll(cx)
    }
}

impl AsyncRead for End {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let held_up = self.link.lock().held_up[self.reads as usize];
            let arrives = {
                let pipe = &mut lock(&self.connection)[self.reads as usize];
                // Its own side broke it: what is on its way to the other is of no concern here.
                if pipe.is_reset && self.reads == Way::Down {
                    return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
                }
                pipe.reader = Some(cx.waker().clone());
                match pipe.on_the_way.front() {
                    Some(chunk) => chunk.arrives,
                    None if pipe.is_ended => return Poll::Ready(Ok(())),
                    None => return Poll::Pending,
                }
            };
            ready!(self.wait(arrives.max(held_up), cx));
            let pipes = &mut *lock(&self.connection);
            let pipe = &mut pipes[self.reads as usize];
            let Some(chunk) = pipe.on_the_way.front_mut() else { continue };
            let count = chunk.left().len().min(buf.remaining());
            buf.put_slice(&chunk.left()[..count]);
            chunk.taken += count;
            if chunk.left().is_empty() {
                pipe.on_the_way.pop_front();
            }
            let is_late = pipe.is_ended && self.reads == Way::Up;
            if self.reads == Way::Down {
                pipe.note_passed(count, &self.clock);
                pipes[Way::Up as usize].unanswered.clear();
            }
            if is_late {
                self.link.lock().late_commands += 1;
            }
            return Poll::Ready(Ok(()));
        }
    }
}

impl AsyncWrite for End {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.link.lock();
        let delay = state.delay();
        let mut pipes = lock(&self.connection);
        let pipe = &mut pipes[self.writes as usize];
        if pipe.is_ended {
            // A server learns late that nobody reads its answers: what came before is carried out.
            let is_told = self.writes == Way::Up;
            return Poll::Ready(if is_told { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(bytes.len()) });
        }
        if self.writes == Way::Up {
            pipe.note_passed(bytes.len(), &self.clock);
            if state.sent.as_mut().is_some_and(|sent| sent.read(bytes, now())) {
                pipe.unanswered.push(now());
            }
        }
        drop(state);
        let most = pipe.breaks_after.unwrap_or(bytes.len()).min(bytes.len());
        let arrives = pipe.last_arrival.max(now() + delay);
        pipe.last_arrival = arrives;
        // The reader waits for what comes first already.
        let is_first = pipe.on_the_way.is_empty();
        pipe.on_the_way.push_back(Chunk { arrives, bytes: bytes[..most].to_vec(), taken: 0 });
        if is_first {
            pipe.wake();
        }
        if let Some(left) = &mut pipe.breaks_after {
            *left -= most;
            if *left == 0 {
                self.link.break_now(&mut pipes);
            }
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Drop for End {
    /// Closed: what was written still arrives, perhaps late; what would be read is gone.
    fn drop(&mut self) {
        let late = self.link.lock().late;
        let mut pipes = lock(&self.connection);
        let written = &mut pipes[self.writes as usize];
        if !written.is_ended && self.writes == Way::Up {
            written.on_the_way.iter_mut().for_each(|chunk| chunk.arrives += late);
        }
        for way in [self.writes, self.reads] {
            pipes[way as usize].is_ended = true;
            pipes[way as usize].wake();
        }
        pipes[self.reads as usize].on_the_way.clear();
    }
}

fn lock(connection: &Connection) -> MutexGuard<'_, [Pipe; 2]> {
    connection.lock().unwrap_or_else(PoisonError::into_inner)
}
