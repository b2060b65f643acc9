//! TLS with rustls.

use std::io;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::settings::{Certificates, Pem, Tls};

/// What a connection is made with.
pub(crate) struct Connector {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Connector {
    pub(super) fn new(tls: &Tls, host: &str) -> Result<Self, String> {
        let (name, certificates) = (name_for(tls, host)?, tls.read()?);
        let own = !certificates.ca.is_empty();
        let trusted = if own { own_authorities(&certificates)? } else { authorities_of_the_system()? };
        Ok(Self { config: Arc::new(config(&certificates, trusted)?), name })
    }

    /// The TLS handshake over `tcp`: two round trips at most.
    pub(crate) async fn secured(self, tcp: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        tokio_rustls::TlsConnector::from(self.config).connect(self.name, tcp).await
    }
}

/// Whether a connection to `host` can be made with this.
///
/// # Errors
/// What is wrong with it, without a word of the key.
pub(crate) fn check(tls: &Tls, host: &str) -> Result<(), String> {
    name_for(tls, host)?;
    let certificates = tls.read()?;
    // What the system trusts may come later.
    config(&certificates, own_authorities(&certificates)?).map(drop)
}

fn name_for(tls: &Tls, host: &str) -> Result<ServerName<'static>, String> {
    let name = tls.name_for(host).to_owned();
    ServerName::try_from(name.clone()).map_err(|_| format!("{name:?} is no name that a certificate can be for"))
}

/// Cryptography is what the program has chosen, else ring. rustls, left to itself, panics where it
/// finds several.
fn config(certificates: &Certificates, trusted: RootCertStore) -> Result<ClientConfig, String> {
    let chosen = CryptoProvider::get_default().cloned();
    let provider = chosen.unwrap_or_else(|| Arc::new(ring::default_provider()));
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| error.to_string())?.with_root_certificates(trusted);
    match &certificates.identity {
        None => Ok(builder.with_no_client_auth()),
        Some(identity) => {
            let (chain, key) = own_certificate(identity)?;
            builder.with_client_auth_cert(chain, key).map_err(|error| format!("{}: {error}", identity.0.from))
        }
    }
}

fn authorities_of_the_system() -> Result<RootCertStore, String> {
    let found = rustls_native_certs::load_native_certs();
    let mut trusted = RootCertStore::empty();
    trusted.add_parsable_certificates(found.certs);
    if trusted.is_empty() {
        let why = found.errors.first().map(ToString::to_string).unwrap_or_default();
        return Err(format!("no certificate is trusted by this system ({why})"));
    }
    Ok(trusted)
}

fn own_authorities(own: &Certificates) -> Result<RootCertStore, String> {
    let mut trusted = RootCertStore::empty();
    for pem in &own.ca {
        for certificate in certificates(pem)? {
            let added = trusted.add(certificate);
            added.map_err(|error| format!("a certificate in {} cannot be trusted: {error}", pem.from))?;
        }
    }
    Ok(trusted)
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn own_certificate((certificate, key): &(Pem, Pem)) -> Result<Identity, String> {
    let chain = certificates(certificate)?;
    // The error may quote what was given.
    let key = PrivateKeyDer::from_pem_slice(&key.bytes)
        .map_err(|_| format!("the key in {} is no private key (PEM)", key.from))?;
    Ok((chain, key))
}

fn certificates(pem: &Pem) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_slice_iter(&pem.bytes).collect::<Result<Vec<_>, _>>();
    let found = read.ok().filter(|found| !found.is_empty());
    found.ok_or_else(|| format!("there is no certificate in {}, or it cannot be read; it takes PEM", pem.from))
}
