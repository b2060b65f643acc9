//! Has an instance forget old fencing tokens, a few at a time (P13).

use std::time::Duration;

use redis::FromRedisValue;
use tokio::time::{sleep, timeout};

use super::admission::peers::PeerConnections;
use super::connection::InstanceConnection;
use super::scripts;
use crate::random;

/// Tokens are kept for so many times the longest ttl, and for a minute at least: for as long as requests of a lease may be late. The order of
/// tokens does not depend on it.
const RETENTION_TTLS: u32 = 4;
const LEAST_RETENTION: Duration = Duration::from_secs(60);

/// How many one call removes at most: `forget_tokens.lua`.
const OF_A_CALL: u64 = 256;

/// How many calls there are at once, at most: where a call takes 10 ms, one at a time removes 21 000 a second, fewer than one client
/// may lock.
const MOST_CALLS: u64 = 4;

/// The pause before the next few of those that are known to be left, and about that after all: the part of the time for which they are kept.
const SHORT_PAUSE: Duration = Duration::from_millis(2);
const PARTS: u32 = 16;

/// Has the instance forget what is old, for as long as the connection lasts. It begins at once, for the clients that never stay for long.
/// Many clients share the work: whichever comes first finds something, the others look in vain.
pub(super) async fn keep_forgetting_tokens(connection: &InstanceConnection, peers: &PeerConnections) {
    let mut pace = Pace { left: 0, calls: 1 };
    loop {
        let retention = retention(connection);
        let short = match forget_some(connection, peers, retention, pace.calls).await {
            Some(left) => pace.pause(left),
            None => (pace.left > 0).then(|| connection.deadline()), // it has much to do
        };
        // At another time than other clients.
        let pause = retention / PARTS;
        let spread = pause.mul_f64(f64::from(random::spread()) / f64::from(u32::MAX));
        sleep(short.map_or(pause + spread, |short| short.min(pause))).await;
    }
}

/// How fast a client has an instance forget: as fast as tokens get old, and, as long as they get fewer, no faster with many clients
/// than with one.
struct Pace {
    /// How many were left when it last answered.
    left: u64,
    calls: u64,
}

impl Pace {
    /// The pause after calls that have left so many; `None` if that is none.
    fn pause(&mut self, left: u64) -> Option<Duration> {
        let before = std::mem::replace(&mut self.left, left);
        if left == 0 {
            self.calls = 1;
            return None;
        }
        if before > 0 && left > before {
            self.calls = MOST_CALLS.min(2 * self.calls);
        }
        // As many clients as have removed some since, each with such a pause, remove together what one does.
        let clients = before.saturating_sub(left).div_ceil(self.calls * OF_A_CALL).max(1);
        Some(SHORT_PAUSE.saturating_mul(u32::try_from(clients).unwrap_or(u32::MAX)))
    }
}

/// For how long tokens are kept: by the longest ttl of any client, as far as it is known.
fn retention(connection: &InstanceConnection) -> Duration {
    let recorded = connection.admission.as_ref().map_or(0, |admission| admission.state().record().longest_ttl_ms);
    let longest = Duration::from_millis(recorded).max(connection.options.client.quarantine);
    (longest * RETENTION_TTLS).max(LEAST_RETENTION)
}

/// How many old ones are left; `None` without an answer. Without the right only old tokens stay.
async fn forget_some(
    connection: &InstanceConnection,
    peers: &PeerConnections,
    retention: Duration,
    calls: u64,
) -> Option<u64> {
    let command = scripts::forget_tokens(peers.proposing_us(None).unwrap_or_else(|| peers.own_us()), retention);
    let calls: Vec<_> = (0..calls).map(|_| connection.conn.ask(&command).without_error()).collect();
    let mut left = 0;
    for call in calls {
        let answer = timeout(connection.deadline(), call).await.ok()?;
        let counts = answer.ok().and_then(|counts| <(u64, u64, u64)>::from_redis_value(counts).ok());
        let Some((tokens, old, lag_ms)) = counts else { return Some(0) };
        connection.options.standing.lock().tokens = Some((tokens, Duration::from_millis(lag_ms)));
        left = old;
    }
    Some(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of so many clients, after many calls of each, and how many old tokens are left of those at first if so many are added a second.
    fn after_ten_seconds(clients: usize, first: u64, added: u64) -> u64 {
        let mut paces: Vec<_> = (0..clients).map(|_| (Pace { left: 0, calls: 1 }, Duration::ZERO)).collect();
        let (mut left, mut now, mut owed) = (first, Duration::ZERO, 0);
        while let Some((pace, at)) = paces.iter_mut().min_by_key(|(_, at)| *at).filter(|(_, at)| at.as_secs() < 10) {
            owed += added * u64::try_from((*at - now).as_micros()).unwrap_or(u64::MAX);
            left = (left + owed / 1_000_000).saturating_sub(pace.calls * OF_A_CALL);
            (now, owed) = (*at, owed % 1_000_000);
            *at += Duration::from_millis(1) + pace.pause(left).unwrap_or(Duration::from_secs(5)); // a call takes one
        }
        left
    }

    #[test]
    fn old_tokens_get_fewer_though_many_more_get_old_than_one_call_removes() {
        for clients in [1, 10] {
            assert!(after_ten_seconds(clients, 100_000, 10_000) < 60_000, "{clients}");
            assert!(after_ten_seconds(clients, 100_000, 250_000) < 2_000_000, "{clients}");
        }
    }

    #[test]
    fn many_clients_remove_no_more_than_one_needs_to() {
        let removed = |clients| 10_000_000 - after_ten_seconds(clients, 10_000_000, 0);
        let (one, many) = (removed(1), removed(100));
        assert!((one / 2..2 * one).contains(&many), "{one} {many}");
    }
}
