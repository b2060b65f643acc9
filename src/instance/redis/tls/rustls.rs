//! TLS with rustls.

use std::io;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::settings::Tls;

/// The TLS handshake over `tcp`: two round trips at most.
pub(crate) async fn secured(host: &str, tls: &Tls, tcp: TcpStream) -> io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from(tls.name_for(host).to_owned()).map_err(io::Error::other)?;
    let trusted = if tls.ca.is_empty() { authorities_of_the_system() } else { own_authorities(&tls.ca) };
    let config = trusted.and_then(|trusted| config(tls, trusted)).map_err(io::Error::other)?;
    tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, tcp).await
}

/// Whether a connection to `host` can be made with this.
///
/// # Errors
/// What is wrong with it, without a word of the key.
pub(crate) fn check(tls: &Tls, host: &str) -> Result<(), String> {
    let name = tls.name_for(host);
    ServerName::try_from(name).map_err(|_| format!("{name:?} is no name that a certificate can be for"))?;
    // What the system trusts may come later.
    let trusted = if tls.ca.is_empty() { RootCertStore::empty() } else { own_authorities(&tls.ca)? };
    config(tls, trusted).map(drop)
}

/// Cryptography is what the program has chosen, else ring. rustls, left to itself, panics where it
/// finds several.
fn config(tls: &Tls, trusted: RootCertStore) -> Result<ClientConfig, String> {
    let chosen = CryptoProvider::get_default().cloned();
    let provider = chosen.unwrap_or_else(|| Arc::new(ring::default_provider()));
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| error.to_string())?.with_root_certificates(trusted);
    match &tls.identity {
        None => Ok(builder.with_no_client_auth()),
        Some(identity) => {
            let (chain, key) = own_certificate(identity)?;
            builder.with_client_auth_cert(chain, key).map_err(|error| format!("Tls::client_certificate: {error}"))
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

fn own_authorities(pem: &[u8]) -> Result<RootCertStore, String> {
    let mut trusted = RootCertStore::empty();
    for certificate in certificates("Tls::ca", pem)? {
        trusted.add(certificate).map_err(|error| format!("a certificate in Tls::ca cannot be trusted: {error}"))?;
    }
    Ok(trusted)
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn own_certificate((certificate, key): &(Vec<u8>, Vec<u8>)) -> Result<Identity, String> {
    let chain = certificates("Tls::client_certificate", certificate)?;
    // The error may quote what was given.
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|_| "the key in Tls::client_certificate is no private key (PEM)".to_owned())?;
    Ok((chain, key))
}

fn certificates(setting: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let found = read.ok().filter(|found| !found.is_empty());
    found.ok_or_else(|| format!("there is no certificate in {setting}, or it cannot be read; it takes PEM"))
}
