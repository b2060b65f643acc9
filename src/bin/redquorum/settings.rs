//! Where the instances and everything about them come from.

#[path = "../../config/duration.rs"]
pub(crate) mod duration;

use std::path::PathBuf;
use std::time::Duration;

use redquorum::{
    Admission, AdmissionStatus, BuildError, Builder, Config, ConfigError, ConnectError, InstanceStatus, Redlock,
};
use tokio::time::sleep;

use crate::cli::Common;
use crate::clock::since_boot;
use crate::exit::{Code, Failure};

/// What may contain a password, and is no business of a command that runs under a lock.
pub(crate) const SECRETS: &[&str] = &["REDQUORUM_PASSWORD", "REDQUORUM_INSTANCES"];

/// Names the file of settings.
const FILE: &str = "REDQUORUM_CONFIG";

/// What the library shows in place of a password.
const HIDDEN: &str = "***";

/// How often it is looked at what is known of the instances.
const POLL: Duration = Duration::from_millis(10);

/// What each source says. Options count first, then variables, then the file.
pub(crate) struct Sources {
    options: Config,
    variables: Config,
    file: Option<(PathBuf, Config)>,
}

/// Where a setting comes from.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    Option,
    Variable,
    File(&'a PathBuf),
    Default,
}

impl Sources {
    pub(crate) fn gather(common: &Common) -> Result<Self, Failure> {
        let options = of_options(common);
        if options.settings().any(|(name, value)| name == "instances" && value.contains(HIDDEN)) {
            let problem =
                "a password in -i is visible in the list of processes; use REDQUORUM_PASSWORD or --password-file";
            return Err(Failure::new(Code::Usage, problem));
        }
        let variables = Config::variables()?;
        let of_variable = || std::env::var_os(FILE).filter(|path| !path.is_empty()).map(PathBuf::from);
        let file = match common.config.clone().or_else(of_variable) {
            Some(path) => Some((path.clone(), Config::read(path)?)),
            None => None,
        };
        Ok(Self { options, variables, file })
    }

    /// What all of them say together.
    pub(crate) fn said(&self) -> Config {
        let file = self.file.as_ref().map(|(_, config)| config.clone()).unwrap_or_default();
        let (mut options, list) = (self.options.clone(), self.variables.clone().or(file));
        options.instances = options.instances.into_iter().map(|named| of_the_list(named, &list.instances)).collect();
        options.or(list)
    }

    /// Which of them says what counts for this setting.
    pub(crate) fn source(&self, setting: &str) -> Source<'_> {
        let says = |config: &Config| config.settings().any(|(name, _)| name == setting);
        match &self.file {
            _ if says(&self.options) => Source::Option,
            _ if says(&self.variables) => Source::Variable,
            Some((path, config)) if says(config) => Source::File(path),
            _ => Source::Default,
        }
    }
}

/// What the options say that all commands have.
fn of_options(common: &Common) -> Config {
    let mut config = Config::default();
    config.instances.clone_from(&common.instances);
    config.namespace.clone_from(&common.namespace);
    config.username.clone_from(&common.username);
    config.password_file.clone_from(&common.password_file);
    config.tls_ca.clone_from(&common.tls_ca);
    config.tls_cert.clone_from(&common.tls_cert);
    config.tls_key.clone_from(&common.tls_key);
    config.ttl = common.ttl;
    config.max_ttl = common.max_ttl;
    config.quarantine = common.quarantine;
    config.instance_timeout = common.instance_timeout;
    config.connect_timeout = common.connect_timeout;
    config.quorum = common.quorum;
    config.admission = if common.admission { Some(true) } else { common.no_admission.then_some(false) };
    config
}

/// What all commands need. Its addresses may contain passwords: it is never shown.
#[derive(Clone)]
pub(crate) struct Settings {
    /// What was said somewhere.
    said: Config,
    /// The status for an address that cannot be read, by where it was given.
    bad_address: Code,
    /// The same for a ttl.
    bad_ttl: Code,
    pub(crate) ttl: Duration,
    pub(crate) instance_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) max_hold: Option<Duration>,
    max_ttl: Duration,
    quorum: Option<usize>,
    has_admission: bool,
}

