//! TLS with the system's library.

use std::io;

use tokio::net::TcpStream;
use tokio_native_tls::TlsStream;
use tokio_native_tls::native_tls::{Certificate, Identity, TlsConnector};

use super::settings::{Certificates, Tls};

/// What a connection is made with.
pub(crate) struct Connector {
    connector: TlsConnector,
    name: String,
}

impl Connector {
    pub(super) fn new(tls: &Tls, host: &str) -> Result<Self, String> {
        Ok(Self { connector: connector(&tls.read()?)?, name: tls.name_for(host).to_owned() })
    }

    /// The TLS handshake over `tcp`: two round trips at most.
    pub(crate) async fn secured(self, tcp: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let connector = tokio_native_tls::TlsConnector::from(self.connector);
        connector.connect(&self.name, tcp).await.map_err(io::Error::other)
    }
}

/// Whether a connection to `host` can be made with this.
///
/// # Errors
/// What is wrong with it, without a word of the key.
pub(crate) fn check(tls: &Tls, host: &str) -> Result<(), String> {
    Connector::new(tls, host).map(drop)
}

fn connector(certificates: &Certificates) -> Result<TlsConnector, String> {
    let mut builder = TlsConnector::builder();
    builder.disable_built_in_roots(!certificates.ca.is_empty());
    for pem in &certificates.ca {
        let found = Certificate::stack_from_pem(&pem.bytes).ok().filter(|found| !found.is_empty());
        let none = || format!("there is no certificate in {}, or it cannot be read; it takes PEM", pem.from);
        for certificate in found.ok_or_else(none)? {
            builder.add_root_certificate(certificate);
        }
    }
    if let Some((certificate, key)) = &certificates.identity {
        let identity = Identity::from_pkcs8(&certificate.bytes, &key.bytes).map_err(|_| {
            let (certificate, key) = (&certificate.from, &key.from);
            format!("{certificate} and {key} are no certificate and its PKCS #8 key; it takes PEM")
        })?;
        builder.identity(identity);
    }
    builder.build().map_err(|error| format!("TLS: {error}"))
}
