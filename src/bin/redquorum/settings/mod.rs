//! Where the instances and everything about them come from.

mod address;
pub(crate) mod duration;
mod file;
mod tls;

use std::path::{Path, PathBuf};
use std::time::Duration;

use redquorum::{Admission, Builder, Cause, InstanceStatus, Redlock, Tls};
use tokio::time::sleep;

use crate::cli::Common;
use crate::exit::{Code, Failure};
use file::File;
use tls::{instance, is_with_tls, tls};

const INSTANCES: &str = "REDQUORUM_INSTANCES";
const CONFIG: &str = "REDQUORUM_CONFIG";
const PASSWORD: &str = "REDQUORUM_PASSWORD";
const PASSWORD_FILE: &str = "REDQUORUM_PASSWORD_FILE";
const CLUSTER: &str = "REDQUORUM_CLUSTER";
const NAMESPACE: &str = "REDQUORUM_NAMESPACE";

/// What may contain a password, and is no business of a command that runs under a lock.
pub(crate) const SECRETS: &[&str] = &[PASSWORD, INSTANCES];

/// How often it is looked at what is known of the instances.
const POLL: Duration = Duration::from_millis(10);

/// The ttl and the `max_ttl` where nothing else is said, as in the library.
const DEFAULT_TTL: Duration = Duration::from_secs(10);

/// What all commands need. Its addresses may contain passwords: it is never shown.
#[derive(Clone)]
pub(crate) struct Settings {
    addresses: Vec<String>,
    tls: Option<Tls>,
    cluster: Option<String>,
    namespace: String,
    pub(crate) ttl: Duration,
    max_ttl: Duration,
    quarantine: Option<Duration>,
    pub(crate) instance_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    quorum: Option<usize>,
    admission: Admission,
}

impl Settings {
    /// From the command line, else the environment, else the file.
    pub(crate) fn gather(common: &Common) -> Result<Self, Failure> {
        let config = common.config.clone().or(path_in(CONFIG));
        let file = config.map_or(Ok(File::default()), |path| File::read(&path)).map_err(config_failure)?;
        if common.instances.iter().any(|address| address::has_password(address)) {
            return Err(Failure::new(
                Code::Usage,
                format!("a password in -i is seen by everybody who lists processes; use {PASSWORD} or --password-file"),
            ));
        }
        let named = if common.instances.is_empty() { listed(&text_in(INSTANCES)?) } else { common.instances.clone() };
        let named = if named.is_empty() { file.instances.clone() } else { named };
        if named.is_empty() {
            let hint = format!("no instances are named; use -i, {INSTANCES}, or `instances` in a file (--config)");
            return Err(Failure::new(Code::Usage, hint));
        }
        let code = if common.instances.is_empty() { Code::Config } else { Code::Usage };
        if let Some((at, problem)) = named.iter().enumerate().find_map(|(at, it)| Some((at, address::problem(it)?))) {
            return Err(Failure::new(code, format!("address {} cannot be used: {problem}", at + 1)));
        }
        let password = password(common, &file)?;
        let addresses = named.iter().map(|address| {
            let address = address::with_scheme(address);
            match &password {
                Some(password) => address::with_password(&address, file.username.as_deref(), password),
                None => address,
            }
        });
        let addresses: Vec<String> = addresses.collect();
        let is_unused = |address: &String| {
            !address::has_password(address) && (file.username.is_some() || address::has_username(address))
        };
        if let Some(at) = addresses.iter().position(is_unused) {
            let hint = "give one by REDQUORUM_PASSWORD, --password-file or the file; a user with nopass takes any";
            return Err(config_failure(format!("address {} has a user and no password: {hint}", at + 1)));
        }
        let tls = tls(common, &file)?;
        if tls.is_some() && !named.iter().any(|address| is_with_tls(address)) {
            return Err(Failure::new(Code::Usage, "certificates are of no use: no address begins with rediss://"));
        }
        let cluster = common.cluster.clone().or(Some(text_in(CLUSTER)?).filter(|text| !text.is_empty()));
        let max_ttl = common.max_ttl.or(file.max_ttl).unwrap_or(DEFAULT_TTL);
        let namespace = common.namespace.clone().or(Some(text_in(NAMESPACE)?).filter(|text| !text.is_empty()));
        let with_admission = !common.no_admission && file.admission.unwrap_or(true);
        Ok(Self {
            addresses,
            tls,
            cluster: cluster.or(file.cluster),
            namespace: namespace.or(file.namespace).unwrap_or_default(),
            ttl: file.ttl.unwrap_or(DEFAULT_TTL.min(max_ttl)),
            max_ttl,
            quarantine: common.quarantine.or(file.quarantine),
            instance_timeout: common.instance_timeout.or(file.instance_timeout).unwrap_or(Duration::from_millis(200)),
            connect_timeout: common.connect_timeout.or(file.connect_timeout).unwrap_or(Duration::from_secs(5)),
            quorum: common.quorum.or(file.quorum),
            admission: if with_admission { Admission::On } else { Admission::Off },
        })
    }