impl Settings {
    /// From the command line, else the environment, else the file.
    pub(crate) fn gather(common: &Common) -> Result<Self, Failure> {
        Self::of(&Sources::gather(common)?)
    }

    pub(crate) fn of(sources: &Sources) -> Result<Self, Failure> {
        let said = sources.said();
        if said.instances.is_empty() {
            let hint = "no instances are named; use -i, REDQUORUM_INSTANCES, or `instances` in a file (--config)";
            return Err(Failure::new(Code::Config, hint));
        }
        let all = said.clone().or_defaults();
        let time = Option::unwrap_or_default;
        Ok(Self {
            bad_address: if sources.options.instances.is_empty() { Code::Config } else { Code::Usage },
            bad_ttl: if sources.options.ttl.is_some() { Code::Usage } else { Code::Config },
            ttl: time(all.ttl),
            instance_timeout: time(all.instance_timeout),
            connect_timeout: time(all.connect_timeout),
            max_hold: all.max_hold,
            max_ttl: time(all.max_ttl),
            quorum: said.quorum,
            has_admission: all.admission.unwrap_or(true),
            said,
        })
    }

    fn builder(&self) -> Builder {
        Redlock::builder().config(self.said.clone())
    }

    fn build(&self, builder: Builder) -> Result<Redlock, Failure> {
        builder.build().map_err(|error| {
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
        self.build(self.builder())
    }

    /// The same for a command that only looks: it accepts the records that the clients of these instances have written, and
    /// writes none.
    pub(crate) fn looking_client(&self) -> Result<Redlock, Failure> {
        self.build(self.looking(self.said.clone()))
    }

    /// The same where it is also to be seen whether a client with these very settings would get votes.
    pub(crate) fn judging_client(&self) -> Result<Redlock, Failure> {
        let says_what_all_agree_on = self.said.max_ttl.is_some() || self.said.quarantine.is_some();
        if says_what_all_agree_on { self.client() } else { self.looking_client() }
    }

    /// A client that changes admission records, and writes none by itself. It does not subscribe: a client that does
    /// counts as a trace of use.
    pub(crate) fn operating_client(&self) -> Result<Redlock, Failure> {
        let max_ttl =
            self.said.max_ttl.unwrap_or_else(|| self.max_ttl.min(self.said.quarantine.unwrap_or(self.max_ttl)));
        // Each instance for itself: with `-i` it is some of those that the file has settings for.
        let mut config = self.said.clone();
        config.quorum = None;
        without_idle_tls(&mut config);
        self.build(self.looking(config).max_ttl(max_ttl).ttl(self.ttl.min(max_ttl)))
    }

    /// The longest ttl that records are to allow, which must have been given.
    pub(crate) fn given_quarantine(&self) -> Result<Duration, Failure> {
        let hint =
            "give --quarantine, the longest ttl that instances are to vote for: it is written into their records";
        self.said.quarantine.or(self.said.max_ttl).ok_or_else(|| Failure::new(Code::Usage, hint))
    }

    fn looking(&self, config: Config) -> Builder {
        let admission = if self.has_admission { Admission::AsRecorded } else { Admission::Off };
        Redlock::builder().config(config).admission(admission)
    }

    /// How many votes are needed of so many instances.
    pub(crate) fn quorum_of(&self, instances: usize) -> usize {
        self.quorum.unwrap_or(instances / 2 + 1)
    }

    /// A client of the instance at this place in the list, and of no other, that writes no record. Its locks exclude no client
    /// elsewhere.
    pub(crate) fn client_of_one(&self, index: usize) -> Result<Redlock, Failure> {
        self.alone(self.said.clone(), self.said.instances.get(index).cloned())
    }

    /// The same without the user, password and certificate that were given.
    pub(crate) fn anonymous_client_of_one(&self, index: usize) -> Result<Redlock, Failure> {
        let mut config = self.said.clone();
        let url = self.said.instances.get(index).map(|url| without_user(url));
        (config.username, config.password, config.password_file) = (None, None, None);
        (config.tls_cert, config.tls_key) = (None, None);
        self.alone(config, url)
    }

    fn alone(&self, mut config: Config, url: Option<String>) -> Result<Redlock, Failure> {
        (config.instances, config.quorum) = (url.into_iter().collect(), None);
        without_idle_tls(&mut config);
        Ok(self.looking(config).build()?)
    }

    /// Whether instances that may have forgotten locks are kept from voting.
    pub(crate) const fn has_admission(&self) -> bool {
        self.has_admission
    }

    /// Waits until so many instances are known to be out of reach that the others are no quorum.
    async fn is_out_of_reach(&self, redlock: &Redlock) {
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

    /// Waits until a quorum is connected, and no longer than until it is known that none can be: for commands that try once.
    pub(crate) async fn connect(&self, redlock: &Redlock, limit: Duration) -> Result<(), ConnectError> {
        let begun = since_boot();
        tokio::select! {
            connected = redlock.wait_connected(limit) => connected,
            () = self.is_out_of_reach(redlock) => {
                redlock.wait_connected(Duration::ZERO).await.map_err(|mut error| {
                    error.waited = since_boot().saturating_sub(begun);
                    error
                })
            }
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
        self.connect(&redlock, self.connect_timeout).await?;
        Ok(redlock)
    }
}

/// Without an address for TLS its settings are a mistake.
fn without_idle_tls(config: &mut Config) {
    let is_with_tls = |url: &String| ["rediss:", "valkeys:"].iter().any(|scheme| url.starts_with(scheme));
    if !config.instances.iter().any(is_with_tls) {
        (config.tls_ca, config.tls_cert, config.tls_key) = (None, None, None);
    }
}

/// What an option names by host and port alone, as `status` shows it, is that instance of the list: with its password, database and TLS.
fn of_the_list(named: String, list: &[String]) -> String {
    let is_bare = !named.contains(['/', '@']);
    let mut known = list.iter().filter(|url| is_bare && place(url) == place(&named));
    match (known.next(), known.next()) {
        (Some(url), None) => url.clone(),
        _ => named,
    }
}

/// Host and port.
fn place(url: &str) -> String {
    let bare = without_user(url);
    let rest = bare.split_once("://").map_or(&*bare, |(_, rest)| rest);
    let place = rest.split(['/', '?']).next().unwrap_or_default();
    let has_port = place.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if has_port { place.to_owned() } else { format!("{place}:6379") }
}

/// The address without what stands before the `@`.
fn without_user(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").map_or(("", url), |(scheme, rest)| (scheme, rest));
    let place = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
    if scheme.is_empty() { place.to_owned() } else { format!("{scheme}://{place}") }
}

/// Whether it is not known yet if it can be connected.
pub(crate) fn is_connecting(instance: &InstanceStatus) -> bool {
    !instance.connected && instance.last_error.is_none()
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::new(Code::Config, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_that_names_an_instance_of_the_list_by_host_and_port_means_that_one() {
        let list =
            ["redis://:pw@a/1", "rediss://b:6380", "redis://:pw@[::1]:7", "c:1", "redis://c:1/2"].map(str::to_owned);
        for (named, meant) in [
            ("a", "redis://:pw@a/1"),
            ("a:6379", "redis://:pw@a/1"),
            ("a:1", "a:1"),
            ("b:6380", "rediss://b:6380"),
            ("[::1]:7", "redis://:pw@[::1]:7"),
            ("redis://a", "redis://a"),
            ("c:1", "c:1"),
            ("u@a", "u@a"),
        ] {
            assert_eq!(of_the_list(named.to_owned(), &list), meant);
        }
    }

    #[test]
    fn an_address_loses_its_user_and_nothing_else() {
        for (address, without) in [
            ("redis://u:p%40@host:1/2", "redis://host:1/2"),
            ("rediss://:p@[::1]:1", "rediss://[::1]:1"),
            ("u:p@host:1", "host:1"),
            ("host:1", "host:1"),
            ("unix:///a/b", "unix:///a/b"),
        ] {
            assert_eq!(without_user(address), without);
        }
    }
}
