//! This program as a candidate: it leads as often as it can, and says from when to when.

use std::io::{self, BufRead, Write};
use std::sync::Arc;

use tokio::runtime::Builder;
use tokio::sync::Notify;

use crate::section::now;
use crate::{Outcome, admitted};

/// Makes this program a candidate.
pub(crate) const ARGUMENT: &str = "candidate";

/// What it is all about.
pub(crate) const ELECTION: &str = "election";

/// What a candidate says: with the time, and with its token where it has led.
pub(crate) const READY: &str = "ready";
pub(crate) const LEADS: &str = "leads";
pub(crate) const LOST: &str = "lost";

/// What it is told.
pub(crate) const RESIGN: &str = "resign";

/// The arguments are what it says of itself, and where the instances are.
pub(crate) fn run(mut arguments: impl Iterator<Item = String>) -> Outcome {
    let info = arguments.next().ok_or("a candidate needs a name")?;
    let resign = Arc::new(Notify::new());
    std::thread::spawn({
        let resign = Arc::clone(&resign);
        move || listen(&resign)
    });
    Builder::new_multi_thread().enable_all().build()?.block_on(campaign(&info, arguments.collect(), &resign))
}

async fn campaign(info: &str, addresses: Vec<String>, resign: &Notify) -> Outcome {
    let redlock = admitted::connect(addresses).await?;
    let election = redlock.election(ELECTION);
    say(READY, 0)?;
    loop {
        let leadership = election.campaign(info).await?;
        let token = leadership.fencing_token().get();
        say(LEADS, token)?;
        let lost = tokio::select! {
            _ = leadership.lost() => true,
            () = resign.notified() => false,
        };
        if lost {
            say(LOST, token)?;
        } else {
            leadership.resign().await?;
        }
    }
}

fn say(what: &str, token: u64) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{what} {} {token}", now())?;
    out.flush()
}

/// Ends the candidate with its parent, who keeps the pipe open for as long as it lives.
fn listen(resign: &Notify) {
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        if line == RESIGN {
            resign.notify_one();
        }
    }
    std::process::exit(1);
}
