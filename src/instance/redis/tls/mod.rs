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
pub(super) use library::{check, secured};
pub use settings::Tls;

/// Whether a connection to `host` can be made with this.
///
/// # Errors
/// That a build without TLS makes none.
#[cfg(not(any(feature = "tls-rustls", feature = "tls-native-tls")))]
pub(super) fn check(_: &Tls, _: &str) -> Result<(), String> {
    Err("this build has no TLS; enable the feature tls-rustls or tls-native-tls of redquorum".to_owned())
}
