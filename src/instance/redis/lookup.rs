//! The addresses behind the name of a host.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

/// Looks the host of one instance up, once at a time. A name server that hangs holds one thread: who comes later waits
/// for its end, and takes no other thread.
#[derive(Clone, Debug, Default)]
pub(super) struct Lookup(Arc<Mutex<()>>);

impl Lookup {
    pub(super) async fn addresses(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let (host, turn) = (host.to_owned(), Arc::clone(&self.0).lock_owned().await);
        let lookup = spawn_blocking(move || {
            let found = (host.as_str(), port).to_socket_addrs().map(Iterator::collect);
            drop(turn);
            found
        });
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
        let lookup = Lookup::default();
        let hung = lookup.0.lock().await;
        let by_name = timeout(Duration::from_millis(50), lookup.addresses("localhost", 1)).await;
        assert!(by_name.is_err(), "somebody looks it up");
        assert_eq!(lookup.addresses("::1", 7).await.unwrap(), ["[::1]:7".parse().unwrap()]);
        drop(hung);
        assert!(!lookup.addresses("localhost", 1).await.unwrap().is_empty());
    }
}
