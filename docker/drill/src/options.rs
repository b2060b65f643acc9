//! The command line of `drill run`.

use crate::Outcome;
use crate::client::LockLibrary;
use crate::stage::Server;

pub(crate) const USAGE: &str = "usage:
  drill run [--scenario NAME,..] [--server redis|valkey|both] [--guards on|off] [--order on|off] [--peer rslock|last-first] [--controls]
            [--quick] [--mixture SECONDS] [--seed N] [--image NAME] [--report DIR]
  drill list

  --scenario   only these (`drill list`, or mixture); all by default
  --guards off classic Redlock instead of this library with its guards; --peer rslock: another library;
               --order off: this one without order between the clients that wait;
               --peer last-first: this one behind a planted bug in the order of those who wait
  --controls   guards on, then those with whom a scenario must be violated or is compared
  --quick      a few scenarios and a short mixture, for CI";

#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) scenarios: Vec<String>,
    pub(crate) servers: Vec<Server>,
    pub(crate) peer: LockLibrary,
    pub(crate) controls: bool,
    pub(crate) quick: bool,
    pub(crate) mixture_seconds: Option<f64>,
    pub(crate) seed: u64,
    pub(crate) image: String,
    pub(crate) report: String,
    /// To repeat the run.
    pub(crate) command: String,
}

impl Options {
    pub(crate) fn parse(words: &[&str]) -> Outcome<Self> {
        let mut options = Self {
            scenarios: Vec::new(),
            servers: vec![Server::Redis, Server::Valkey],
            peer: LockLibrary::WithAdmission,
            controls: false,
            quick: false,
            mixture_seconds: None,
            seed: crate::clock::now() / crate::clock::MILLI,
            image: "redquorum-local".to_owned(),
            report: "target/drill".to_owned(),
            command: String::new(),
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "--controls" => options.controls = true,
                "--quick" => options.quick = true,
                flag => {
                    let value = *words.next().ok_or_else(|| format!("{flag}: unknown, or needs a value\n{USAGE}"))?;
                    options.set(flag, value)?;
                }
            }
        }
        options.command = options.to_string();
        Ok(options)
    }

    fn set(&mut self, flag: &str, value: &str) -> Outcome {
        match (flag, value) {
            ("--scenario", _) => self.scenarios = value.split(',').map(str::to_owned).collect(),
            ("--server", "redis") => self.servers = vec![Server::Redis],
            ("--server", "valkey") => self.servers = vec![Server::Valkey],
            ("--server", "both") | ("--guards" | "--order", "on") | ("--peer", "redquorum") => {}
            ("--order", "off") => self.peer = LockLibrary::WithoutOrder,
            ("--guards", "off") => self.peer = LockLibrary::WithoutAdmission,
            ("--peer", "rslock") => self.peer = LockLibrary::Rslock,
            ("--peer", "last-first") => self.peer = LockLibrary::LastFirst,
            ("--mixture", _) => self.mixture_seconds = Some(value.parse()?),
            ("--seed", _) => self.seed = value.parse()?,
            ("--image", _) => self.image = value.to_owned(),
            ("--report", _) => self.report = value.to_owned(),
            _ => return Err(format!("{flag} {value}: not understood\n{USAGE}").into()),
        }
        Ok(())
    }
}

impl std::fmt::Display for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "drill run --seed {}", self.seed)?;
        if !self.scenarios.is_empty() {
            write!(f, " --scenario {}", self.scenarios.join(","))?;
        }
        if let [server] = self.servers.as_slice() {
            write!(f, " --server {}", server.program().trim_end_matches("-server"))?;
        }
        match self.peer {
            LockLibrary::WithAdmission => {}
            LockLibrary::WithoutAdmission => write!(f, " --guards off")?,
            LockLibrary::WithoutOrder => write!(f, " --order off")?,
            LockLibrary::Rslock => write!(f, " --peer rslock")?,
            LockLibrary::LastFirst => write!(f, " --peer last-first")?,
        }
        if let Some(seconds) = self.mixture_seconds {
            write!(f, " --mixture {seconds}")?;
        }
        let flags = [("--controls", self.controls), ("--quick", self.quick)];
        flags.iter().filter(|(_, set)| *set).try_for_each(|(flag, _)| write!(f, " {flag}"))
    }
}
