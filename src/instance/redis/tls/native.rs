//! TLS with the system's library.

use std::io;

use tokio::net::TcpStream;
use tokio_native_tls::TlsStream;
use tokio_native_tls::native_tls::{Certificate, Identity, TlsConnector};

use super::settings::Tls;

/// The TLS handshake over `tcp`: two round trips at most.
pub(crate) async fn secured(host: &str, tls: &Tls, tcp: TcpStream) -> io::Result<TlsStream<TcpStream>> {
    let connector = connector(tls).map_err(io::Error::other)?;
    let connector = tokio_native_tls::TlsConnector::from(connector);
    connector.connect(tls.name_for(host), tcp).await.map_err(io::Error::other)
}

/// Whether a connection to `host` can be made with this.
///
/// # Errors
/// What is wrong with it, without a word of the key.
pub(crate) fn check(tls: &Tls, _: &str) -> Result<(), String> {
    connector(tls).map(drop)
}

fn connector(tls: &Tls) -> Result<TlsConnector, String> {
    let mut builder = TlsConnector::builder();
    if !tls.ca.is_empty() {
        let found = Certificate::stack_from_pem(&tls.ca).ok().filter(|found| !found.is_empty());
        let found = found.ok_or("there is no certificate in Tls::ca, or it cannot be read; it takes PEM")?;
        builder.disable_built_in_roots(true);
        for certificate in found {
            builder.add_root_certificate(certificate);
        }
    }
    if let Some((certificate, key)) = &tls.identity {
        let identity = Identity::from_pkcs8(certificate, key);
        builder
            .identity(identity.map_err(|_| "Tls::client_certificate takes a certificate and its PKCS #8 key as PEM")?);
    }
    builder.build().map_err(|error| format!("TLS: {error}"))
}
