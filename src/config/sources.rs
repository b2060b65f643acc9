//! Settings from a file, from the environment, or from a part of a program's own configuration.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_core::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

use super::address::without_password;
use super::build::default_label;
use super::value::{Value, shown};
use super::{Admission, Builder, Renewal};
use crate::client::Redlock;

/// How the variables begin.
const PREFIX: &str = "REDQUORUM_";

/// Names the file.
const FILE: &str = "REDQUORUM_CONFIG";

/// What there is for each setting but `instances`, which is a list.
macro_rules! settings {
    ($($name:ident: $form:ident,)*) => {
        /// In the order in which they are shown.
        const KEYS: [&str; 18] = ["instances", $(stringify!($name)),*];

        impl Config {
            /// Each setting that is said here, and for the rest what `other` says.
            fn or_each(self, other: Self) -> Self {
                let instances = if self.instances.is_empty() { other.instances } else { self.instances };
                Self { instances, $($name: self.$name.or(other.$name)),* }
            }

            /// Each setting that is said, without passwords.
            fn shown(&self) -> [Option<String>; 18] {
                let instances: Vec<String> = self.instances.iter().map(|address| without_password(address)).collect();
                let instances = (!instances.is_empty()).then(|| instances.join(", "));
                [instances, $(self.$name.as_ref().map(shown::$form)),*]
            }

            /// Takes what a source says of one setting. The error is what to write.
            fn take(&mut self, key: &str, value: Value) -> Result<(), String> {
                match key {
                    "instances" => self.instances = value.list()?,
                    $(_ if key == stringify!($name) => self.$name = Some(value.$form()?),)*
                    _ => return Err("there is no such setting".to_owned()),
                }
                Ok(())
            }
        }
    };
}

settings! {
    namespace: text, username: text, password: secret, password_file: path, tls_ca: path, tls_cert: path, tls_key: path,
    ttl: time, max_ttl: time, quarantine: time, instance_timeout: time, connect_timeout: time, quorum: number,
    admission: flag, renew: flag, max_hold: time, label: text,
}

/// Variables behind `REDQUORUM_` that are no settings, and no misspelt ones: the file, those that `redquorum run` gives its command, and those
/// that scripts, tests and examples of this project take from the environment.
const OF_OTHERS: &str = "CONFIG RESOURCE FENCING_TOKEN VALID_UNTIL PERMIT CLI_IMAGE IMAGE LOCAL_IMAGE SERVER SERVER_COMMAND EXAMPLES \
    EXAMPLE_DATABASE PLANTED_BUG SEED";

