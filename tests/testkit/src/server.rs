//! A server that a test may kill, restart and hang.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::process::{Launch, Running};
use crate::{Client, Error, Program, Reply, home, ports};

/// Until when a command of the kit itself must be answered.
const TIMEOUT: Duration = Duration::from_secs(2);

/// How often a taken port is tried again (a port of our own choice is chosen anew each time).
const TRIES: u32 = 40;
const TRY_PAUSE: Duration = Duration::from_millis(50);

/// Where a Sentinel, which does not start without, keeps its configuration.
pub(crate) const SENTINEL_FILE: &str = "sentinel.conf";

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) program: Program,
    pub(crate) args: Vec<OsString>,
    pub(crate) env: Vec<(OsString, OsString)>,
    port: Option<u16>,
    /// Beside the other; chosen anew with it.
    pub(crate) tls_port: Option<u16>,
    password: Option<String>,
    files: Vec<(String, String)>,
    pub(crate) sentinel: bool,
}

/// How a server is to be started; made by [`Server::builder`].
#[derive(Clone, Debug)]
pub struct ServerBuilder {
    settings: Settings,
}

impl ServerBuilder {
    /// Sets a directive of the server's configuration, as in `.config("maxmemory", "1mb")`.
    ///
    /// Later ones win. Without any: no persistence, bound to 127.0.0.1. With `appendonly yes` a
    /// restart finds the data again. `loglevel` must stay at `notice` or below, as the log tells
    /// when the server is ready.
    #[must_use]
    pub fn config(self, name: &str, value: &str) -> Self {
        self.args([format!("--{name}"), value.to_owned()])
    }

    /// Adds arguments as they are.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.settings.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets an environment variable, such as `LD_PRELOAD` for a clock of its own.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.settings.env.push((name.into(), value.into()));
        self
    }

    /// Writes a file into the server's directory, where relative names in the configuration lead;
    /// for `aclfile` and the like.
    #[must_use]
    pub fn file(mut self, name: &str, contents: &str) -> Self {
        self.settings.files.push((name.to_owned(), contents.to_owned()));
        self
    }

    /// Asks clients for a password (`requirepass`); the kit's own commands give it.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.settings.password = Some(password.to_owned());
        self.config("requirepass", password)
    }

    /// Listens on a second port with TLS, with these files as PEM; clients must show a certificate too if `mutual`. What a
    /// server that was built without TLS says to it is an error at the start.
    #[must_use]
    pub fn tls(mut self, ca: &str, certificate: &str, key: &str, mutual: bool) -> Self {
        self.settings.tls_port = Some(0);
        self.file("ca.pem", ca)
            .file("server.pem", certificate)
            .file("server.key", key)
            .config("tls-ca-cert-file", "ca.pem")
            .config("tls-cert-file", "server.pem")
            .config("tls-key-file", "server.key")
            .config("tls-auth-clients", if mutual { "yes" } else { "no" })
    }

    /// Starts a Sentinel, which knows no data and few commands.
    #[must_use]
    pub fn sentinel(mut self) -> Self {
        self.settings.sentinel = true;
        self.file(SENTINEL_FILE, "")
    }

    /// Listens on this port instead of a free one.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.settings.port = Some(port);
        self
    }

    /// Starts the server and waits until it answers.
    ///
    /// # Errors
    /// When it does not come up; the text has the end of its log.
    pub fn start(self) -> Result<Server, Error> {
        let Self { settings } = self;
        let mut server = Server { dir: home::new_dir()?, port: 0, running: Mutex::new(None), settings };
        for (name, contents) in &server.settings.files {
            let path = server.dir.join(name);
            fs::write(&path, contents).map_err(Error::io(format!("write {}", path.display())))?;
        }
        let mut tries = 1;
        loop {
            server.port = server.settings.port.map_or_else(ports::free_port, Ok)?;
            if let Some(port) = &mut server.settings.tls_port {
                *port = ports::free_port()?;
            }
            match Running::launch(&server.settings, &server.dir, server.port)? {
                Launch::Ready(running) => {
                    *server.slot() = Some(running);
                    return Ok(server);
                }
                Launch::PortTaken(error) => again(&mut tries, error)?,
            }
        }
    }
}

