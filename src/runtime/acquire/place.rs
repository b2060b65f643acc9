//! A place in the line for a lock, of an acquire that waits (P24).

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::asker::{carry_out, start_asker};
use super::failure::AcquireFailure;
use super::line::{Line, PlaceNumber, Turn};
use super::params::AcquireParams;
use super::share::share_now;
use crate::random;
use crate::runtime::held_lease::Tenure;
use crate::runtime::shared::Shared;

/// A place in a line. Dropped at any time it leaves nothing behind: what it was offered goes to the next.
struct Place {
    shared: Arc<Shared>,
    line: Arc<Line>,
    number: PlaceNumber,
    has_left: bool,
}

/// Waits in line for a lease, at most `limit`.
pub(super) async fn wait_in_line(
    shared: &Arc<Shared>,
    params: &Arc<AcquireParams>,
    limit: Option<Duration>,
) -> Result<Tenure, AcquireFailure> {
    let begun = shared.clock.now();
    let waited = || shared.clock.now().saturating_since(begun);
    let deadline_passed = |last| AcquireFailure::DeadlinePassed { waited: waited(), last: Box::new(last) };
    let mut place = Place::join(shared, params)?;
    let (mut is_over, mut failures) = (false, 0);
    loop {
        let turn = match limit.map(|limit| limit.saturating_sub(waited())) {
            _ if is_over => match timeout(shared.instance_timeout, place.turn(true)).await {
                Ok(turn) => turn,
                Err(_) if place.line.is_asked() => continue, // which ends by itself
                Err(_) => return Err(deadline_passed(AcquireFailure::QueueTimeout)),
            },
            None => place.turn(false).await,
            // Timers only wake, the clock decides (P3).
            Some(left) => match timeout(left, place.turn(false)).await {
                Ok(turn) => turn,
                Err(_) => {
                    is_over = limit.is_some_and(|limit| waited() >= limit);
                    continue;
                }
            },
        };
        return match turn {
            Turn::Lease(tenure) => Ok(tenure),
            Turn::Shared => match share_now(shared, params).await {
                Ok(Some(tenure)) => Ok(tenure),
                Ok(None) => continue, // it was let go in this moment
                Err(failure) if failure.may_pass() && !is_over => {
                    // Its holder has it, and it cannot be extended now.
                    let pause = shared.retry.after(failures, random::spread());
                    sleep(limit.map_or(pause, |limit| pause.min(limit.saturating_sub(waited())))).await;
                    failures = failures.saturating_add(1);
                    is_over = limit.is_some_and(|limit| waited() >= limit);
                    continue;
                }
                Err(failure) if failure.may_pass() => Err(deadline_passed(failure)),
                Err(failure) => Err(failure),
            },
            Turn::Failed(failure) => Err(failure),
            // An ask is waited for, so that a short wait still learns who is in the way; not for long if its turn does not
            // come, where very many ask.
            Turn::InTheWay(last) => Err(deadline_passed(last)),
        };
    }
}

impl Place {
    fn join(shared: &Arc<Shared>, params: &Arc<AcquireParams>) -> Result<Self, AcquireFailure> {
        if shared.is_forked() {
            return Err(AcquireFailure::Forked);
        }
        if shared.attempts.is_closed() {
            return Err(AcquireFailure::ShutDown);
        }
        let (line, joined) = shared.lines.join(params);
        let place = Self { shared: Arc::clone(shared), line, number: joined.number, has_left: false };
        if let Some(start) = joined.start {
            start_asker(shared, &place.line, start);
        }
        Ok(place)
    }

    /// What the place comes to; `past_deadline` if it only wants to know by now.
    async fn turn(&mut self, past_deadline: bool) -> Turn {
        poll_fn(|cx| self.poll(cx, past_deadline)).await
    }

    fn poll(&mut self, cx: &Context<'_>, past_deadline: bool) -> Poll<Turn> {
        let clock = &*self.shared.clock;
        let (mut turn, after) = self.line.poll(self.number, (cx.waker(), past_deadline), clock);
        carry_out(&self.shared, &self.line, after);
        if let Poll::Ready(Turn::Lease(tenure)) = &turn {
            self.has_left = true;
            if self.shared.attempts.is_closed() || !self.shared.keep_alive.adopt(tenure.held()) {
                self.shared.let_go(tenure.held(), Some(tenure.guard()));
                turn = Poll::Ready(Turn::Failed(AcquireFailure::ShutDown));
            }
        }
        turn
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.has_left {
            carry_out(&self.shared, &self.line, self.line.leave(self.number));
        }
    }
}
