//! What is generated from the description of the command line.

use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::cli::Cli;
use crate::exit::Failure;
use crate::output;

/// To be read by the shell.
pub(crate) fn completions(shell: Shell) -> Result<ExitCode, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "redquorum", &mut text);
    output::write(&text)
}

/// One page, with a section for each command.
pub(crate) fn man() -> Result<ExitCode, Failure> {
    let mut text = Vec::new();
    let mut command = Cli::command();
    command.build();
    let mut pages = vec![command.clone()];
    pages.extend(command.get_subcommands().filter(|it| it.get_name() != "help").cloned());
    for page in pages {
        // Writing to memory does not fail.
        let _ = Man::new(page).render(&mut text);
    }
    output::write(&text)
}