/// Settings from outside of a program: what a TOML file and the variables `REDQUORUM_*` say. For [`Builder::config`].
///
/// In the file a setting has the name of its field here; `REDQUORUM_MAX_TTL` is the variable for `max_ttl`. Durations are written
/// as `"500ms"`, `"10s"`, `"1m30s"`. What is not known is an error, in the file and among variables that begin with `REDQUORUM_`.
/// The command line `redquorum` reads the same file and the same variables; `redquorum config check` shows what they come to.
///
/// ```
/// use std::time::Duration;
/// use redquorum::{Config, Redlock};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let config = Config::from_toml(
///     r#"
///     instances = ["10.0.0.1", "10.0.0.2", "10.0.0.3:6380"]
///     ttl = "5s"
///     "#,
/// )?;
/// let redlock = Redlock::builder().config(config).max_hold(Duration::from_secs(600)).build()?;
/// # drop(redlock); Ok(()) }
/// ```
///
/// It can be a part of a configuration of your own, in any format whose values have types:
///
/// ```
/// # use redquorum::Config;
/// let text = r#"{ "instances": ["10.0.0.1", "10.0.0.2", "10.0.0.3"], "max_ttl": "30s" }"#;
/// let config: Config = serde_json::from_str(text)?;
/// assert_eq!(config.max_ttl, Some(std::time::Duration::from_secs(30)));
///
/// let error = serde_json::from_str::<Config>(r#"{ "ttl": 5 }"#).unwrap_err();
/// assert!(error.to_string().starts_with("ttl: it must be a time in quotes; write \"500ms\", \"10s\""));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// As [`Builder::instances`]; in a variable with spaces or commas between them. Empty: not said.
    pub instances: Vec<String>,
    /// As [`Builder::namespace`].
    pub namespace: Option<String>,
    /// The user of instances whose address names none. It needs a password.
    pub username: Option<String>,
    /// The password of instances whose address has none.
    pub password: Option<String>,
    /// A file whose first line is that password, instead of `password`. It is read when the client is built.
    pub password_file: Option<PathBuf>,
    /// As [`Tls::ca_file`](crate::Tls::ca_file), for addresses that begin with `rediss://`.
    pub tls_ca: Option<PathBuf>,
    /// With `tls_key` as [`Tls::client_certificate_files`](crate::Tls::client_certificate_files).
    pub tls_cert: Option<PathBuf>,
    /// The key of `tls_cert`.
    pub tls_key: Option<PathBuf>,
    /// As [`Builder::ttl`]. Default: that of the builder, or `max_ttl` if that is shorter.
    pub ttl: Option<Duration>,
    /// As [`Builder::max_ttl`].
    pub max_ttl: Option<Duration>,
    /// As [`Builder::quarantine`].
    pub quarantine: Option<Duration>,
    /// As [`Builder::instance_timeout`].
    pub instance_timeout: Option<Duration>,
    /// As [`Builder::connect_timeout`].
    pub connect_timeout: Option<Duration>,
    /// As [`Builder::quorum`].
    pub quorum: Option<usize>,
    /// [`Admission::On`] or [`Admission::Off`].
    pub admission: Option<bool>,
    /// [`Renewal::Auto`] or [`Renewal::Off`].
    pub renew: Option<bool>,
    /// As [`Builder::max_hold`].
    pub max_hold: Option<Duration>,
    /// As [`Builder::label`].
    pub label: Option<String>,
}

/// Why a file or a variable cannot be used: which setting it is, and what to write. Nothing of it is a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(String);

impl Config {
    /// What the variables say, and for the rest the file that `REDQUORUM_CONFIG` names. An empty variable says nothing.
    ///
    /// # Errors
    /// Which variable, or which setting in the file, cannot be read, and what to write.
    pub fn from_env() -> Result<Self, ConfigError> {
        Self::of_environment(std::env::vars_os().collect())
    }

    fn of_environment(variables: Vec<(OsString, OsString)>) -> Result<Self, ConfigError> {
        let file = variables.iter().find(|(name, path)| name == FILE && !path.is_empty()).map(|(_, path)| path.clone());
        let config = Self::of_variables(variables.into_iter())?;
        Ok(config.or(file.map_or_else(|| Ok(Self::default()), Self::read)?))
    }

    /// What the variables say alone, without the file. A program with a file of its own calls
    /// `Config::variables()?.or(Config::read(path)?)`.
    ///
    /// # Errors
    /// Which variable cannot be read, or is no setting, and what to write.
    pub fn variables() -> Result<Self, ConfigError> {
        Self::of_variables(std::env::vars_os())
    }

    fn of_variables(variables: impl Iterator<Item = (OsString, OsString)>) -> Result<Self, ConfigError> {
        let said = variables.filter_map(|(name, value)| {
            let name = name.into_string().ok().filter(|name| name.starts_with(PREFIX) && !is_of_others(name))?;
            Some((name, (!value.is_empty()).then(|| value.into())))
        });
        let unknown = |name: &str| format!("{name}; there are {FILE}, {}", KEYS.map(variable).join(", "));
        let (sorted, mut config) = (BTreeMap::from_iter(said), Self::default());
        for (name, value) in sorted {
            config.put(key_of(&name, variable, unknown)?, &name, value)?;
        }
        config.with_one_password(variable)
    }

