//! TLS, with the certificates that the system trusts. Where both features are enabled it is rustls.

use std::io;

use tokio::net::TcpStream;

/// The TLS handshake over `tcp`: two round trips at most.
#[cfg(feature = "tls-rustls")]
pub(super) async fn secured(host: &str, tcp: TcpStream) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    use rustls::pki_types::ServerName;
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    tokio_rustls::TlsConnector::from(config()?).connect(name, tcp).await
}

/// Cryptography is what the program has chosen, else ring. rustls, left to itself, panics where it
/// finds several.
#[cfg(feature = "tls-rustls")]
fn config() -> io::Result<std::sync::Arc<rustls::ClientConfig>> {
    use rustls::crypto::{CryptoProvider, ring};
    use rustls::{ClientConfig, RootCertStore};
    let chosen = CryptoProvider::get_default().cloned();
    let provider = chosen.unwrap_or_else(|| std::sync::Arc::new(ring::default_provider()));
    let found = rustls_native_certs::load_native_certs();
    let mut trusted = RootCertStore::empty();
    trusted.add_parsable_certificates(found.certs);
    if trusted.is_empty() {
        let why = found.errors.first().map(ToString::to_string).unwrap_or_default();
        return Err(io::Error::other(format!("no certificate is trusted by this system ({why})")));
    }
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = builder.map_err(io::Error::other)?.with_root_certificates(trusted).with_no_client_auth();
    Ok(std::sync::Arc::new(config))
}

/// The TLS handshake over `tcp`: two round trips at most.
#[cfg(all(feature = "tls-native-tls", not(feature = "tls-rustls")))]
pub(super) async fn secured(host: &str, tcp: TcpStream) -> io::Result<tokio_native_tls::TlsStream<TcpStream>> {
    let connector = tokio_native_tls::native_tls::TlsConnector::new().map_err(io::Error::other)?;
    tokio_native_tls::TlsConnector::from(connector).connect(host, tcp).await.map_err(io::Error::other)
}
