//! As whom, and with which certificates, a client connects to instances whose addresses do not say it.

use std::path::Path;

use super::address::is_with_tls;
use super::{Config, Instance};
use crate::error::BuildError;
use crate::instance::redis::{Fallback, Tls};

impl Config {
    /// The instances with what they do not say themselves. Nothing is read before a client is built.
    pub(super) fn given_to(&self, instances: &[Instance]) -> Result<Vec<Instance>, BuildError> {
        let password = match (&self.password, &self.password_file) {
            (None, Some(path)) => Some(first_line(path)?),
            (password, _) => password.clone(),
        };
        let tls = self.tls()?;
        let has_tls = |instance: &Instance| instance.as_url().is_some_and(is_with_tls);
        if tls.is_some() && !instances.iter().any(has_tls) {
            let problem = "certificates are of no use (tls_ca, tls_cert, tls_key): no address begins with rediss://";
            return Err(BuildError::Conflict(problem.to_owned()));
        }
        let fallback = Fallback { user: self.username.clone(), password, tls };
        Ok(instances.iter().map(|instance| instance.clone().or(&fallback)).collect())
    }

    /// The files are read at each connect, so they may be renewed while a client lives.
    fn tls(&self) -> Result<Option<Tls>, BuildError> {
        let tls = self.tls_ca.iter().fold(Tls::new(), Tls::ca_file);
        let tls = match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => tls.client_certificate_files(certificate, key),
            (None, None) if self.tls_ca.is_none() => return Ok(None),
            (None, None) => tls,
            _ => return Err(BuildError::Conflict("tls_cert and tls_key belong together: give both".to_owned())),
        };
        Ok(Some(tls))
    }
}

fn first_line(path: &Path) -> Result<String, BuildError> {
    let failed = |reason: String| BuildError::PasswordFile { path: path.to_owned(), reason };
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    match text.trim_start_matches('\u{feff}').lines().next() {
        // some editors begin a file with that mark
        None | Some("") => Err(failed("there is no password in its first line".to_owned())),
        Some(line) => Ok(line.to_owned()),
    }
}
