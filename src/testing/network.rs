//! What lies between clients and one instance of a cluster: streams of bytes that take time, get lost, and
//! come late over a connection that broke.
//!
//! No task runs here and nothing is sent anywhere: a byte has arrived when it is read after its time.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::clock::Clock;
use crate::protocol::Instant;
use crate::testing::simulation::MachineClock;

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// From clients to the instance.
    Up,
    /// Back.
    Down,
}

/// Everything between the clients and one instance.
#[derive(Debug)]
pub(super) struct Network {
    clock: Arc<MachineClock>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// How long bytes take upwards and downwards.
    delays: [Duration; 2],
    /// The way on which everything gets lost.
    loses: Option<Way>,
    /// Whether new connections are refused.
    is_cut_off: bool,
    connections: Vec<Weak<Connection>>,
}

/// The two directions of a connection.
#[derive(Debug, Default)]
struct Connection([Mutex<Pipe>; 2]);

#[derive(Debug, Default)]
struct Pipe {
    on_the_way: VecDeque<(Instant, Vec<u8>)>,
    last_arrival: Instant,
    /// Nothing more comes after what is on its way.
    is_ended: bool,
    /// A read ends with an error, and not with an end.
    is_reset: bool,
    /// What is missing makes no sense of the rest.
    lost_some: bool,
    reader: Option<Waker>,
}

impl Network {
    pub(super) fn new(clock: Arc<MachineClock>) -> Self {
        Self { clock, state: Mutex::default() }
    }

    /// Both ends of a new connection: the client's, and the instance's.
    ///
    /// # Errors
    /// No connection is accepted.
    pub(super) fn connect(self: &Arc<Self>) -> io::Result<(End, End)> {
        let connection = Arc::<Connection>::default();
        let mut state = self.state();
        if state.is_cut_off {
            return Err(io::ErrorKind::NetworkUnreachable.into());
        }
        state.connections.retain(|known| known.strong_count() > 0);
        state.connections.push(Arc::downgrade(&connection));
        let end = |reads, writes| {
            let (network, connection) = (Arc::clone(self), Arc::clone(&connection));
            End { network, connection, reads, writes, timer: None }
        };
        Ok((end(Way::Down, Way::Up), end(Way::Up, Way::Down)))
    }

    /// From now on bytes take so long upwards and downwards. Their order is kept.
    pub(super) fn slow_down(&self, up: Duration, down: Duration) {
        self.state().delays = [up, down];
    }

    /// Everything on this way gets lost.
    pub(super) fn lose(&self, way: Way) {
        self.state().loses = Some(way);
    }

    /// Breaks all connections, and refuses new ones.
    pub(super) fn cut_off(&self) {
        let mut state = self.state();
        state.is_cut_off = true;
        state.connections().for_each(|connection| connection.break_off(Duration::ZERO));
    }

    /// Nothing gets lost or takes time any more. Connections over which something got lost break.
    pub(super) fn heal(&self) {
        let mut state = self.state();
        (state.loses, state.delays, state.is_cut_off) = (None, [Duration::ZERO; 2], false);
        for connection in state.connections() {
            if connection.pipes().any(|pipe| pipe.lost_some) {
                connection.break_off(Duration::ZERO);
            }
        }
    }

    /// Breaks all connections. What is on its way upwards still arrives, and late.
    pub(super) fn break_connections(&self, late: Duration) {
        self.state().connections().for_each(|connection| connection.break_off(late));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn connections(&self) -> impl Iterator<Item = Arc<Connection>> {
        self.connections.iter().filter_map(Weak::upgrade)
    }
}

impl Connection {
    fn pipe(&self, way: Way) -> MutexGuard<'_, Pipe> {
        let [up, down] = &self.0;
        let pipe = if way == Way::Up { up } else { down };
        pipe.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pipes(&self) -> impl Iterator<Item = MutexGuard<'_, Pipe>> {
        [Way::Up, Way::Down].into_iter().map(|way| self.pipe(way))
    }

    fn break_off(&self, late: Duration) {
        let mut down = self.pipe(Way::Down);
        down.on_the_way.clear();
        down.is_reset = true;
        drop(down);
        self.end(late);
    }

    /// Nothing more is sent, and what is on its way upwards takes so much longer.
    fn end(&self, late: Duration) {
        for mut pipe in self.pipes() {
            pipe.is_ended = true;
            pipe.wake();
        }
        let mut up = self.pipe(Way::Up);
        up.on_the_way.iter_mut().for_each(|(arrives, _)| *arrives = arrives.saturating_add(late));
    }
}

impl Pipe {
    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

/// One end of a connection. Dropped, it is closed: what was written still arrives.
#[derive(Debug)]
pub(crate) struct End {
    network: Arc<Network>,
    connection: Arc<Connection>,
    reads: Way,
    writes: Way,
    timer: Option<Pin<Box<Sleep>>>,
}

impl End {
    /// Ready when this instant has come.
    fn wait_until(&mut self, instant: Instant, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let left = instant.saturating_since(self.network.clock.now());
            if left.is_zero() {
                self.timer = None;
                return Poll::Ready(());
            }
            // A timer of before may be for an earlier instant, and is then followed by another.
            ready!(self.timer.get_or_insert_with(|| Box::pin(sleep(left))).as_mut().poll(cx));
            self.timer = None;
        }
    }
}

impl AsyncRead for End {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let arrives = {
                let mut pipe = self.connection.pipe(self.reads);
                if pipe.is_reset {
                    return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
                }
                pipe.reader = Some(cx.waker().clone());
                match pipe.on_the_way.front() {
                    Some((arrives, _)) => *arrives,
                    None if pipe.is_ended => return Poll::Ready(Ok(())),
                    None => return Poll::Pending,
                }
            };
            ready!(self.wait_until(arrives, cx));
            let mut pipe = self.connection.pipe(self.reads);
            let Some((_, bytes)) = pipe.on_the_way.front_mut() else { continue };
            let count = bytes.len().min(buf.remaining());
            buf.put_slice(&bytes[..count]);
            bytes.drain(..count);
            if bytes.is_empty() {
                pipe.on_the_way.pop_front();
            }
            return Poll::Ready(Ok(()));
        }
    }
}

impl AsyncWrite for End {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let (delay, is_lost) = {
            let state = self.network.state();
            (state.delays[self.writes as usize], state.loses == Some(self.writes))
        };
        let now = self.network.clock.now();
        let mut pipe = self.connection.pipe(self.writes);
        if pipe.is_ended {
            // An instance learns late that its answers are not read: what came before is carried out.
            let is_reported = self.writes == Way::Up;
            return Poll::Ready(if is_reported { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(bytes.len()) });
        }
        if is_lost {
            pipe.lost_some = true;
        } else {
            pipe.last_arrival = pipe.last_arrival.max(now.saturating_add(delay));
            let arrives = pipe.last_arrival;
            pipe.on_the_way.push_back((arrives, bytes.to_vec()));
            pipe.wake();
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
    fn drop(&mut self) {
        self.connection.end(Duration::ZERO);
    }
}
