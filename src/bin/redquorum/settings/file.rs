//! The TOML file with settings.

use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::{Table, Value};

use super::duration;

/// What the file says; everything may be left out.
#[derive(Debug, Default)]
pub(super) struct File {
    pub(super) instances: Vec<String>,
    pub(super) namespace: Option<String>,
    pub(super) tls_ca: Option<PathBuf>,
    pub(super) tls_cert: Option<PathBuf>,
    pub(super) tls_key: Option<PathBuf>,
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
    pub(super) password_file: Option<PathBuf>,
    pub(super) ttl: Option<Duration>,
    pub(super) max_ttl: Option<Duration>,
    pub(super) quarantine: Option<Duration>,
    pub(super) instance_timeout: Option<Duration>,
    pub(super) connect_timeout: Option<Duration>,
    pub(super) quorum: Option<usize>,
    pub(super) admission: Option<bool>,
}

impl File {
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Self::parse(&text, path.parent()).map_err(|problem| format!("{}: {problem}", path.display()))
    }

    /// What is wrong is told without the text around it, which may be a password.
    fn parse(text: &str, beside: Option<&Path>) -> Result<Self, String> {
        let table: Table = text.parse().map_err(|error: toml::de::Error| {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let line = 1 + before.matches('\n').count();
            format!("line {line}: {}", error.message())
        })?;
        let mut file = Self::default();
        for (name, value) in table {
            match name.as_str() {
                "instances" => file.instances = list(&name, value)?,
                "namespace" => file.namespace = Some(word(&name, value)?),
                "username" => file.username = Some(word(&name, value)?),
                "password" => file.password = Some(word(&name, value)?),
                "password_file" => file.password_file = Some(path(&name, value, beside)?),
                "tls_ca" => file.tls_ca = Some(path(&name, value, beside)?),
                "tls_cert" => file.tls_cert = Some(path(&name, value, beside)?),
                "tls_key" => file.tls_key = Some(path(&name, value, beside)?),
                "ttl" => file.ttl = Some(time(&name, value)?),
                "max_ttl" => file.max_ttl = Some(time(&name, value)?),
                "quarantine" => file.quarantine = Some(time(&name, value)?),
                "instance_timeout" => file.instance_timeout = Some(time(&name, value)?),
                "connect_timeout" => file.connect_timeout = Some(time(&name, value)?),
                "quorum" => {
                    let votes = value.as_integer().and_then(|votes| usize::try_from(votes).ok());
                    file.quorum = Some(votes.ok_or_else(|| wants(&name, "a number"))?);
                }
                "admission" => file.admission = Some(value.as_bool().ok_or_else(|| wants(&name, "true or false"))?),
                _ => return Err(format!("there is no setting {name:?}")),
            }
        }
        Ok(file)
    }
}

fn wants(name: &str, what: &str) -> String {
    format!("{name} must be {what}")
}

fn word(name: &str, value: Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text),
        _ => Err(wants(name, "a text in quotes")),
    }
}

/// From the directory in which the file of settings is.
fn path(name: &str, value: Value, beside: Option<&Path>) -> Result<PathBuf, String> {
    let named = word(name, value)?;
    Ok(beside.map_or_else(|| named.clone().into(), |dir| dir.join(&named)))
}

fn list(name: &str, value: Value) -> Result<Vec<String>, String> {
    match value {
        Value::Array(items) => items.into_iter().map(|item| word(name, item)).collect(),
        _ => Err(wants(name, "a list of texts")),
    }
}

fn time(name: &str, value: Value) -> Result<Duration, String> {
    duration::parse(&word(name, value)?).map_err(|problem| format!("{name}: {problem}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_may_say_everything() {
        let text = "instances = ['a', 'b']\nnamespace = 'n:'\nusername = 'u'\npassword_file = 'p'\nttl = '5s'\n\
            max_ttl = '30s'\nquarantine = '1m'\ninstance_timeout = '100ms'\nconnect_timeout = '1s'\nquorum = 2\nadmission = false";
        let file = File::parse(text, Some(Path::new("/etc"))).unwrap();
        assert_eq!((file.instances.len(), file.ttl, file.quorum), (2, Some(Duration::from_secs(5)), Some(2)));
        assert_eq!((file.max_ttl, file.quarantine), (Some(Duration::from_secs(30)), Some(Duration::from_secs(60))));
        assert_eq!(file.password_file, Some(PathBuf::from("/etc/p")), "it is looked for beside the file");
        assert_eq!((file.namespace.as_deref(), file.admission), (Some("n:"), Some(false)));
    }

    #[test]
    fn what_is_wrong_is_named_without_what_may_be_secret() {
        for text in ["\npassword = secret", "password = ['secret']", "secrets = 1\n", "instances = 'secret'"] {
            let problem = File::parse(text, None).unwrap_err();
            assert!(
                !problem.contains("secret\"") && !problem.contains("secret'") && !problem.contains("= secret"),
                "{problem}"
            );
        }
        assert!(File::parse("\n\nttl = 5 s", None).unwrap_err().starts_with("line 3: "));
        let begins_a_line = File::parse("quorum = 2\n\n= 5", None).unwrap_err();
        assert!(begins_a_line.starts_with("line 3: "), "{begins_a_line}");
        assert!(File::parse("ttl = 5", None).unwrap_err().contains("ttl must be"));
        assert!(File::parse("ttl = '5'", None).unwrap_err().contains("ttl: "));
        assert!(File::parse("quorum = -1", None).unwrap_err().contains("quorum must be"));
    }
}
