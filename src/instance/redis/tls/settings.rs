//! What is trusted, and what is shown.

use std::fmt;
#[cfg(feature = "tls-rustls")]
use std::fs::File;
#[cfg(feature = "tls-rustls")]
use std::io::Read;
use std::path::PathBuf;

#[cfg(feature = "tls-rustls")]
use crate::instance::redis::blocking::OneAtATime;

/// TLS of your own, for [`Instance::tls`](crate::Instance::tls).
///
/// Without it an address that begins with `rediss://` is checked against the certificates that the system trusts.
/// Private keys are taken as PKCS #8, PKCS #1 and SEC 1.
///
/// What is given as bytes stays as it is. Files are read when the client is built, and again at each
/// connect: certificates that are renewed in place are taken up without a restart. A connection that is open keeps those
/// of before. They may have 4 MiB each. A read that hangs, as on a network drive, is the only one until it ends.
///
/// ```no_run
/// use redquorum::{Instance, Tls};
/// let tls = Tls::new().ca_file("/etc/redis/ca.pem").client_certificate_files("client.pem", "client.key");
/// let instance = Instance::url("rediss://10.0.0.1:6380").tls(tls.server_name("redis-1.internal"));
/// # let _ = instance;
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
#[must_use]
pub struct Tls {
    /// Empty for the system's.
    ca: Vec<Source>,
    /// The certificate and its key.
    identity: Option<(Source, Source)>,
    server_name: Option<String>,
    pub(super) reading: Reading,
}

/// Held by the task that reads the files. It makes no difference between settings.
#[derive(Clone, Default)]
pub(super) struct Reading(#[cfg(feature = "tls-rustls")] pub(super) OneAtATime);

impl PartialEq for Reading {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Reading {}

/// The most bytes that are read of a file: all certificates that a system trusts are a fraction of it.
#[cfg(feature = "tls-rustls")]
const MOST_MIB: u64 = 4;

/// Where certificates or a key come from.
#[derive(Clone, PartialEq, Eq)]
enum Source {
    /// PEM, given to this function.
    Given(&'static str, Vec<u8>),
    File(PathBuf),
}

/// Certificates or a key as they are now.
#[cfg(feature = "tls-rustls")]
pub(super) struct Pem {
    /// Where they come from, for errors.
    pub(super) from: String,
    pub(super) bytes: Vec<u8>,
}

/// What a connection is made with; all files are read.
#[cfg(feature = "tls-rustls")]
pub(super) struct Certificates {
    /// Empty for the system's.
    pub(super) ca: Vec<Pem>,
    /// The certificate and its key.
    pub(super) identity: Option<(Pem, Pem)>,
}

impl Tls {
    /// TLS as it is without any setting.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts certificates that these authorities have signed, and no others: one or more certificates as PEM. Default:
    /// those that the system trusts. May be called several times.
    pub fn ca(mut self, pem: impl AsRef<[u8]>) -> Self {
        self.ca.push(Source::Given("Tls::ca", pem.as_ref().to_vec()));
        self
    }

    /// As [`ca`](Self::ca), from a file. If it cannot be used when the client is built, that is a
    /// [`BuildError`](crate::BuildError); at a later connect it is a [`Cause`](crate::Cause), and tried again.
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca.push(Source::File(path.into()));
        self
    }

    /// Shows this certificate to an instance that requires one (`tls-auth-clients`), as PEM: the certificate, with those between
    /// it and its authority, and its private key. Default: none.
    pub fn client_certificate(mut self, certificate: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Self {
        let given = |pem: &[u8]| Source::Given("Tls::client_certificate", pem.to_vec());
        self.identity = Some((given(certificate.as_ref()), given(key.as_ref())));
        self
    }

    /// As [`client_certificate`](Self::client_certificate), from two files, read as [`ca_file`](Self::ca_file) says. A connect
    /// that finds only one of them renewed fails, and the next one finds both.
    pub fn client_certificate_files(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.identity = Some((Source::File(certificate.into()), Source::File(key.into())));
        self
    }

    /// The name that the instance's certificate must be for. Default: the host of the address.
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }
}

#[cfg(feature = "tls-rustls")]
impl Tls {
    /// The name that the certificate of `host` must be for.
    pub(super) fn name_for<'a>(&'a self, host: &'a str) -> &'a str {
        self.server_name.as_deref().unwrap_or(host)
    }

    /// Whether a connection is made with what files say: those that the system trusts are in files, too.
    pub(super) fn reads_files(&self) -> bool {
        let identity = self.identity.iter().flat_map(|(certificate, key)| [certificate, key]);
        self.ca.is_empty() || self.ca.iter().chain(identity).any(|source| matches!(source, Source::File(_)))
    }

    /// Reads all files. It blocks.
    ///
    /// # Errors
    /// Which file cannot be read, and why.
    pub(super) fn read(&self) -> Result<Certificates, String> {
        let identity = match &self.identity {
            Some((certificate, key)) => Some((certificate.read()?, key.read()?)),
            None => None,
        };
        Ok(Certificates { ca: self.ca.iter().map(Source::read).collect::<Result<_, _>>()?, identity })
    }
}

#[cfg(feature = "tls-rustls")]
impl Source {
    fn read(&self) -> Result<Pem, String> {
        match self {
            Self::Given(function, bytes) => Ok(Pem { from: (*function).to_owned(), bytes: bytes.clone() }),
            Self::File(path) => {
                let from = path.display().to_string();
                let (mut bytes, most) = (Vec::new(), MOST_MIB << 20);
                let read = File::open(path).and_then(|file| file.take(most + 1).read_to_end(&mut bytes));
                match read.map_err(|error| format!("{from} cannot be read: {error}"))? {
                    read if u64::try_from(read).is_ok_and(|read| read > most) => {
                        Err(format!("{from} is longer than {MOST_MIB} MiB"))
                    }
                    _ => Ok(Pem { from, bytes }),
                }
            }
        }
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
