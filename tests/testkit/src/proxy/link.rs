//! One connection through the proxy: two directions, each with a reader and a writer.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::{DirectionFaults, Faults};
use crate::clock::now;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// What a proxy's threads have in common.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) target: SocketAddr,
    stopped: AtomicBool,
    accepted: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    faults: Faults,
    links: Vec<Arc<Link>>,
}

#[derive(Debug)]
pub(super) struct Link {
    client: TcpStream,
    server: TcpStream,
    lost: AtomicBool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Requests,
    Replies,
}

/// Bytes and when they are due; no bytes for the end of the stream.
type Parcel = (Instant, Vec<u8>);

impl Shared {
    pub(super) fn new(target: SocketAddr) -> Self {
        let (stopped, accepted) = (AtomicBool::new(true), AtomicUsize::new(0));
        Self { target, stopped, accepted, state: Mutex::default() }
    }

    pub(super) fn accepted(&self) -> usize {
        self.accepted.load(SeqCst)
    }

    pub(super) fn open(&self) -> usize {
        self.with(|state| state.links.len())
    }

    pub(super) fn stop(&self) {
        self.stopped.store(true, SeqCst);
    }

    pub(super) fn go(&self) {
        self.stopped.store(false, SeqCst);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(SeqCst)
    }

    pub(super) fn set(&self, faults: Faults) {
        self.with(|state| {
            state.faults = faults;
            if !faults.requests.swallow && !faults.replies.swallow {
                // What comes next on these would not follow on what came before.
                state.links.iter().filter(|link| link.lost.load(SeqCst)).for_each(|link| link.close());
            }
        });
    }

    pub(super) fn close_all(&self) {
        self.with(|state| state.links.iter().for_each(|link| link.close()));
    }

    /// What to do with bytes, or with the end of the stream, that came on `link` just now.
    fn way(&self, link: &Link, direction: Direction) -> DirectionFaults {
        self.with(|state| {
            let way = match direction {
                Direction::Requests => state.faults.requests,
                Direction::Replies => state.faults.replies,
            };
            link.lost.fetch_or(way.swallow, SeqCst); // under the lock, so that `set` does not miss it
            way
        })
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Link {
    /// Serves `client` until both directions have ended.
    pub(super) fn run(shared: &Shared, client: TcpStream) {
        shared.accepted.fetch_add(1, SeqCst);
        // Errors just end it: the client sees a closed connection, as it would without a proxy.
        let Ok(server) = TcpStream::connect_timeout(&shared.target, CONNECT_TIMEOUT) else { return };
        let link = Arc::new(Self { client, server, lost: AtomicBool::new(false) });
        shared.with(|state| state.links.push(Arc::clone(&link)));
        if !shared.is_stopped() {
            drop(link.serve(shared));
        }
        link.close();
        shared.with(|state| state.links.retain(|other| !Arc::ptr_eq(other, &link)));
    }

    fn serve(&self, shared: &Shared) -> io::Result<()> {
        let (client, server) = (self.client.try_clone()?, self.server.try_clone()?);
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        thread::scope(|scope| {
            let (requests, due_requests) = channel();
            let (replies, due_replies) = channel();
            scope.spawn(|| deliver(due_requests, server));
            scope.spawn(|| deliver(due_replies, client));
            scope.spawn(|| self.read(shared, Direction::Requests, requests));
            self.read(shared, Direction::Replies, replies);
        });
        Ok(())
    }

    fn read(&self, shared: &Shared, direction: Direction, parcels: Sender<Parcel>) {
        let mut from = match direction {
            Direction::Requests => &self.client,
            Direction::Replies => &self.server,
        };
        let mut buffer = vec![0; 16 * 1024];
        loop {
            let length = from.read(&mut buffer).unwrap_or(0);
            let way = shared.way(self, direction);
            // A silent server stays silent when it ends; but a client that has gone needs no silence.
            let swallow = way.swallow && (length > 0 || direction == Direction::Replies);
            if !swallow && parcels.send((now() + way.delay, buffer[..length].to_vec())).is_err() {
                return;
            }
            if length == 0 {
                return;
            }
        }
    }

    fn close(&self) {
        // Closed already is as good.
        drop(self.client.shutdown(Shutdown::Both));
        drop(self.server.shutdown(Shutdown::Both));
    }
}

fn deliver(parcels: Receiver<Parcel>, mut to: TcpStream) {
    for (due, bytes) in parcels {
        thread::sleep(due.saturating_duration_since(now()));
        if bytes.is_empty() || to.write_all(&bytes).is_err() {
            drop(to.shutdown(Shutdown::Write));
            return;
        }
    }
}
