//! A stream of bytes to an instance, and one that a test brings along.

#[cfg(feature = "testing")]
use std::{fmt, future::Future, io, pin::Pin, sync::Arc};

use tokio::io::{AsyncRead, AsyncWrite};

/// A stream of bytes in both directions.
pub(crate) trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> ByteStream for T {}

#[cfg(feature = "testing")]
/// A stream on its way.
type Opening = Pin<Box<dyn Future<Output = io::Result<Box<dyn ByteStream>>> + Send>>;

/// Opens streams to one instance. Cheap to clone.
#[cfg(feature = "testing")]
#[derive(Clone)]
pub(crate) struct Dialer(Arc<dyn Fn() -> Opening + Send + Sync>);

#[cfg(feature = "testing")]
impl Dialer {
    pub(crate) fn new<F, S>(dial: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = io::Result<S>> + Send + 'static,
        S: ByteStream + 'static,
    {
        Self(Arc::new(move || {
            let opening = dial();
            Box::pin(async move { Ok(Box::new(opening.await?) as Box<dyn ByteStream>) })
        }))
    }

    pub(super) fn open(&self) -> Opening {
        (self.0)()
    }
}

#[cfg(feature = "testing")]
impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dialer")
    }
}
