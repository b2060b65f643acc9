//! `redquorum status`: how the instances do, and whether a quorum could vote now.

mod observed;
mod problems;
mod view;

use std::process::ExitCode;
use std::time::Duration;

use redquorum::Redlock;
use tokio::time::{sleep, timeout};

use crate::cli::StatusArgs;
use crate::exit::{Code, Failure};
use crate::output::{self, with_colours};
use crate::settings::{Settings, is_connecting};
pub(crate) use observed::observe;
use view::Status;
pub(crate) use view::persistence;

/// How often it is looked whether all instances are connected.
const POLL: Duration = Duration::from_millis(10);

/// From the upper left corner on, and nothing below.
const HOME: &str = "\x1b[H\x1b[J";

pub(crate) async fn status(args: &StatusArgs, settings: &Settings) -> Result<ExitCode, Failure> {
    let redlock = settings.judging_client()?;
    if args.quiet {
        let _ = settings.connect(&redlock, settings.connect_timeout).await; // a minority that hangs is not waited for
        return Status::gather(&redlock, settings).await.verdict();
    }
    settle(&redlock, settings).await;
    loop {
        let status = Status::gather(&redlock, settings).await;
        let colours = with_colours();
        if args.form.json {
            output::write_json(&status.to_json())?;
        } else {
            let home = if args.watch.is_some() && output::is_terminal() { HOME } else { "" };
            output::write(format!("{home}{}", status.in_words(colours)).as_bytes())?;
        }
        let Some(interval) = args.watch else {
            return if status.can_lock() { Ok(ExitCode::SUCCESS) } else { Ok(Code::NoQuorum.into()) };
        };
        sleep(interval).await;
    }
}

/// Waits until it is known of every instance whether it can be used, as far as that takes no longer than a connection may.
pub(crate) async fn settle(redlock: &Redlock, settings: &Settings) {
    let all_known = async {
        while redlock.instances().iter().any(is_connecting) {
            sleep(POLL).await;
        }
    };
    let _ = timeout(settings.connect_timeout, all_known).await;
}
