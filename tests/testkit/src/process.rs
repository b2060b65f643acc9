//! One run of a server, from its start to its end.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::server::{SENTINEL_FILE, Settings};
use crate::{Client, Error, home, wait_until};

/// How long a server may take until it answers. It takes some ten milliseconds; a busy machine more.
const PATIENCE: Duration = Duration::from_secs(20);
const LOG: &str = "server.log";
const LOG_LINES: usize = 15;

/// A child that the clearing shell knows. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
}

/// What became of an attempt to start.
pub(crate) enum Launch {
    Ready(Running),
    /// Another process listens on the port.
    PortTaken(Error),
}

impl Running {
    pub(crate) fn launch(settings: &Settings, dir: &Path, port: u16) -> Result<Launch, Error> {
        let mut running = Self::spawn(settings, dir, port)?;
        let mut exit = None;
        let ready = wait_until(PATIENCE, || {
            exit = running.child.try_wait().ok().flatten();
            exit.is_some() || answers(dir, port)
        });
        let log = || fs::read_to_string(dir.join(LOG)).unwrap_or_default();
        let failed = |reason: String| {
            let lines: Vec<_> = log().lines().map(str::to_owned).collect();
            let log = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n");
            Error::Start { program: settings.program.to_string(), port, reason, log }
        };
        match (exit, ready) {
            (None, true) => Ok(Launch::Ready(running)),
            (None, false) => Err(failed(format!("did not answer within {PATIENCE:?}"))),
            (Some(status), _) if log().contains("Address already in use") => {
                Ok(Launch::PortTaken(failed(format!("could not listen ({status})"))))
            }
            (Some(status), _) => Err(failed(format!("ended at once ({status})"))),
        }
    }

    fn spawn(settings: &Settings, dir: &Path, port: u16) -> Result<Self, Error> {
        let doing = format!("start {}", settings.program.path().display());
        let log = File::create(dir.join(LOG)).map_err(Error::io(&*doing))?;
        let err = log.try_clone().map_err(Error::io(&*doing))?;
        let mut command = Command::new(settings.program.path());
        if settings.sentinel {
            command.arg(dir.join(SENTINEL_FILE)).arg("--sentinel");
        }
        let child = command
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--daemonize", "no", "--port"])
            .arg(port.to_string())
            .arg("--dir")
            .arg(dir)
            .args(settings.tls_port.into_iter().flat_map(|port| ["--tls-port".to_owned(), port.to_string()]))
            .args(&settings.args)
            .envs(settings.env.iter().map(|(name, value)| (name, value)))
            .current_dir(dir)
            .process_group(0) // a Ctrl-C is for the program under test, which may want to release its locks
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(err)
            .spawn()
            .map_err(Error::io(doing))?;
        let running = Self { child };
        home::watch(running.pid())?;
        Ok(running)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<(), Error> {
        kill_process(Pid::from_child(&self.child), signal)
            .map_err(|error| Error::io(format!("signal process {}", self.pid()))(io::Error::from(error)))
    }

    fn end(&mut self) -> Result<(), Error> {
        let told = home::unwatch(self.pid());
        self.child.kill().map_err(Error::io(format!("kill process {}", self.pid())))?; // ends a stopped one too
        self.child.wait().map_err(Error::io(format!("wait for process {}", self.pid())))?;
        told
    }

    /// Kills it and waits for its end.
    pub(crate) fn kill(mut self) -> Result<(), Error> {
        self.end() // and once more in drop, which finds it ended
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // There is nobody to tell of an error. One that ended by itself must leave the list as well.
        drop(if self.is_alive() { self.end() } else { home::unwatch(self.pid()) });
    }
}

/// Whether *this* server answers: its own log must say so first, as the port may be another's.
fn answers(dir: &Path, port: u16) -> bool {
    let log = fs::read_to_string(dir.join(LOG)).unwrap_or_default();
    (log.contains("Ready to accept connections") || log.contains("Sentinel ID is"))
        && match Client::connect(port, Duration::from_secs(1)).and_then(|mut client| client.command(&["PING"])) {
            Ok(_) => true,
            Err(Error::Refused(text)) => !text.starts_with("LOADING"), // NOAUTH is an answer
            Err(_) => false,
        }
}
