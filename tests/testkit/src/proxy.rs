//! A TCP proxy that delays, loses or cuts what passes between a client and a server.

mod link;

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::{Error, Server, ports};
use link::{Link, Shared};

/// What happens to the bytes of one direction.
#[derive(Clone, Copy, Debug, Default)]
struct DirectionFaults {
    delay: Duration,
    swallow: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    requests: DirectionFaults,
    replies: DirectionFaults,
}

/// Listens on a loopback port of its own and passes on to a server, with faults. Ends when dropped.
///
/// Every change acts on connections that are open and on those to come, and replaces the one before:
/// `delay` after `black_hole` passes everything on, late.
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    listening: Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "proxy on port {} to {}", self.port, self.shared.target)
    }
}

impl Proxy {
    /// A proxy before `server`, passing everything on.
    ///
    /// # Errors
    /// When no port can be had.
    pub fn start(server: &Server) -> Result<Self, Error> {
        let target = SocketAddr::from((Ipv4Addr::LOCALHOST, server.port()));
        let mut tries = 0;
        loop {
            let port = ports::free_port()?;
            let proxy = Self { port, shared: Arc::new(Shared::new(target)), listening: Mutex::new(None) };
            match proxy.forward() {
                Ok(()) => return Ok(proxy),
                Err(_) if tries < 10 => tries += 1, // another process was faster
                Err(error) => return Err(error),
            }
        }
    }

    /// Its own port on 127.0.0.1, the same after a cut.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The address to give to a client.
    #[must_use]
    pub fn address(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// How many connections it has accepted so far.
    #[must_use]
    pub fn accepted(&self) -> usize {
        self.shared.accepted()
    }

    /// How many of them are open.
    #[must_use]
    pub fn open(&self) -> usize {
        self.shared.open()
    }

    /// Passes everything on at once. Connections of which bytes were swallowed are closed.
    ///
    /// # Errors
    /// When it was cut and its port is now taken.
    pub fn forward(&self) -> Result<(), Error> {
        self.set(Faults::default())
    }

    /// Passes requests on after the one pause and replies after the other, in order; their number
    /// per second stays as it is.
    ///
    /// # Errors
    /// When it was cut and its port is now taken.
    pub fn delay(&self, requests: Duration, replies: Duration) -> Result<(), Error> {
        let late = |delay| DirectionFaults { delay, swallow: false };
        self.set(Faults { requests: late(requests), replies: late(replies) })
    }

    /// Accepts connections and swallows what comes from either side, the end of a connection to the
    /// server included. For a new connection the server must run, or hang.
    ///
    /// # Errors
    /// When it was cut and its port is now taken.
    pub fn black_hole(&self) -> Result<(), Error> {
        let hole = DirectionFaults { swallow: true, ..DirectionFaults::default() };
        self.set(Faults { requests: hole, replies: hole })
    }

    /// Passes requests on and swallows the replies: the server acts, and its client never knows.
    ///
    /// # Errors
    /// When it was cut and its port is now taken.
    pub fn lose_replies(&self) -> Result<(), Error> {
        self.set(Faults {
            replies: DirectionFaults { swallow: true, ..DirectionFaults::default() },
            ..Faults::default()
        })
    }

    /// Closes all connections and refuses new ones, until another method is called.
    pub fn cut(&self) {
        if let Some(thread) = self.slot().take() {
            self.shared.stop();
            // Wakes it from `accept`. Should that fail, the next connection would end it.
            if TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok() {
                drop(thread.join());
            }
        }
        self.shared.close_all();
    }

    fn set(&self, faults: Faults) -> Result<(), Error> {
        self.shared.set(faults);
        let mut slot = self.slot();
        if slot.is_none() {
            let address = (Ipv4Addr::LOCALHOST, self.port);
            let listener = TcpListener::bind(address).map_err(Error::io(format!("listen on port {}", self.port)))?;
            self.shared.go();
            let shared = Arc::clone(&self.shared);
            *slot = Some(thread::spawn(move || accept(&listener, &shared)));
        }
        Ok(())
    }

    fn slot(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.listening.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for client in listener.incoming() {
        if shared.is_stopped() {
            return;
        }
        if let Ok(client) = client {
            let shared = Arc::clone(shared);
            thread::spawn(move || Link::run(&shared, client));
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.cut();
    }
}
