//! Connections over streams that a test brings along.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use super::wire::ByteStream;

/// A stream on its way.
type Opening = Pin<Box<dyn Future<Output = io::Result<Box<dyn ByteStream>>> + Send>>;

/// Opens streams to one instance. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Dialer(Arc<dyn Fn() -> Opening + Send + Sync>);

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

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dialer")
    }
}
