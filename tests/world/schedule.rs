//! What callers do to a future: poll it, drop it, leave it unpolled for a while, or hand it to another
//! caller.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::rng::Rng;

pub(crate) type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// How a future is polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Schedule {
    /// To its end.
    Steadily,
    /// So many times, or for so long, and then it is dropped.
    Dropped(u64, Duration),
    /// So many times; then not for so long; then to its end.
    Unpolled(u64, Duration),
    /// So many times; then by another task.
    Elsewhere(u64),
}

impl Schedule {
    /// `around` is about how long the future takes.
    pub(crate) fn draw(rng: &mut Rng, around: Duration) -> Self {
        let ms = u64::try_from(around.as_millis()).unwrap_or(1_000);
        let time = Duration::from_millis(rng.below(2 * ms + 1));
        let polls = rng.pick(&[0, 1, 1, 2, 3, 5]);
        match rng.below(100) {
            0..12 => Self::Dropped(polls, time),
            12..22 => Self::Unpolled(polls, time),
            22..28 => Self::Elsewhere(polls),
            _ => Self::Steadily,
        }
    }

    /// The future's result, if it gets to one.
    pub(crate) async fn carry_out<T: Send + 'static>(self, mut future: Boxed<T>) -> Option<T> {
        match self {
            Self::Steadily => Some(future.await),
            Self::Dropped(polls, time) => {
                let some = some_polls(&mut future, polls + 1);
                match timeout(time, some).await {
                    Ok(Some(result)) => Some(result),
                    Ok(None) | Err(_) => None,
                }
            }
            Self::Unpolled(polls, time) => {
                if let Ok(Some(result)) = timeout(time, some_polls(&mut future, polls)).await {
                    return Some(result);
                }
                sleep(time).await;
                Some(future.await)
            }
            Self::Elsewhere(polls) => {
                let brief = Duration::from_millis(1);
                if let Ok(Some(result)) = timeout(brief, some_polls(&mut future, polls)).await {
                    return Some(result);
                }
                tokio::spawn(future).await.ok()
            }
        }
    }
}

/// Polls a future so many times as it is woken; its result if that is enough.
async fn some_polls<T>(future: &mut Boxed<T>, polls: u64) -> Option<T> {
    let mut left = polls;
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        future.as_mut().poll(cx).map(Some)
    })
    .await
}
