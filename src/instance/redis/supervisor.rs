//! The task that keeps one connection up: connect, admit, serve until it breaks or falls silent,
//! again.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::watch;
use tokio::time::sleep;

use super::admission::follow_up;
use super::admission::shared::Guarded;
use super::classify::clip;
use super::connect::{ADMISSION_TRIPS, NotConnected, connect, step};
use super::connection::{Link, heartbeat};
use super::health::Known;
use super::log_limit::{Changes, Seldom};
use super::options::Dial;
use super::pushes::Pushes;
use super::send_queue::closed;
use crate::protocol::{Cause, InstanceId, Instant, reconnect_delay};
use crate::random;

/// The first pause before connecting again, and the longest.
const RECONNECT_LEAST: Duration = Duration::from_millis(20);
const RECONNECT_MOST: Duration = Duration::from_secs(1);

/// A connection that follows on one that broke sooner than this is not called one until it has stood
/// for so long.
const STEADY: Duration = Duration::from_secs(1);

/// Whether requests can be sent.
#[derive(Clone, Debug)]
pub(crate) enum Reach {
    /// Not now, and why.
    Down(Cause),
    /// Over this connection.
    Up(Arc<Link>),
}

/// One instance, as its task sees it.
struct Keeping {
    dial: Dial,
    announced: Announced,
    known: Arc<Known>,
    changes: Changes,
    remedies: Seldom,
    /// Since when the present connection stands.
    up_since: Option<Instant>,
    /// Whether the last connection broke soon.
    flaps: bool,
}

/// Where the state of the connection is told. However its task ends (by a panic, or with the
/// runtime), nobody is left to believe that there is one.
struct Announced(watch::Sender<Reach>);

impl Drop for Announced {
    fn drop(&mut self) {
        let cause = "the task of its connection has ended, with the client or its runtime".to_owned();
        if let Reach::Up(link) = self.0.send_replace(Reach::Down(Cause::NotConnected(cause))) {
            link.close();
        }
    }
}

/// Keeps a connection up and tells of its state until nobody wants to know any more.
pub(super) async fn keep_up(dial: Dial, reach: watch::Sender<Reach>, known: Arc<Known>) {
    let (changes, remedies) = (Changes::default(), Seldom::default());
    let announced = Announced(reach);
    let mut keeping = Keeping { dial, announced, known, changes, remedies, up_since: None, flaps: false };
    let mut attempt = 0;
    let mut pause = Duration::ZERO;
    while !keeping.announced.0.is_closed() {
        // What the crates below panic at is a cause like any other.
        let ended = AssertUnwindSafe(keeping.connect_and_serve()).catch_unwind().await;
        let stood = keeping.end(ended.unwrap_or_else(|panic| NotConnected::Failed(panicked(&*panic))));
        // Otherwise an instance that takes connections and drops them is connected to all the time.
        if stood > pause {
            attempt = 0;
        }
        pause = reconnect_delay(attempt, RECONNECT_LEAST, RECONNECT_MOST, random::spread());
        sleep(pause).await;
        attempt = attempt.saturating_add(1);
    }
}

fn panicked(panic: &(dyn Any + Send)) -> Cause {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    Cause::NotConnected(clip(&format!("a panic: {}", text.unwrap_or("without words"))))
}

impl Keeping {
    /// Gives the reason for which it ended.
    async fn connect_and_serve(&mut self) -> NotConnected {
        match connect(&self.dial, &self.known).await {
            Ok((link, pushes)) => NotConnected::Failed(self.serve(link, &pushes).await),
            Err(reason) => reason,
        }
    }

    /// Takes in that there is no connection, or not any more; gives how long it stood.
    fn end(&mut self, reason: NotConnected) -> Duration {
        let was_late = matches!(reason, NotConnected::Late(_));
        let cause = reason.cause();
        let now = self.dial.clock.now();
        self.announced.0.send_if_modified(|reach| {
            // A silent instance that does not answer a probe either is still best called silent.
            let is_still_silent = was_late && matches!(reach, Reach::Down(Cause::Silent));
            if !is_still_silent {
                *reach = Reach::Down(cause.clone());
            }
            !is_still_silent
        });
        self.changes.down(self.dial.address.shown(), &cause, now);
        self.dial.roster.leave(self.dial.index);
        self.known.get().last_error = Some(cause.to_string());
        let stood = self.up_since.take().map(|since| now.saturating_since(since));
        self.flaps = stood.is_some_and(|stood| stood < STEADY);
        stood.unwrap_or_default()
    }

