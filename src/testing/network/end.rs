//! One end of a connection: what a client, or an instance, reads from and writes to.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::{Connection, Network, Way};
use crate::clock::Clock;
use crate::protocol::Instant;

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
    pub(super) const fn new(network: Arc<Network>, connection: Arc<Connection>, reads: Way, writes: Way) -> Self {
        Self { network, connection, reads, writes, timer: None }
    }

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
            let is_told = self.writes == Way::Up;
            return Poll::Ready(if is_told { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(bytes.len()) });
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
