//! The bytes to and from an instance: connects, and bounds what comes over it.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use futures_util::future::select_ok;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, lookup_host};

use super::address::Endpoint;
use super::byte_stream::ByteStream;
use super::reply_limit::{ReplyLimit, ReplyTooLong};

/// A connection that breaks when the other side sends a longer reply than may be kept.
pub(super) struct ServerStream {
    inner: Box<dyn ByteStream>,
    limit: ReplyLimit,
    too_long: Arc<OnceLock<ReplyTooLong>>,
}

impl ServerStream {
    /// Connects: three round trips at most, with TLS.
    pub(super) async fn open(endpoint: &Endpoint) -> io::Result<Self> {
        Ok(Self { inner: inner(endpoint).await?, limit: ReplyLimit::default(), too_long: Arc::default() })
    }

    /// Set when it broke for that reason; the redis crate reports it only to those who await an answer.
    pub(super) fn too_long(&self) -> Arc<OnceLock<ReplyTooLong>> {
        Arc::clone(&self.too_long)
    }
}

async fn inner(endpoint: &Endpoint) -> io::Result<Box<dyn ByteStream>> {
    match endpoint {
        Endpoint::Tcp { host, port, tls } => {
            let tcp = tcp(host, *port).await?;
            if *tls { secured(host, tcp).await } else { Ok(Box::new(tcp)) }
        }
        #[cfg(feature = "testing")]
        Endpoint::Dialed(dialer) => dialer.open().await,
        #[cfg(unix)]
        Endpoint::Unix(path) => Ok(Box::new(tokio::net::UnixStream::connect(path).await?)),
        #[cfg(not(unix))]
        Endpoint::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// To whichever of the host's addresses answers first.
async fn tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let addresses: Vec<_> =
        lookup_host((host, port)).await?.map(|address| Box::pin(TcpStream::connect(address))).collect();
    if addresses.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "its name has no address"));
    }
    let (stream, _) = select_ok(addresses).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

#[cfg(any(feature = "tls-rustls", feature = "tls-native-tls"))]
async fn secured(host: &str, tcp: TcpStream) -> io::Result<Box<dyn ByteStream>> {
    Ok(Box::new(super::tls::secured(host, tcp).await?))
}

#[cfg(not(any(feature = "tls-rustls", feature = "tls-native-tls")))]
async fn secured(_: &str, _: TcpStream) -> io::Result<Box<dyn ByteStream>> {
    Err(io::ErrorKind::Unsupported.into()) // its address is refused when it is read
}

impl AsyncRead for ServerStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buf))?;
        let came = buf.filled().get(before..).unwrap_or_default();
        Poll::Ready(
            self.limit.follow(came).map_err(|too_long| io::Error::other(*self.too_long.get_or_init(|| too_long))),
        )
    }
}

impl AsyncWrite for ServerStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
