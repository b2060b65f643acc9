//! The signals that are meant for the command.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};

use nix::sys::signal::Signal;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

use super::terminal::stop_as_job;

/// All that a program can be sent by people, terminals and service managers.
const CAUGHT: &[Signal] = &[
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
    Signal::SIGTSTP,
];

/// Those that end a program which does not care.
const ENDING: &[Signal] = &[Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM];

/// Signals to this program.
#[derive(Debug)]
pub(super) struct Signals {
    streams: Vec<(Signal, Stream)>,
    children: Stream,
}

impl Signals {
    /// From now on they do not end or stop this program.
    pub(super) fn catch() -> io::Result<Self> {
        let ignored = ignored();
        let mut streams = Vec::new();
        // `nohup` is meant for the command, which inherits the ignored signals.
        for caught in CAUGHT.iter().filter(|caught| ignored >> (**caught as u32 - 1) & 1 == 0) {
            streams.push((*caught, signal(SignalKind::from_raw(*caught as i32))?));
        }
        Ok(Self { streams, children: signal(SignalKind::child())? })
    }

    async fn next(&mut self) -> Signal {
        poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Signal> {
        let ready = self
            .streams
            .iter_mut()
            .find_map(|(signal, stream)| stream.poll_recv(context).is_ready().then_some(*signal));
        ready.map_or(Poll::Pending, Poll::Ready)
    }

    /// The next one for the command; `None` if one about it came: it has ended, or was stopped.
    pub(super) async fn next_or_child(&mut self) -> Option<Signal> {
        poll_fn(|context| match self.children.poll_recv(context) {
            Poll::Ready(_) => Poll::Ready(None),
            Poll::Pending => self.poll_next(context).map(Some),
        })
        .await
    }

    /// The next that ends this program while there is no command.
    pub(super) async fn ending(&mut self) -> Signal {
        loop {
            match self.next().await {
                signal if ENDING.contains(&signal) => return signal,
                Signal::SIGTSTP => stop_as_job(),
                _ => {}
            }
        }
    }
}

/// The signals that this program was started to ignore, as a set of bits; none where the system does not show them.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0)
}
