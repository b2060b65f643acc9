//! MariaDB as a process of its own, reached over a socket in its directory, for statements by its command line client.

use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use crate::database::{new_dir, user_of};
use crate::{Outcome, ms, now};

/// Ends the server when the program ends, in any way: that closes the input of `cat`.
const SERVE: &str = r#"
mariadb-install-db --no-defaults --datadir="$1"/data --auth-root-authentication-method=normal --skip-test-db >"$1"/log 2>&1 || exit 1
"$2" --no-defaults --datadir="$1"/data --socket="$1"/socket --skip-networking --pid-file="$1"/pid >>"$1"/log 2>&1 &
cat >/dev/null
kill -TERM $!
wait
rm -rf "$1"
"#;

/// How long it may take to come up on a busy machine.
const PATIENCE: std::time::Duration = ms(60_000);

/// The server; it ends with the value.
#[derive(Debug)]
pub struct MariaDb {
    shell: Child,
    dir: PathBuf,
}

impl MariaDb {
    /// Starts one, if it is installed.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn start() -> Outcome<Option<Self>> {
        let programs =
            ["/usr/sbin/mariadbd", "/usr/bin/mariadbd", "/opt/homebrew/bin/mariadbd", "/usr/local/bin/mariadbd"];
        let Some(program) = programs.into_iter().find(|program| Path::new(program).is_file()) else { return Ok(None) };
        let dir = new_dir()?;
        let mut command = Command::new("sh");
        command.args(["-c", SERVE, "mariadb"]).arg(&dir).arg(program).current_dir(&dir).stdin(Stdio::piped());
        command.process_group(0); // what a terminal sends to our group must not end it before us
        if rustix::process::geteuid().is_root() {
            let (user, group) = user_of("mysql").or_else(|| user_of("nobody")).ok_or("no user for MariaDB")?;
            std::os::unix::fs::chown(&dir, Some(user), Some(group))?;
            command.uid(user).gid(group);
        }
        let mut server = Self { shell: command.spawn()?, dir };
        let begun = now();
        while let Err(error) = server.execute("CREATE DATABASE IF NOT EXISTS example") {
            if begun.elapsed() > PATIENCE || server.shell.try_wait()?.is_some() {
                let log = fs::read_to_string(server.dir.join("log")).unwrap_or_default();
                return Err(format!("MariaDB does not come up: {error}\n{log}").into());
            }
            thread::sleep(ms(100));
        }
        Ok(Some(server))
    }

    /// Carries out statements, and gives what they answer.
    ///
    /// # Errors
    /// What the server says.
    pub fn execute(&self, statements: &str) -> Outcome<String> {
        let mut client = Command::new("mariadb")
            .args(["--no-defaults", "--user=root", "--skip-column-names", "--batch"])
            .arg(format!("--socket={}", self.dir.join("socket").display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut input = client.stdin.take().ok_or("it has no input")?;
        let database = if statements.starts_with("CREATE DATABASE") { "" } else { "USE example;\n" };
        writeln!(input, "{database}{statements};")?;
        drop(input);
        let output = client.wait_with_output()?;
        if output.status.success() {
            Ok(String::from_utf8(output.stdout)?)
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into())
        }
    }
}

impl Drop for MariaDb {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        drop(self.shell.wait());
        drop(fs::remove_dir_all(&self.dir)); // no caller can handle it
    }
}
