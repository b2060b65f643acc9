//! What to trust, and what to show, where that is not the system's.

use redquorum::{Instance, Tls};

use super::file::File;
use crate::cli::Common;
use crate::exit::{Code, Failure};

/// From the command line, else the file; `None` where neither says anything. The files are read at each connect, so
/// they may be renewed while a command runs.
pub(super) fn tls(common: &Common, file: &File) -> Result<Option<Tls>, Failure> {
    let ca = common.tls_ca.as_ref().or(file.tls_ca.as_ref());
    let certificate = common.tls_cert.as_ref().or(file.tls_cert.as_ref());
    let key = common.tls_key.as_ref().or(file.tls_key.as_ref());
    let mut tls = Tls::new();
    if let Some(path) = ca {
        tls = tls.ca_file(path);
    }
    match (certificate, key) {
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