    fn builder(&self, addresses: &[String]) -> Builder {
        let builder = Redlock::builder()
            .instances(addresses.iter().map(|address| instance(address, self.tls.as_ref())))
            .namespace(&self.namespace)
            .ttl(self.ttl)
            .max_ttl(self.max_ttl)
            .instance_timeout(self.instance_timeout)
            .connect_timeout(self.connect_timeout)
            .admission(self.admission);
        self.quarantine.into_iter().fold(builder, Builder::quarantine)
    }

    /// A client of all instances that begins to connect.
    pub(crate) fn client(&self) -> Result<Redlock, Failure> {
        let builder = self.cluster.iter().fold(self.builder(&self.addresses), Builder::cluster);
        Ok(self.quorum.into_iter().fold(builder, Builder::quorum).build()?)
    }
}

impl Settings {
    /// How many votes are needed of so many instances.
    pub(crate) fn quorum_of(&self, instances: usize) -> usize {
        self.quorum.unwrap_or(instances / 2 + 1)
    }

    /// A client of the instance at this place in the list, and of no other. Its locks exclude nobody elsewhere.
    pub(crate) fn client_of_one(&self, index: usize) -> Result<Redlock, Failure> {
        let alone = self.builder(self.addresses.get(index..=index).unwrap_or_default());
        // A cluster does not admit a client that has another list.
        let alone = if self.cluster.is_some() { alone.admission(Admission::Off) } else { alone };
        Ok(alone.build()?)
    }

    /// Whether instances that may have forgotten locks are kept from voting.
    pub(crate) fn has_admission(&self) -> bool {
        self.admission == Admission::On
    }

    /// Waits until so many instances are known to be out of reach that the others are no quorum.
    pub(crate) async fn is_out_of_reach(&self, redlock: &Redlock) {
        loop {
            let instances = redlock.instances();
            let may_come = instances.iter().filter(|it| it.connected || is_connecting(it));
            if may_come.count() < self.quorum_of(instances.len()) {
                return;
            }
            sleep(POLL).await;
        }
    }

    /// A client that is connected to a quorum.
    pub(crate) async fn connected(&self) -> Result<Redlock, Failure> {
        let redlock = self.client()?;
        redlock.wait_connected(self.connect_timeout).await?;
        Ok(redlock)
    }
}

/// Whether it is not known yet if it can be connected.
pub(crate) fn is_connecting(instance: &InstanceStatus) -> bool {
    !instance.connected && instance.last_error.as_ref().is_none_or(|it| *it == Cause::Connecting.to_string())
}

/// The password for all instances whose address has none: one source, the nearest to whoever called.
fn password(common: &Common, file: &File) -> Result<Option<String>, Failure> {
    if let Some(path) = &common.password_file {
        return first_line(path).map(Some);
    }
    let given = text_in(PASSWORD)?;
    if !given.is_empty() {
        return Ok(Some(given));
    }
    match path_in(PASSWORD_FILE).or_else(|| file.password_file.clone()) {
        Some(path) => first_line(&path).map(Some),
        None => Ok(file.password.clone()),
    }
}

/// Without what a terminal would obey.
fn shown(path: &Path) -> String {
    path.to_string_lossy().escape_debug().collect()
}

fn first_line(path: &Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| config_failure(format!("{}: {error}", shown(path))))?;
    let line = text.lines().next().unwrap_or_default();
    if line.is_empty() {
        Err(config_failure(format!("{}: no password in it", shown(path))))
    } else {
        Ok(line.to_owned())
    }
}

fn config_failure(problem: String) -> Failure {
    Failure::new(Code::Config, problem)
}

/// A variable of the environment; empty if it is not set.
fn text_in(variable: &str) -> Result<String, Failure> {
    match std::env::var(variable) {
        Ok(text) => Ok(text),
        Err(std::env::VarError::NotPresent) => Ok(String::new()),
        Err(std::env::VarError::NotUnicode(_)) => Err(config_failure(format!("{variable} is no text"))),
    }
}

fn path_in(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from)
}

fn listed(text: &str) -> Vec<String> {
    text.split(|c: char| c == ',' || c.is_whitespace()).filter(|it| !it.is_empty()).map(str::to_owned).collect()
}
