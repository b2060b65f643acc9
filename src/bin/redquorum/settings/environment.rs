//! Settings in the environment: each option of all commands has its variable.

use std::path::PathBuf;

use crate::exit::{Code, Failure};

/// How the variables begin.
const PREFIX: &str = "REDQUORUM_";

pub(super) const INSTANCES: &str = "REDQUORUM_INSTANCES";
pub(super) const CONFIG: &str = "REDQUORUM_CONFIG";
pub(super) const PASSWORD: &str = "REDQUORUM_PASSWORD";
pub(super) const PASSWORD_FILE: &str = "REDQUORUM_PASSWORD_FILE";
pub(super) const USERNAME: &str = "REDQUORUM_USERNAME";
pub(super) const NAMESPACE: &str = "REDQUORUM_NAMESPACE";
pub(super) const TTL: &str = "REDQUORUM_TTL";
pub(super) const MAX_TTL: &str = "REDQUORUM_MAX_TTL";
pub(super) const QUARANTINE: &str = "REDQUORUM_QUARANTINE";
pub(super) const INSTANCE_TIMEOUT: &str = "REDQUORUM_INSTANCE_TIMEOUT";
pub(super) const CONNECT_TIMEOUT: &str = "REDQUORUM_CONNECT_TIMEOUT";
pub(super) const QUORUM: &str = "REDQUORUM_QUORUM";
pub(super) const ADMISSION: &str = "REDQUORUM_ADMISSION";
pub(super) const TLS_CA: &str = "REDQUORUM_TLS_CA";
pub(super) const TLS_CERT: &str = "REDQUORUM_TLS_CERT";
pub(super) const TLS_KEY: &str = "REDQUORUM_TLS_KEY";

const SETTINGS: &[&str] = &[
    INSTANCES,
    CONFIG,
    PASSWORD,
    PASSWORD_FILE,
    USERNAME,
    NAMESPACE,
    TTL,
    MAX_TTL,
    QUARANTINE,
    INSTANCE_TIMEOUT,
    CONNECT_TIMEOUT,
    QUORUM,
    ADMISSION,
    TLS_CA,
    TLS_CERT,
    TLS_KEY,
];

/// What `run` tells its command, which may be this program again.
const TOLD: &[&str] = &["REDQUORUM_RESOURCE", "REDQUORUM_FENCING_TOKEN", "REDQUORUM_VALID_UNTIL"];

/// What the scripts and tests of this project take from the environment.
const OF_SCRIPTS: &[&str] = &["REDQUORUM_IMAGE", "REDQUORUM_SERVER", "REDQUORUM_SERVER_COMMAND"];

/// Refuses a variable that looks like a setting and is none: it was misspelt, and something else would count.
pub(super) fn check() -> Result<(), Failure> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    match names.filter(|name| name.starts_with(PREFIX)).find(|name| !is_known(name)) {
        Some(name) => {
            Err(Failure::new(Code::Config, format!("there is no setting {name}; there are {}", SETTINGS.join(", "))))
        }
        None => Ok(()),
    }
}

fn is_known(name: &str) -> bool {
    // Kubernetes gives each pod such variables for each service, and one may be called `redquorum`.
    let is_of_a_service = ["_SERVICE_HOST", "_SERVICE_PORT", "_PORT"].iter().any(|part| name.contains(part));
    [SETTINGS, TOLD, OF_SCRIPTS].iter().any(|names| names.contains(&name)) || is_of_a_service
}

/// What a variable says; `None` if it is not set, or empty.
pub(super) fn text(variable: &str) -> Result<Option<String>, Failure> {
    match std::env::var(variable) {
        Ok(text) => Ok(Some(text).filter(|text| !text.is_empty())),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => Err(Failure::new(Code::Config, format!("{variable} is no text"))),
    }
}

pub(super) fn path(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// What a variable says, as `read` understands it.
pub(super) fn value<T>(variable: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, Failure> {
    let read =
        |text: String| read(&text).map_err(|problem| Failure::new(Code::Config, format!("{variable}: {problem}")));
    text(variable)?.map(read).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_settings_and_what_others_put_there_are_known() {
        for name in [
            "REDQUORUM_MAX_TTL",
            "REDQUORUM_FENCING_TOKEN",
            "REDQUORUM_IMAGE",
            "REDQUORUM_SERVICE_HOST",
            "REDQUORUM_PORT_6379_TCP",
        ] {
            assert!(is_known(name), "{name}");
        }
        for name in ["REDQUORUM_MAXTTL", "REDQUORUM_", "REDQUORUM_INSTANCE", "REDQUORUM_RETRIES"] {
            assert!(!is_known(name), "{name}");
        }
    }
}