fn again(tries: &mut u32, error: Error) -> Result<(), Error> {
    if *tries >= TRIES {
        return Err(error);
    }
    *tries += 1;
    thread::sleep(TRY_PAUSE);
    Ok(())
}

/// A server process with its directory. Both end when it is dropped.
///
/// All methods take `&self`: a test may kill a server while tasks of its own hold a reference.
pub struct Server {
    settings: Settings,
    dir: PathBuf,
    port: u16,
    running: Mutex<Option<Running>>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on port {}", self.settings.program, self.port)
    }
}

impl Server {
    /// Starts an empty server that keeps nothing on disk, on a free port.
    ///
    /// # Errors
    /// When it does not come up; the text has the end of its log.
    pub fn start(program: &Program) -> Result<Self, Error> {
        Self::builder(program).start()
    }

    /// Starts a server with settings of your own.
    #[must_use]
    pub fn builder(program: &Program) -> ServerBuilder {
        let (args, env, files) = (Vec::new(), Vec::new(), Vec::new());
        let program = program.clone();
        let settings =
            Settings { program, args, env, port: None, tls_port: None, password: None, files, sentinel: false };
        ServerBuilder { settings }
    }

    /// What runs here.
    #[must_use]
    pub const fn program(&self) -> &Program {
        &self.settings.program
    }

    /// Its port on 127.0.0.1, the same after a restart.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Its second port on 127.0.0.1, with TLS, the same after a restart; none unless it was asked for.
    #[must_use]
    pub const fn tls_port(&self) -> Option<u16> {
        self.settings.tls_port
    }

    /// Its address, such as `redis://127.0.0.1:20001`; without the password.
    #[must_use]
    pub fn address(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Its working directory, gone after the drop.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Its process id; none after [`Self::kill`].
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.slot().as_ref().map(Running::pid)
    }

    /// Whether the process lives. A hung one does.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.slot().as_mut().is_some_and(Running::is_alive)
    }

    /// Kills the process (SIGKILL) and waits for its end; nothing if it was killed before.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn kill(&self) -> Result<(), Error> {
        self.slot().take().map_or(Ok(()), Running::kill)
    }

    /// Kills it if it runs, and starts it on the same port: empty, unless it was told to keep data.
    ///
    /// # Errors
    /// When it does not come up, or its port stays taken for a few seconds.
    pub fn restart(&self) -> Result<(), Error> {
        let mut slot = self.slot();
        slot.take().map_or(Ok(()), Running::kill)?;
        let mut tries = 1;
        loop {
            match Running::launch(&self.settings, &self.dir, self.port)? {
                Launch::Ready(running) => {
                    *slot = Some(running);
                    return Ok(());
                }
                Launch::PortTaken(error) => again(&mut tries, error)?,
            }
        }
    }

    /// Stops the process (SIGSTOP): the system still accepts connections for it, nobody answers.
    ///
    /// # Errors
    /// When it is not running.
    pub fn hang(&self) -> Result<(), Error> {
        self.signal(Signal::STOP)
    }

    /// Lets a hung process go on; it then answers what came meanwhile.
    ///
    /// # Errors
    /// When it is not running.
    pub fn resume(&self) -> Result<(), Error> {
        self.signal(Signal::CONT)
    }

    /// A connection for several commands.
    ///
    /// # Errors
    /// When it is not running or refuses the password.
    pub fn client(&self) -> Result<Client, Error> {
        let mut client = Client::connect(self.port, TIMEOUT)?;
        if let Some(password) = &self.settings.password {
            client.command(&["AUTH", password])?;
        }
        Ok(client)
    }

    /// Sends one command over a connection of its own.
    ///
    /// # Errors
    /// When it refuses, or does not answer within two seconds.
    pub fn command<A: AsRef<[u8]>>(&self, args: &[A]) -> Result<Reply, Error> {
        self.client()?.command(args)
    }

    fn signal(&self, signal: Signal) -> Result<(), Error> {
        self.slot().as_ref().ok_or(Error::NotRunning { port: self.port })?.signal(signal)
    }

    fn slot(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.kill()); // there is nobody to tell; the clearing shell has it on its list
        drop(fs::remove_dir_all(&self.dir));
    }
}
