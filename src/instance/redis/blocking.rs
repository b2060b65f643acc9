//! What blocks a thread, and may hang: name servers, and files on network drives.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::task::{JoinError, spawn_blocking};

/// Does one thing at a time. A call that hangs holds one thread: later calls wait for its end, and take no other thread.
#[derive(Clone, Debug, Default)]
pub(super) struct OneAtATime(Arc<Mutex<()>>);

impl OneAtATime {
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let turn = Arc::clone(&self.0).lock_owned().await;
        let done = spawn_blocking(move || {
            let done = work();
            drop(turn);
            done
        });
        done.await
    }

    /// The addresses of a host.
    pub(super) async fn addresses(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let host = host.to_owned();
        let lookup = self.run(move || (host.as_str(), port).to_socket_addrs().map(Iterator::collect));
        lookup.await.map_err(io::Error::other)?
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_name_is_looked_up_by_one_at_a_time_and_an_address_by_nobody() {
        let lookup = OneAtATime::default();
        let hung = lookup.0.lock().await;
        let by_name = timeout(Duration::from_millis(50), lookup.addresses("localhost", 1)).await;
        assert!(by_name.is_err(), "the name is looked up");
        assert_eq!(lookup.addresses("::1", 7).await.unwrap(), ["[::1]:7".parse().unwrap()]);
        drop(hung);
        assert!(!lookup.addresses("localhost", 1).await.unwrap().is_empty());
    }
}