    /// Takes what a source says of a setting, under its name there. The error is what to write instead.
    fn put(&mut self, key: &str, name: &str, value: Option<Value>) -> Result<(), ConfigError> {
        let taken = value.map_or(Ok(()), |value| self.take(key, value));
        taken.map_err(|problem| ConfigError(format!("{name}: {problem}")))
    }

    /// A source that says both leaves open which of the two counts.
    fn with_one_password(self, name_of: fn(&str) -> String) -> Result<Self, ConfigError> {
        if self.password.is_some() && self.password_file.is_some() {
            let [one, other] = ["password", "password_file"].map(name_of);
            return Err(ConfigError(format!("{one} and {other} are both given: give one of them")));
        }
        Ok(self)
    }

    /// What a TOML file says. Paths in it count from the directory in which it is.
    ///
    /// # Errors
    /// That it cannot be read, or which setting in it, and what to write.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        // Without what a terminal would obey.
        let failed = |problem: String| ConfigError(format!("{}: {problem}", path.to_string_lossy().escape_debug()));
        let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        let mut config = Self::from_toml(&text).map_err(|error| failed(error.0))?;
        if let Some(directory) = path.parent() {
            for file in [&mut config.password_file, &mut config.tls_ca, &mut config.tls_cert, &mut config.tls_key] {
                *file = file.take().map(|file| directory.join(file));
            }
        }
        Ok(config)
    }

    /// What the text of a TOML file says.
    ///
    /// # Errors
    /// Which line is no TOML, or which setting cannot be read, and what to write.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
            // Without the text around it, which may be a password.
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let line = 1 + before.matches('\n').count();
            ConfigError(format!("line {line}: {}", error.message()))
        })?;
        let mut config = Self::default();
        for (key, value) in table {
            config.put(key_of(&key, str::to_owned, unknown_key)?, &key, Some(Value::Typed(value)))?;
        }
        config.with_one_password(str::to_owned)
    }

    /// What is said here, and for the rest what `other` says. A password and a file with one take the place of both.
    #[must_use]
    pub fn or(self, mut other: Self) -> Self {
        if self.password.is_some() || self.password_file.is_some() {
            (other.password, other.password_file) = (None, None);
        }
        let mut both = self.or_each(other);
        both.password_file = both.password_file.filter(|_| both.password.is_none());
        both
    }

    /// With what counts where nothing is said.
    #[must_use]
    pub fn or_defaults(self) -> Self {
        let standard = Builder::default();
        let max_ttl = self.max_ttl.unwrap_or(standard.settings.max_ttl);
        let majority = (!self.instances.is_empty()).then_some(self.instances.len() / 2 + 1);
        self.or(Self {
            namespace: Some(String::new()),
            ttl: Some(standard.settings.ttl.min(max_ttl)),
            max_ttl: Some(max_ttl),
            quarantine: Some(max_ttl),
            instance_timeout: Some(standard.instance_timeout),
            connect_timeout: Some(standard.connect_timeout),
            quorum: majority,
            admission: Some(true),
            renew: Some(true),
            label: Some(default_label()),
            ..Self::default()
        })
    }

    /// What is said, each setting by its name, in the form in which it is written. Passwords are `***`.
    ///
    /// ```
    /// # use redquorum::Config;
    /// let config = Config::from_toml("ttl = '90s'\nusername = 'locks'\npassword = 'secret'")?;
    /// let said: Vec<String> = config.settings().map(|(name, value)| format!("{name}={value}")).collect();
    /// assert_eq!(said, ["username=locks", "password=***", "ttl=1m30s"]);
    /// # Ok::<(), redquorum::ConfigError>(())
    /// ```
    pub fn settings(&self) -> impl Iterator<Item = (&'static str, String)> {
        KEYS.into_iter().zip(self.shown()).filter_map(|(key, value)| Some((key, value?)))
    }
}

/// The setting that has this name in a source; an error says which there are.
fn key_of(name: &str, name_of: fn(&str) -> String, unknown: fn(&str) -> String) -> Result<&'static str, ConfigError> {
    let key = KEYS.into_iter().find(|key| name_of(key) == name);
    key.ok_or_else(|| ConfigError(format!("there is no setting {}", unknown(name))))
}

