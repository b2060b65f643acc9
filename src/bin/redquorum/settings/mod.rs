//! Where the instances and everything about them come from.

mod address;
pub(crate) mod duration;
mod environment;
mod file;
mod tls;

use std::path::Path;
use std::time::Duration;

use redquorum::{Admission, AdmissionStatus, BuildError, Builder, InstanceStatus, Redlock, Tls};
use tokio::time::sleep;

use crate::cli::Common;
use crate::exit::{Code, Failure};
use file::File;
use tls::{instance, is_with_tls, tls};

/// What may contain a password, and is no business of a command that runs under a lock.
pub(crate) const SECRETS: &[&str] = &[environment::PASSWORD, environment::INSTANCES];

/// How often it is looked at what is known of the instances.
const POLL: Duration = Duration::from_millis(10);

/// The ttl and the `max_ttl` where nothing else is said, as in the library.
const DEFAULT_TTL: Duration = Duration::from_secs(10);

/// What all commands need. Its addresses may contain passwords: it is never shown.
#[derive(Clone)]
pub(crate) struct Settings {
    addresses: Vec<String>,
    /// The status for an address that cannot be read, by where it was given.
    bad_address: Code,
    /// The same for a ttl.
    bad_ttl: Code,
    tls: Option<Tls>,
    namespace: String,
    pub(crate) ttl: Duration,
    max_ttl: Option<Duration>,
    quarantine: Option<Duration>,
    pub(crate) instance_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    quorum: Option<usize>,
    admission: Admission,
}

impl Settings {
    /// From the command line, else the environment, else the file.
    pub(crate) fn gather(common: &Common) -> Result<Self, Failure> {
        environment::check()?;
        let config = common.config.clone().or(environment::path(environment::CONFIG));
        let file = config.map_or(Ok(File::default()), |path| File::read(&path)).map_err(config_failure)?;
        let bad_address = if common.instances.is_empty() { Code::Config } else { Code::Usage };
        let named = named_instances(common, &file, bad_address)?;
        let addresses = with_login(common, &file, &named)?;
        let tls = tls(common, &file)?;
        if tls.is_some() && !named.iter().any(|address| is_with_tls(address)) {
            return Err(Failure::new(Code::Usage, "certificates are of no use: no address begins with rediss://"));
        }
        let time = |option: Option<Duration>, variable, in_file: Option<Duration>| {
            Ok::<_, Failure>(option.or(environment::value(variable, duration::parse)?).or(in_file))
        };
        let text = |option: &Option<String>, variable: &str, in_file: &Option<String>| {
            Ok::<_, Failure>(option.clone().or(environment::text(variable)?).or(in_file.clone()))
        };
        let max_ttl = time(common.max_ttl, environment::MAX_TTL, file.max_ttl)?;
        let instance_timeout = time(common.instance_timeout, environment::INSTANCE_TIMEOUT, file.instance_timeout)?;
        let connect_timeout = time(common.connect_timeout, environment::CONNECT_TIMEOUT, file.connect_timeout)?;
        let ttl = time(common.ttl, environment::TTL, file.ttl)?;
        let votes =
            |text: &str| -> Result<usize, String> { text.parse().map_err(|_| format!("{text:?} is no number")) };
        Ok(Self {
            addresses,
            bad_address,
            bad_ttl: if common.ttl.is_some() { Code::Usage } else { Code::Config },
            tls,
            namespace: text(&common.namespace, environment::NAMESPACE, &file.namespace)?.unwrap_or_default(),
            ttl: ttl.unwrap_or(DEFAULT_TTL.min(max_ttl.unwrap_or(DEFAULT_TTL))),
            max_ttl,
            quarantine: time(common.quarantine, environment::QUARANTINE, file.quarantine)?,
            instance_timeout: instance_timeout.unwrap_or(Duration::from_millis(200)),
            connect_timeout: connect_timeout.unwrap_or(Duration::from_secs(5)),
            quorum: common.quorum.or(environment::value(environment::QUORUM, votes)?).or(file.quorum),
            admission: admission(common, &file)?,
        })
    }

