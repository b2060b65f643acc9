//! One connection to a server.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;

use super::Server;
use super::commands::may_be_interrupted;
use super::resp::{Answer, Input, read};

/// What a server knows of a connection.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) number: u64,
    /// What is to be sent.
    out: Vec<u8>,
    wake: Arc<Notify>,
    pub(super) is_resp3: bool,
    pub(super) tracking: Option<Tracking>,
    /// What it is subscribed to.
    pub(super) channels: BTreeSet<Vec<u8>>,
    /// The judge's name for it, how much was read from it, and how much was sent over it before `out`.
    pub(super) tag: u64,
    pub(super) read: u64,
    pub(super) sent: u64,
}

/// CLIENT TRACKING ON.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tracking {
    /// Only the keys of the command after CLIENT CACHING YES.
    pub(super) opt_in: bool,
    /// It gets no pushes of its own changes.
    pub(super) no_loop: bool,
    /// CLIENT CACHING YES was the last command.
    pub(super) caching: bool,
}

impl Session {
    pub(super) fn new(number: u64, wake: Arc<Notify>, tag: u64) -> Self {
        let (channels, out) = (BTreeSet::new(), Vec::new());
        Self { number, out, wake, is_resp3: false, tracking: None, channels, tag, read: 0, sent: 0 }
    }

    /// How much waits to be sent.
    pub(super) const fn pending(&self) -> usize {
        self.out.len()
    }

    pub(super) fn answer(&mut self, answer: &Answer) {
        answer.write(&mut self.out, self.is_resp3);
    }

    /// Sends it what is no answer.
    pub(super) fn push(&mut self, parts: Vec<Answer>) {
        self.answer(&Answer::Push(parts));
        self.wake.notify_one();
    }

    /// Pushes which keys changed; without keys if it may be any.
    pub(super) fn invalidate(&mut self, keys: &Answer) {
        if self.tracking.is_some() {
            self.push(vec![Answer::bytes("invalidate"), keys.clone()]);
        }
    }

    /// Whether it gets pushes of what a connection changed.
    pub(super) fn hears_of_changes_by(&self, by: Option<u64>) -> bool {
        self.tracking.is_some_and(|tracking| by != Some(self.number) || !tracking.no_loop)
    }

    pub(super) fn wake(&self) {
        self.wake.notify_one();
    }
}

/// What a connection does next.
enum Next {
    Send(Vec<u8>),
    Read,
    StandStill,
    End,
}

impl Server {
    /// Serves a connection to its end; at once if there is no process.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub async fn serve(&self, stream: impl AsyncRead + AsyncWrite + Unpin) {
        self.serve_as(stream, 0).await;
    }

    /// The same, for a connection that is called this in the [`Step`](super::Step)s that are noted.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub async fn serve_as(&self, mut stream: impl AsyncRead + AsyncWrite + Unpin, tag: u64) {
        if !self.is_up() {
            return;
        }
        let (number, wake) = self.state().connect(tag);
        let served = self.serve_session(number, &wake, &mut stream).await;
        drop(served); // however it ended, it has
        self.state().sessions.remove(&number);
    }

    /// Carries out one command, as of a connection that ends with it; the answer as it is sent.
    #[must_use]
    pub fn answer(&self, words: &[&[u8]]) -> Vec<u8> {
        let mut state = self.state();
        let (number, _) = state.connect(0);
        state.carry_out(number, words, &self.0.clock);
        state.sessions.remove(&number).map(|session| session.out).unwrap_or_default()
    }

    async fn serve_session(
        &self,
        number: u64,
        wake: &Notify,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    ) -> io::Result<()> {
        let mut input = Vec::new();
        loop {
            match self.next(number) {
                Next::Send(bytes) => stream.write_all(&bytes).await?,
                Next::StandStill => wake.notified().await,
                Next::End => return Ok(()),
                Next::Read => tokio::select! {
                    biased;
                    () = wake.notified() => {}
                    count = stream.read_buf(&mut input) => {
                        if count? == 0 {
                            return Ok(());
                        }
                    }
                },
            }
            while self.take_in(number, &mut input)? {
                tokio::task::yield_now().await; // others may come in between
            }
        }
    }

    fn next(&self, number: u64) -> Next {
        let mut state = self.state();
        let is_hung = state.is_hung;
        match state.sessions.get_mut(&number) {
            None => Next::End,
            Some(_) if is_hung => Next::StandStill,
            Some(session) if session.out.is_empty() => Next::Read,
            Some(session) => {
                session.sent += session.out.len() as u64;
                Next::Send(std::mem::take(&mut session.out))
            }
        }
    }

    /// Carries out what has come in whole; whether there may be more, and others may come before.
    fn take_in(&self, number: u64, input: &mut Vec<u8>) -> io::Result<bool> {
        let (mut at, mut interrupted) = (0, false);
        loop {
            let mut state = self.state();
            // Between two commands it may have been stopped, or have stopped.
            if state.is_hung || !state.sessions.contains_key(&number) {
                break;
            }
            match read(input.get(at..).unwrap_or_default()) {
                Input::Command(words, size) => {
                    state.carry_out(number, &words, &self.0.clock);
                    if let Some(session) = state.sessions.get_mut(&number) {
                        session.read += size as u64;
                    }
                    interrupted = may_be_interrupted(&words);
                    at += size;
                    if interrupted {
                        break;
                    }
                }
                Input::Unfinished => break,
                Input::NoCommand => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
        input.drain(..at);
        Ok(interrupted)
    }
}
