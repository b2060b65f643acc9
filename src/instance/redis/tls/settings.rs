//! What is trusted, and what is shown.

use std::fmt;

/// TLS of your own, for [`Instance::tls`](crate::Instance::tls).
///
/// Without it an address that begins with `rediss://` is checked against the certificates that the system trusts. Both
/// TLS features can do all of this, with one difference: `tls-rustls` takes private keys as PKCS #8, PKCS #1 and SEC 1,
/// `tls-native-tls` as PKCS #8 only.
///
/// ```no_run
/// use redquorum::{Instance, Tls};
/// # fn f() -> Result<(), std::io::Error> {
/// let tls = Tls::new()
///     .ca(std::fs::read("/etc/redis/ca.pem")?)
///     .client_certificate(std::fs::read("client.pem")?, std::fs::read("client.key")?);
/// let instance = Instance::url("rediss://10.0.0.1:6380").tls(tls.server_name("redis-1.internal"));
/// # let _ = instance;
/// # Ok(()) }
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
#[must_use]
pub struct Tls {
    /// As PEM; empty for the system's.
    pub(super) ca: Vec<u8>,
    /// The certificate and its key, as PEM.
    pub(super) identity: Option<(Vec<u8>, Vec<u8>)>,
    server_name: Option<String>,
}

impl Tls {
    /// TLS as it is without any setting.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts certificates that these authorities have signed, and no others: one or more certificates as PEM. Default:
    /// those that the system trusts. May be called several times.
    pub fn ca(mut self, pem: impl AsRef<[u8]>) -> Self {
        self.ca.extend_from_slice(pem.as_ref());
        self.ca.push(b'\n');
        self
    }

    /// Shows this certificate to an instance that asks for one (`tls-auth-clients`), as PEM: the certificate, with those between
    /// it and its authority, and its private key. Default: none.
    pub fn client_certificate(mut self, certificate: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Self {
        self.identity = Some((certificate.as_ref().to_vec(), key.as_ref().to_vec()));
        self
    }

    /// The name that the instance's certificate must be for. Default: the host of the address.
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    /// The name that the certificate of `host` must be for.
    #[cfg(any(feature = "tls-rustls", feature = "tls-native-tls"))]
    pub(super) fn name_for<'a>(&'a self, host: &'a str) -> &'a str {
        self.server_name.as_deref().unwrap_or(host)
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("own_ca", &!self.ca.is_empty())
            .field("client_certificate", &self.identity.is_some())
            .field("server_name", &self.server_name)
            .finish()
    }
}