    fn builder(&self, addresses: &[String]) -> Builder {
        let builder = Redlock::builder()
            .instances(addresses.iter().map(|address| instance(address, self.tls.as_ref())))
            .namespace(&self.namespace)
            .ttl(self.ttl)
            .max_ttl(self.max_ttl.unwrap_or(DEFAULT_TTL))
            .instance_timeout(self.instance_timeout)
            .connect_timeout(self.connect_timeout)
            .admission(self.admission);
        self.quarantine.into_iter().fold(builder, Builder::quarantine)
    }

    fn of_all(&self, builder: Builder) -> Result<Redlock, Failure> {
        self.quorum.into_iter().fold(builder, Builder::quorum).build().map_err(|error| {
            let code = match error {
                BuildError::BadAddress { .. } => Some(self.bad_address),
                BuildError::Ttl(_) => Some(self.bad_ttl),
                _ => None,
            };
            let failure = Failure::from(error);
            Failure { code: code.unwrap_or(failure.code), ..failure }
        })
    }

    /// A client of all instances that begins to connect.
    pub(crate) fn client(&self) -> Result<Redlock, Failure> {
        self.of_all(self.builder(&self.addresses))
    }

    /// The same for a command that only looks: whatever the clients of these instances have agreed on counts, and nothing is
    /// written.
    pub(crate) fn looking_client(&self) -> Result<Redlock, Failure> {
        self.of_all(self.looking(&self.addresses))
    }

    /// The same where it is also to be seen whether a client with these very settings would get votes.
    pub(crate) fn judging_client(&self) -> Result<Redlock, Failure> {
        let says_what_all_agree_on = self.max_ttl.is_some() || self.quarantine.is_some();
        if says_what_all_agree_on { self.client() } else { self.looking_client() }
    }

    /// A client that does something about admission records, and writes none by itself. Nobody hears it: a client that listens to be woken
    /// counts as a trace of use.
    pub(crate) fn operating_client(&self) -> Result<Redlock, Failure> {
        let max_ttl = self.max_ttl.unwrap_or(DEFAULT_TTL.min(self.quarantine.unwrap_or(DEFAULT_TTL)));
        let builder = self.looking(&self.addresses).max_ttl(max_ttl).ttl(self.ttl.min(max_ttl));
        self.of_all(builder)
    }

    /// The longest ttl that records are to allow, which must have been given.
    pub(crate) fn given_quarantine(&self) -> Result<Duration, Failure> {
        let hint =
            "give --quarantine, the longest ttl that instances are to vote for: it is written into their records";
        self.quarantine.or(self.max_ttl).ok_or_else(|| Failure::new(Code::Usage, hint))
    }

    fn looking(&self, addresses: &[String]) -> Builder {
        let admission = if self.has_admission() { Admission::AsRecorded } else { Admission::Off };
        self.builder(addresses).admission(admission)
    }
}

impl Settings {
    /// How many votes are needed of so many instances.
    pub(crate) fn quorum_of(&self, instances: usize) -> usize {
        self.quorum.unwrap_or(instances / 2 + 1)
    }

    /// A client of the instance at this place in the list, and of no other, that writes no record. Its locks exclude nobody
    /// elsewhere.
    pub(crate) fn client_of_one(&self, index: usize) -> Result<Redlock, Failure> {
        Ok(self.looking(self.addresses.get(index..=index).unwrap_or_default()).build()?)
    }

    /// Whether instances that may have forgotten locks are kept from voting.
    pub(crate) fn has_admission(&self) -> bool {
        self.admission == Admission::On
    }

