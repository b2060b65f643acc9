//! A slow link: passes on what comes, in order, after a delay that can be changed while it runs.

use std::time::Duration;

use rand::RngExt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::Outcome;

/// Holds the delay in milliseconds; each chunk takes half of it to one and a half.
pub(crate) const DELAY_FILE: &str = "/tmp/delay";

/// Serves until it is killed.
pub(crate) async fn serve(target: String) -> Outcome {
    let listener = TcpListener::bind(("0.0.0.0", 6379)).await?;
    loop {
        let (near, _) = listener.accept().await?;
        let target = target.clone();
        tokio::spawn(async move {
            // A client sees an instance that is away as it would without the proxy: its connection ends.
            let far = TcpStream::connect(target).await?;
            near.set_nodelay(true)?;
            far.set_nodelay(true)?;
            let (near_from, near_to) = near.into_split();
            let (far_from, far_to) = far.into_split();
            tokio::select! {
                ended = pass(near_from, far_to) => ended,
                ended = pass(far_from, near_to) => ended,
            }
        });
    }
}

async fn pass(
    mut from: impl AsyncRead + Unpin + Send + 'static,
    mut to: impl AsyncWrite + Unpin,
) -> std::io::Result<()> {
    let (queue, mut queued) = mpsc::channel::<(Instant, Vec<u8>)>(1024);
    let reader = tokio::spawn(async move {
        let mut chunk = vec![0; 16 * 1024];
        while let Ok(length @ 1..) = from.read(&mut chunk).await {
            let due = now() + delay().await;
            if queue.send((due, chunk[..length].to_vec())).await.is_err() {
                return;
            }
        }
    });
    while let Some((due, chunk)) = queued.recv().await {
        sleep_until(due).await;
        to.write_all(&chunk).await?;
    }
    reader.abort();
    Ok(())
}

async fn delay() -> Duration {
    let text = tokio::fs::read_to_string(DELAY_FILE).await.unwrap_or_default();
    match text.trim().parse::<u64>() {
        Ok(0) | Err(_) => Duration::ZERO,
        Ok(millis) => Duration::from_millis(rand::rng().random_range(millis / 2..=millis + millis / 2)),
    }
}

#[expect(clippy::disallowed_methods, reason = "a timer of the runtime, not a clock that decides")]
fn now() -> Instant {
    Instant::now()
}
