//! What lies between clients and one instance of a cluster: streams of bytes that take time, get lost, and
//! come late over a connection that broke.
//!
//! No task runs here and nothing is sent anywhere: a byte has arrived when it is read after its time.

mod end;

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;
use std::time::Duration;

use self::end::End;
use crate::protocol::Instant;
use crate::testing::clock::RuntimeClock;

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
    clock: Arc<RuntimeClock>,
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
    pub(super) fn new(clock: Arc<RuntimeClock>) -> Self {
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
            End::new(network, connection, reads, writes)
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