    /// Waits until so many instances are known to be out of reach that the others are no quorum.
    pub(crate) async fn is_out_of_reach(&self, redlock: &Redlock) {
        loop {
            let instances = redlock.instances();
            let may_vote = |it: &&InstanceStatus| it.connected && it.admission != AdmissionStatus::Refused;
            let may_come = instances.iter().filter(|it| may_vote(it) || is_connecting(it));
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

    /// A client that only looks, and is connected to a quorum.
    pub(crate) async fn connected_to_look(&self) -> Result<Redlock, Failure> {
        let redlock = self.looking_client()?;
        redlock.wait_connected(self.connect_timeout).await?;
        Ok(redlock)
    }
}

/// Whether it is not known yet if it can be connected.
pub(crate) fn is_connecting(instance: &InstanceStatus) -> bool {
    !instance.connected && instance.last_error.is_none()
}

/// The addresses as they were given.
fn named_instances(common: &Common, file: &File, bad_address: Code) -> Result<Vec<String>, Failure> {
    if common.instances.iter().any(|address| address::has_password(address)) {
        let password = environment::PASSWORD;
        return Err(Failure::new(
            Code::Usage,
            format!("a password in -i is seen by everybody who lists processes; use {password} or --password-file"),
        ));
    }
    let named = match common.instances.is_empty() {
        true => listed(&environment::text(environment::INSTANCES)?.unwrap_or_default()),
        false => common.instances.clone(),
    };
    let named = if named.is_empty() { file.instances.clone() } else { named };
    if named.is_empty() {
        let variable = environment::INSTANCES;
        let hint = format!("no instances are named; use -i, {variable}, or `instances` in a file (--config)");
        return Err(Failure::new(Code::Usage, hint));
    }
    for (at, address) in named.iter().enumerate() {
        if let Some(problem) = address::problem(address) {
            return Err(Failure::new(bad_address, format!("address {} cannot be used: {problem}", at + 1)));
        }
    }
    Ok(named)
}

/// The addresses with user and password where they have none of their own.
fn with_login(common: &Common, file: &File, named: &[String]) -> Result<Vec<String>, Failure> {
    let username = common.username.clone().or(environment::text(environment::USERNAME)?).or(file.username.clone());
    let password = password(common, file)?;
    let addresses = named.iter().map(|address| {
        let address = address::with_scheme(address);
        match &password {
            Some(password) => address::with_password(&address, username.as_deref(), password),
            None => address,
        }
    });
    let addresses: Vec<String> = addresses.collect();
    let is_unused =
        |address: &String| !address::has_password(address) && (username.is_some() || address::has_username(address));
    if let Some(at) = addresses.iter().position(is_unused) {
        let hint = "give one by REDQUORUM_PASSWORD, --password-file or the file; a user with nopass takes any";
        return Err(config_failure(format!("address {} has a user and no password: {hint}", at + 1)));
    }
    Ok(addresses)
}

/// Whether instances that may have forgotten locks are kept from voting.
fn admission(common: &Common, file: &File) -> Result<Admission, Failure> {
    let on_or_off = |text: &str| text.parse::<bool>().map_err(|_| "it must be true or false".to_owned());
    let option = if common.admission { Some(true) } else { common.no_admission.then_some(false) };
    let is_on = option.or(environment::value(environment::ADMISSION, on_or_off)?).or(file.admission).unwrap_or(true);
    Ok(if is_on { Admission::On } else { Admission::Off })
}

/// The password for all instances whose address has none: one source, the nearest to whoever called.
fn password(common: &Common, file: &File) -> Result<Option<String>, Failure> {
    if let Some(path) = &common.password_file {
        return first_line(path).map(Some);
    }
    if let Some(given) = environment::text(environment::PASSWORD)? {
        return Ok(Some(given));
    }
    match environment::path(environment::PASSWORD_FILE).or_else(|| file.password_file.clone()) {
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

fn listed(text: &str) -> Vec<String> {
    text.split(|c: char| c == ',' || c.is_whitespace()).filter(|it| !it.is_empty()).map(str::to_owned).collect()
}
