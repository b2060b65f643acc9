//! Starting a command so that it does not outlive this program.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use nix::unistd::{Pid, getppid};

use super::group::Group;
use super::terminal::take_from_parent;
use crate::cli::RunArgs;
use crate::exit::{Code, Failure, not_for_people};
use crate::roles::{EXEC, own_program};
use crate::settings::SECRETS;

/// For a command that has the terminal from its beginning.
const TAKES_TERMINAL: &str = "terminal";

/// Starts the command in a process group of its own. It must be called on a thread that lives as long as this process:
/// to the kernel that thread is the parent.
pub(super) fn start(
    args: &RunArgs,
    takes_terminal: bool,
    environment: Vec<(&'static str, OsString)>,
) -> io::Result<Group> {
    let mut command = Command::new(own_program()?);
    command
        .arg0("redquorum")
        .arg(EXEC)
        .arg(std::process::id().to_string())
        .arg(if takes_terminal { TAKES_TERMINAL } else { "-" })
        .args(&args.command)
        .stdin(Stdio::inherit())
        .process_group(0);
    if !args.pass_environment {
        for name in SECRETS {
            command.env_remove(name);
        }
    }
    Ok(Group::new(command.envs(environment).spawn()?.id()))
}

/// Becomes the command, which is killed if the parent dies, where the system can do that.
pub(crate) fn exec_command(mut args: impl Iterator<Item = OsString>) -> Failure {
    let parent = args.next().and_then(|parent| parent.to_str()?.parse::<i32>().ok());
    let takes_terminal = args.next().is_some_and(|word| word == TAKES_TERMINAL);
    let (Some(parent), Some(command)) = (parent, args.next()) else {
        return not_for_people(EXEC);
    };
    #[cfg(target_os = "linux")]
    if let Err(error) = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL) {
        return Failure::new(Code::OsError, format!("no signal for the death of the parent: {error}"));
    }
    // It may have died before that.
    if getppid().as_raw() != parent {
        return Failure::new(Code::OsError, "");
    }
    if takes_terminal {
        take_from_parent(Pid::from_raw(parent));
    }
    let error = Command::new(&command).args(args).exec();
    let code = if error.kind() == io::ErrorKind::NotFound { Code::NotFound } else { Code::CannotRun };
    Failure::new(code, format!("cannot run {}: {error}", shown(&command)))
}

fn shown(command: &OsStr) -> String {
    command.to_string_lossy().escape_debug().collect()
}
