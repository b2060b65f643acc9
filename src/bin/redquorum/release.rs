//! `redquorum release`: takes a lock away from its holder.

use std::io::{IsTerminal, Write, stderr, stdin};
use std::process::ExitCode;

use redquorum::{FoundHolder, Redlock};
use serde_json::json;

use crate::cli::ReleaseArgs;
use crate::exit::{Code, Failure};
use crate::inspect::{is_known, shown, unknown};
use crate::output;
use crate::settings::Settings;

pub(crate) async fn release(args: &ReleaseArgs, settings: &Settings) -> Result<ExitCode, Failure> {
    let redlock = settings.connected().await?;
    let inspection = redlock.inspect(args.resource.as_str()).await?;
    is_known(&inspection, redlock.instances().len())?;
    let Some(first) = inspection.holders.first() else {
        return tell(args, &[], &[], &format!("nobody has {}", shown(&args.resource)));
    };
    let theirs: Vec<&FoundHolder> = match &args.holder {
        Some(holder) => inspection.holders.iter().filter(|found| found.by.holder.as_ref() == Some(holder)).collect(),
        None => inspection.holders.iter().collect(),
    };
    if theirs.is_empty() {
        return Err(Failure::new(Code::CONTENDED, format!("{} is held by {}", shown(&args.resource), first.by)));
    }
    if args.force && !args.yes && !is_agreed(args, first)? {
        return Err(Failure::new(Code::Usage, "nothing was released"));
    }
    take_away(args, &redlock, &theirs).await
}

async fn take_away(args: &ReleaseArgs, redlock: &Redlock, theirs: &[&FoundHolder]) -> Result<ExitCode, Failure> {
    let (mut released_on, mut not_told, mut is_complete) = (Vec::new(), Vec::new(), true);
    for holder in theirs {
        let forced = redlock.force_release(args.resource.as_str(), &holder.by).await?;
        is_complete &= forced.is_complete();
        released_on.extend(forced.released_on);
        not_told = forced.unknown;
    }
    let from: Vec<String> = theirs.iter().map(|holder| holder.by.to_string()).collect();
    let words = format!("{} is taken from {} on {}", shown(&args.resource), from.join(" and "), released_on.len());
    tell(args, &released_on, &not_told, &words)?;
    if is_complete {
        return Ok(ExitCode::SUCCESS);
    }
    let reasons: Vec<String> = not_told.iter().map(|(address, reason)| format!("{address}: {reason}")).collect();
    Err(Failure::new(Code::NoQuorum, format!("a quorum may still have it: {}", reasons.join("; "))))
}

fn tell(args: &ReleaseArgs, on: &[String], not_told: &[(String, String)], words: &str) -> Result<ExitCode, Failure> {
    if args.form.json {
        return output::write_json(&json!({
            "resource": args.resource,
            "released_on": on,
            "unknown": unknown(not_told),
        }));
    }
    output::write(format!("{words}\n").as_bytes())
}

/// Asks whoever is at the terminal.
fn is_agreed(args: &ReleaseArgs, holder: &FoundHolder) -> Result<bool, Failure> {
    if !stdin().is_terminal() {
        return Err(Failure::new(Code::Usage, "nobody is there to be asked; --yes releases without asking"));
    }
    let _ = write!(
        stderr(),
        "{} is held by {}, whose work may go on beside that of the next holder.\nTake it away? [y/N] ",
        shown(&args.resource),
        holder.by
    );
    let mut answer = String::new();
    let read = stdin().read_line(&mut answer).map_err(|error| Failure::new(Code::OsError, error.to_string()))?;
    Ok(read > 0 && ["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}
