//! What to trust, and what to show, where that is not the system's.

use std::path::PathBuf;

use redquorum::{Instance, Tls};

use super::environment;
use super::file::File;
use crate::cli::Common;
use crate::exit::{Code, Failure};

/// From the command line, else the environment, else the file; `None` where none says anything. The files are read at each connect, so
/// they may be renewed while a command runs.
pub(super) fn tls(common: &Common, file: &File) -> Result<Option<Tls>, Failure> {
    let path = |option: &Option<PathBuf>, variable, in_file: &Option<PathBuf>| {
        option.clone().or_else(|| environment::path(variable)).or_else(|| in_file.clone())
    };
    let ca = path(&common.tls_ca, environment::TLS_CA, &file.tls_ca);
    let certificate = path(&common.tls_cert, environment::TLS_CERT, &file.tls_cert);
    let key = path(&common.tls_key, environment::TLS_KEY, &file.tls_key);
    let mut tls = Tls::new();
    if let Some(path) = &ca {
        tls = tls.ca_file(path);
    }
    match (&certificate, &key) {
        (Some(certificate), Some(key)) => tls = tls.client_certificate_files(certificate, key),
        (None, None) => {}
        _ => return Err(Failure::new(Code::Usage, "a certificate and its key belong together: --tls-cert, --tls-key")),
    }
    Ok((ca.is_some() || certificate.is_some()).then_some(tls))
}

/// Only what is asked for by its address has TLS.
pub(super) fn is_with_tls(address: &str) -> bool {
    ["rediss://", "valkeys://"].iter().any(|scheme| address.starts_with(scheme))
}

/// The instance at this address, with its TLS if it has any.
pub(super) fn instance(address: &str, tls: Option<&Tls>) -> Instance {
    let instance = Instance::url(address);
    match tls.filter(|_| is_with_tls(address)) {
        Some(tls) => instance.tls(tls.clone()),
        None => instance,
    }
}
