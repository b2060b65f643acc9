//! Opens the stream of bytes to an instance.

use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::select_ok;
use redis::RedisError;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

use super::address::{Endpoint, TcpSettings};
#[cfg(feature = "tls-rustls")]
use super::classify::clip;
use super::classify::failed;
use super::stream::ByteStream;
use super::tls::Tls;
use crate::protocol::Cause;

/// Connects: three round trips at most, with TLS. Sets `began_tls` once a server for TLS accepts.
pub(super) async fn open_stream(
    endpoint: &Endpoint,
    settings: &TcpSettings,
    began_tls: &AtomicBool,
) -> Result<Box<dyn ByteStream>, Cause> {
    match endpoint {
        Endpoint::Tcp { host, port, tls: Some(tls) } => {
            let tcp = async {
                let stream = tcp(host, *port, settings).await?;
                began_tls.store(true, Ordering::Relaxed);
                Ok(stream)
            };
            secured(host, tls, tcp).await
        }
        endpoint => plain(endpoint, settings).await.map_err(lost),
    }
}

async fn plain(endpoint: &Endpoint, settings: &TcpSettings) -> io::Result<Box<dyn ByteStream>> {
    match endpoint {
        Endpoint::Tcp { host, port, .. } => Ok(Box::new(tcp(host, *port, settings).await?)),
        Endpoint::Group(_) => Err(io::ErrorKind::Unsupported.into()), // the caller finds its master first
        #[cfg(feature = "testing")]
        Endpoint::Dialed(dialer) => dialer.open().await,
        #[cfg(unix)]
        Endpoint::Unix(path) => Ok(Box::new(tokio::net::UnixStream::connect(path).await?)),
        #[cfg(not(unix))]
        Endpoint::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
    }
}

fn lost(error: io::Error) -> Cause {
    failed(&RedisError::from(error))
}

/// To the first of the host's addresses that answers.
async fn tcp(host: &str, port: u16, settings: &TcpSettings) -> io::Result<TcpStream> {
    let addresses = settings.lookup.addresses(host, port).await?;
    if addresses.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "its name has no address"));
    }
    let connects = addresses.into_iter().map(|address| Box::pin(TcpStream::connect(address)));
    let (stream, _) = select_ok(connects).await?;
    stream.set_nodelay(true)?;
    apply(settings, &stream)?;
    Ok(stream)
}

fn apply(settings: &TcpSettings, stream: &TcpStream) -> io::Result<()> {
    let socket = SockRef::from(stream);
    if let Some(idle) = settings.keep_alive {
        socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(idle).with_interval(idle))?;
    }
    #[cfg(target_os = "linux")]
    if let Some(limit) = settings.user_timeout {
        socket.set_tcp_user_timeout(Some(limit))?;
    }
    Ok(())
}

#[cfg(feature = "tls-rustls")]
async fn secured(
    host: &str,
    tls: &Tls,
    tcp: impl Future<Output = io::Result<TcpStream>>,
) -> Result<Box<dyn ByteStream>, Cause> {
    let connector = super::tls::connector(tls, host).await.map_err(|error| Cause::TlsSettings(clip(&error)))?;
    let stream = async { connector.secured(tcp.await?).await };
    Ok(Box::new(stream.await.map_err(lost)?))
}

#[cfg(not(feature = "tls-rustls"))]
async fn secured(
    _: &str,
    _: &Tls,
    _: impl Future<Output = io::Result<TcpStream>>,
) -> Result<Box<dyn ByteStream>, Cause> {
    Err(lost(io::ErrorKind::Unsupported.into())) // its address is refused when it is read
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn the_system_gives_up_a_connection_where_a_limit_is_set_and_only_there() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (idle, limit) = (Duration::from_secs(30), Duration::from_secs(7));
        let settings = TcpSettings { keep_alive: Some(idle), user_timeout: Some(limit), ..TcpSettings::default() };
        let stream = tcp("127.0.0.1", port, &settings).await.unwrap();
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), idle);
        #[cfg(target_os = "linux")]
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(limit));
        let stream = tcp("127.0.0.1", port, &TcpSettings::default()).await.unwrap();
        assert!(!SockRef::from(&stream).keepalive().unwrap());
    }
}
