//! Free loopback ports.

use std::net::{Ipv4Addr, TcpListener};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::Error;

/// Below the range from which Linux (32768..) and macOS (49152..) take the ports of outgoing
/// connections. A port from that range would do harm while its server is down: any connection could
/// take it, and a client that keeps dialling it would in the end reach *itself*, as TCP lets a
/// socket connect to its own port.
const FIRST: u32 = 15_000;
const COUNT: u32 = 17_000;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A port that was free a moment ago and that this process has not handed out before.
///
/// Another process may take it first: its user must be ready to ask again.
pub(crate) fn free_port() -> Result<u16, Error> {
    let own = process::id().wrapping_mul(7919); // processes that run side by side begin far apart
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = FIRST + own.wrapping_add(step) % COUNT;
        let Ok(port) = u16::try_from(port) else { continue };
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    Err(Error::Io {
        doing: format!("find a free port from {FIRST} to {} on 127.0.0.1", FIRST + COUNT - 1),
        source: std::io::ErrorKind::AddrInUse.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_handed_out_twice_in_a_row_of_calls() {
        let mut ports: Vec<u16> = (0..200).map(|_| free_port().unwrap()).collect();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 200);
        assert!(ports.iter().all(|port| (15_000..32_000).contains(port)));
    }
}