    /// Offers the connection until it is to be given up; gives the reason.
    async fn serve(&mut self, link: Link, pushes: &Pushes) -> Cause {
        let link = Arc::new(link);
        let dial = &self.dial;
        self.up_since = Some(dial.clock.now());
        self.announced.0.send_replace(Reach::Up(Arc::clone(&link)));
        dial.peers.enter(dial.index, &link);
        let instance = InstanceId::new(dial.index);
        let mut passing = pin!(pushes.pass_on(&link, instance, &dial.hints));
        let mut beats = pin!(beat_on(&link, heartbeat(dial.max_ttl), &self.known));
        let mut steady = pin!(sleep(if self.flaps { STEADY } else { Duration::ZERO }));
        let mut is_steady = false;
        let cause = loop {
            tokio::select! {
                biased; // what never holds up the others comes first
                cause = link.given_up() => break cause,
                () = self.announced.0.closed() => break closed(),
                () = &mut passing => {}
                () = &mut beats => {}
                () = &mut steady, if !is_steady => {
                    is_steady = true;
                    self.changes.up(dial.address.shown());
                }
                guarded = asked(&link) => {
                    let remedy = follow_up::take(&link, guarded, &dial.peers).await;
                    let carry_out = follow_up::carry_out(&link, guarded, remedy);
                    match step(dial, "renewing admission", ADMISSION_TRIPS, carry_out).await {
                        Ok(None) => {}
                        Ok(Some((remedy, about))) => {
                            self.known.get().about = Some(about);
                            if let Some(times) = self.remedies.note(dial.clock.now()) {
                                tracing::warn!(instance = dial.address.shown(), ?remedy, times, "admission was renewed");
                            }
                        }
                        Err(reason) => break reason.cause(),
                    }
                    self.announced.0.send_modify(|_| {}); // whoever waits for the record looks again
                }
            }
        };
        self.announced.0.send_replace(Reach::Down(cause.clone()));
        link.close();
        dial.peers.leave(dial.index);
        let ahead = dial.peers.own_clock_ahead();
        link.guarded().into_iter().for_each(|guarded| guarded.leave(ahead));
        cause
    }
}

async fn asked(link: &Link) -> &Guarded {
    match link.guarded() {
        Some(guarded) => {
            guarded.asked().await;
            guarded
        }
        None => std::future::pending().await,
    }
}

async fn beat_on(link: &Link, pause: Duration, known: &Known) {
    loop {
        let round_trip = link.beat().await;
        if round_trip.is_some() {
            known.get().round_trip = round_trip;
        }
        sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::sync::mpsc;
    use tokio::time::timeout;

    use super::*;
    use crate::clock::{Clock, CorrectedClock, SystemClock};
    use crate::instance::redis::address::Address;
    use crate::instance::redis::admission::peers::Peers;
    use crate::instance::redis::timer_wakeups::Pacer;

    /// Panics at the first reading.
    #[derive(Debug, Default)]
    struct Broken(AtomicBool);

    impl Clock for Broken {
        fn now(&self) -> Instant {
            assert!(self.0.swap(true, Ordering::Relaxed), "broken clock");
            SystemClock.now()
        }
    }

    /// Gives every command the same answer.
    async fn answering(listener: TcpListener) {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut buffer = [0; 65536];
                while let Ok(size @ 1..) = stream.read(&mut buffer).await {
                    let commands = buffer[..size].iter().filter(|byte| **byte == b'*').count();
                    stream.write_all("%0\r\n".repeat(commands).as_bytes()).await.unwrap();
                }
            });
        }
    }

    async fn dial() -> Dial {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = Address::parse(&format!("redis://{}", listener.local_addr().unwrap())).unwrap();
        tokio::spawn(answering(listener));
        let instance_timeout = Duration::from_secs(5);
        let clock = Arc::new(CorrectedClock::new(Arc::new(SystemClock)));
        Dial {
            index: 0,
            address,
            instance_timeout,
            max_ttl: instance_timeout,
            drift_ppm: 0,
            clock: Arc::new(Broken::default()),
            roster: Arc::default(),
            peers: Arc::new(Peers::new(clock, 1, instance_timeout, instance_timeout)),
            pacer: Arc::new(Pacer::start(instance_timeout)),
            admission: false,
            hints: mpsc::channel(1).0,
        }
    }

    #[tokio::test]
    async fn a_panic_is_told_and_the_connection_is_made_again() {
        let (reach, mut told) = watch::channel(Reach::Down(closed()));
        let task = tokio::spawn(keep_up(dial().await, reach, Arc::default()));
        let panicked = |reach: &Reach| format!("{reach:?}").contains("broken clock");
        timeout(Duration::from_secs(5), told.wait_for(panicked)).await.unwrap().unwrap();
        let is_up = |reach: &Reach| matches!(reach, Reach::Up(_));
        timeout(Duration::from_secs(5), told.wait_for(is_up)).await.unwrap().unwrap();
        task.abort();
        let is_down = |reach: &Reach| matches!(reach, Reach::Down(_));
        timeout(Duration::from_secs(5), told.wait_for(is_down)).await.unwrap().unwrap();
    }
}
