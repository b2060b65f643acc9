//! TLS to an instance. Where both features are enabled it is rustls.

#[cfg(all(feature = "tls-native-tls", not(feature = "tls-rustls")))]
mod native;
#[cfg(feature = "tls-rustls")]
mod rustls;
mod settings;

#[cfg(all(feature = "tls-native-tls", not(feature = "tls-rustls")))]
use native as library;
#[cfg(feature = "tls-rustls")]
use rustls as library;

#[cfg(any(feature = "tls-rustls", feature = "tls-native-tls"))]
pub(super) use library::check;
pub use settings::Tls;

/// What a connection with TLS is made with.
#[cfg(any(feature = "tls-rustls", feature = "tls-native-tls"))]
pub(super) use library::Connector;

/// Reads what a connection to `host` is made with: certificates and keys may have been renewed since the last.
///
/// # Errors
/// What of it cannot be used, with the file that it is from, and without a word of the key.
#[cfg(any(feature = "tls-rustls", feature = "tls-native-tls"))]
pub(super) async fn connector(tls: &Tls, host: &str) -> Result<Connector, String> {
    let (tls, host) = (tls.clone(), host.to_owned());
    let read = tokio::task::spawn_blocking(move || Connector::new(&tls, &host));
    read.await.unwrap_or_else(|_| Err("the runtime has ended".to_owned()))
}

/// Whether a connection to `host` can be made with this.
///
/// # Errors
/// That a build without TLS makes none.
#[cfg(not(any(feature = "tls-rustls", feature = "tls-native-tls")))]
pub(super) fn check(_: &Tls, _: &str) -> Result<(), String> {
    Err("this build has no TLS; enable the feature tls-rustls or tls-native-tls of redquorum".to_owned())
}