fn unknown_key(key: &str) -> String {
    format!("{key:?}; there are {}", KEYS.join(", "))
}

fn variable(key: &str) -> String {
    format!("{PREFIX}{}", key.to_uppercase())
}

fn is_of_others(name: &str) -> bool {
    // Kubernetes gives each pod such variables for each service, and one may be called `redquorum`.
    OF_OTHERS.split(' ').any(|other| format!("{PREFIX}{other}") == name)
        || ["_SERVICE_HOST", "_SERVICE_PORT", "_PORT"].iter().any(|part| name.contains(part))
}

/// As [`Config::settings`]: without passwords.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.settings()).finish()
    }
}

impl<'de> Deserialize<'de> for Config {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Settings)
    }
}

/// One setting after the other, so that a format that can say where an error is says it.
struct Settings;

impl<'de> Visitor<'de> for Settings {
    type Value = Config;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("settings by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut said: A) -> Result<Config, A::Error> {
        let mut config = Config::default();
        while let Some(name) = said.next_key::<String>()? {
            let key = key_of(&name, str::to_owned, unknown_key).map_err(A::Error::custom)?;
            // Any value: an error of serde's own might repeat it.
            let value: Option<toml::Value> = said.next_value()?;
            config.put(key, &name, value.map(Value::Typed)).map_err(A::Error::custom)?;
        }
        config.with_one_password(str::to_owned).map_err(A::Error::custom)
    }
}

impl Builder {
    /// Takes what a [`Config`] says; what it does not say stays as it is. Setters that are called later count more.
    ///
    /// User, password and certificates are for each instance whose address and settings have none, also where the address is
    /// given by [`instances`](Self::instances). They are not for masters behind Sentinels.
    pub fn config(mut self, config: Config) -> Self {
        self.access = config.clone().or(self.access);
        if !config.instances.is_empty() {
            self = self.instances(config.instances);
        }
        if let Some(namespace) = config.namespace {
            self = self.namespace(namespace);
        }
        let settings = &mut self.settings;
        let max_ttl = config.max_ttl.unwrap_or(settings.max_ttl);
        settings.ttl =
            config.ttl.unwrap_or(if config.max_ttl.is_some() { settings.ttl.min(max_ttl) } else { settings.ttl });
        settings.max_ttl = max_ttl;
        settings.quarantine = config.quarantine.or(settings.quarantine);
        settings.max_hold = config.max_hold.or(settings.max_hold);
        self.instance_timeout = config.instance_timeout.unwrap_or(self.instance_timeout);
        self.connect_timeout = config.connect_timeout.unwrap_or(self.connect_timeout);
        self.quorum = config.quorum.or(self.quorum);
        self.label = config.label.or(self.label);
        if let Some(is_on) = config.admission {
            self.admission = if is_on { Admission::On } else { Admission::Off };
        }
        if let Some(is_on) = config.renew {
            self.settings.renewal = if is_on { Renewal::Auto } else { Renewal::Off };
        }
        self
    }
}

impl Redlock {
    /// A builder with the settings of the environment: [`Config::from_env`]. It is connected as any other.
    ///
    /// ```no_run
    /// # async fn f() -> Result<(), Box<dyn std::error::Error>> {
    /// use redquorum::Redlock;
    ///
    /// let redlock = Redlock::from_env()?.connect().await?; // REDQUORUM_INSTANCES="10.0.0.1 10.0.0.2 10.0.0.3"
    /// # Ok(()) }
    /// ```
    ///
    /// Without an async runtime it is `blocking::Redlock::connect(Redlock::from_env()?)`.
    ///
    /// # Errors
    /// As [`Config::from_env`]. That no instances are named is an error of [`Builder::build`]: they may be given there.
    pub fn from_env() -> Result<Builder, ConfigError> {
        Ok(Self::builder().config(Config::from_env()?))
    }
}

#[cfg(test)]
mod tests;
