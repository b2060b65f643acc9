//! A process that an example has started, and talks to by lines.

use std::env;
use std::ffi::OsStr;
use std::process::Stdio;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::{sleep, timeout};

use crate::{Outcome, ms};

/// No line of an example takes longer.
const PATIENCE: std::time::Duration = ms(60_000);

/// The process; it ends with the value.
#[derive(Debug)]
pub struct Worker {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    pub(crate) fn spawn(role: &[&str], environment: [(&str, String); 2]) -> Outcome<Self> {
        let mut command = Command::new(env::current_exe()?);
        // The user of the example may have settings for servers of their own.
        for (name, _) in env::vars_os().filter(|(name, _)| is_setting(name)) {
            command.env_remove(name);
        }
        command.args(role).envs(environment).stdout(Stdio::piped()).stdin(Stdio::null()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let output = child.stdout.take().ok_or("it has no output")?;
        Ok(Self { child, lines: BufReader::new(output).lines() })
    }

    /// The next line that it says.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    ///
    /// # Errors
    /// When it has ended, or says nothing for a minute.
    pub async fn line(&mut self) -> Outcome<String> {
        timeout(PATIENCE, self.lines.next_line()).await??.ok_or_else(|| "the process has ended".into())
    }

    /// The number in its next line.
    ///
    /// # Cancel safety
    /// As [`line`](Self::line).
    ///
    /// # Errors
    /// As [`line`](Self::line), and when it is no number.
    pub async fn number(&mut self) -> Outcome<i64> {
        Ok(self.line().await?.parse()?)
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// When it has ended.
    pub fn signal(&self, signal: Signal) -> Outcome {
        Ok(kill_process(self.id()?, signal)?)
    }

    /// Waits until a signal has stopped it.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    ///
    /// # Errors
    /// When it has ended, or goes on for a minute.
    pub async fn stopped(&self) -> Outcome {
        let (id, options) = (self.id()?, WaitIdOptions::STOPPED | WaitIdOptions::NOHANG);
        let until_stopped = async {
            while waitid(WaitId::Pid(id), options)?.is_none() {
                sleep(ms(5)).await;
            }
            Ok(())
        };
        timeout(PATIENCE, until_stopped).await?
    }

    fn id(&self) -> Outcome<Pid> {
        Ok(self.child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?)).ok_or("the process has ended")?)
    }

    /// Kills it, as a crash would, and waits for its end.
    ///
    /// # Cancel safety
    /// It is killed in any case.
    ///
    /// # Errors
    /// When the system refuses.
    pub async fn crash(mut self) -> Outcome {
        Ok(self.child.kill().await?)
    }

    /// Waits until it has ended by itself.
    ///
    /// # Cancel safety
    /// It is killed then.
    ///
    /// # Errors
    /// When it reports an error.
    pub async fn end(mut self) -> Outcome {
        let status = timeout(PATIENCE, self.child.wait()).await??;
        if status.success() { Ok(()) } else { Err(format!("a process ended with {status}").into()) }
    }
}

fn is_setting(name: &OsStr) -> bool {
    name.to_string_lossy().starts_with("REDQUORUM_")
}
