//! `redquorum` on the command line: runs commands under a lock, and shows operators what the instances do.

mod admission;
mod bench;
mod check;
mod cli;
mod clock;
mod config;
mod documents;
mod elect;
mod exit;
mod inspect;
mod list;
mod output;
mod release;
mod roles;
mod run;
mod settings;
mod status;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};
use exit::{Code, Failure};
use settings::Settings;

/// Renewals continue beside output and waits.
const WORKERS: usize = 2;

#[cfg(not(unix))]
compile_error!("the command line needs Unix: process groups, signals and terminals");

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next().as_deref().and_then(|role| role.to_str()) {
        Some(roles::EXEC) => return run::exec_command(args).report(),
        Some(roles::WATCHDOG) => return run::watch().report(),
        Some(roles::SIGNAL) => {
            return roles::be_ended(args).unwrap_or_else(|| exit::not_for_people(roles::SIGNAL).report());
        }
        _ => {}
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return exit::of_parser(&error),
    };
    if let Err(error) = can_start_threads() {
        return Failure::new(Code::OsError, format!("no threads could be started: {error}")).report();
    }
    // The command is started and watched on this thread, which lives as long as the process; renewal has others.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return Failure::new(Code::OsError, format!("no threads could be started: {error}")).report(),
    };
    match runtime.block_on(carry_out(cli)) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

/// Whether the runtime can have its threads: it panics where it gets none.
fn can_start_threads() -> std::io::Result<()> {
    let threads = [(); WORKERS].map(|()| std::thread::Builder::new().spawn(|| {}));
    for thread in threads {
        let _ = thread?.join(); // it does nothing, and so does not panic
    }
    Ok(())
}

async fn carry_out(cli: Cli) -> Result<ExitCode, Failure> {
    let settings = || Settings::gather(&cli.common);
    match cli.command {
        Command::Run(args) => run::run(args, &settings()?).await,
        Command::Elect(args) => elect::elect(args, &settings()?).await,
        Command::Status(args) => status::status(&args, &settings()?).await,
        Command::Inspect(args) => inspect::inspect(&args, &settings()?).await,
        Command::List(args) => list::list(&args, &settings()?).await,
        Command::Release(args) => release::release(&args, &settings()?).await,
        Command::Check(args) => check::check(&args, &settings()?).await,
        Command::Admission(command) => admission::admission(&command, &settings()?).await,
        Command::Config(command) => config::config(&command, &cli.common),
        Command::Bench(args) => bench::bench(&args, &settings()?).await,
        Command::Completions { shell } => documents::completions(shell),
        Command::Man => documents::man(),
    }
}
