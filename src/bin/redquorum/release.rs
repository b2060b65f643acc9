//! `redquorum release`: takes a lock away from its holder.

use std::io::{IsTerminal, Write, stderr, stdin};
use std::process::ExitCode;

use redquorum::{CurrentHolder, FoundHolder, Inspection, Redlock, Unanswered};
use serde_json::json;

use crate::cli::ReleaseArgs;
use crate::exit::{Code, Failure};
use crate::inspect::{is_known, name_of, reasons, shown, unknown};
use crate::output;
use crate::settings::Settings;

pub(crate) async fn release(args: &ReleaseArgs, settings: &Settings) -> Result<ExitCode, Failure> {
    let redlock = settings.connected_to_look().await?;
    let inspection = redlock.inspect(args.resource.as_str()).await?;
    is_known(&inspection, redlock.instances().len())?;
    if inspection.holders.is_empty() {
        print(args, &[], &[], &format!("no client has {}", shown(&args.resource)))?;
        return Ok(Code::Free.into());
    }
    let is_named = |found: &&FoundHolder| args.holder.is_none() || found.by.holder == args.holder;
    // What is no lock of this library may be data.
    let ours = inspection.holders.iter().filter(|found| found.other_type.is_none());
    let theirs: Vec<&FoundHolder> = ours.filter(is_named).collect();
    if theirs.is_empty() {
        return Err(Failure::new(
            Code::CONTENDED,
            format!("{} is held by {}", shown(&args.resource), all_of(&inspection.holders)),
        ));
    }
    if args.force && !args.yes && !is_agreed(args, &inspection)? {
        return Err(Failure::new(Code::Usage, "nothing was released"));
    }
    take_away(args, &redlock, &theirs).await
}

/// Several where no client has a quorum, or only one of them.
fn all_of<'a>(holders: impl IntoIterator<Item = &'a FoundHolder>) -> String {
    let each = holders.into_iter().map(|holder| {
        let stays = if holder.other_type.is_some() { ", which is not deleted" } else { "" };
        format!("{} on {}{stays}", name_of(holder), holder.on.join(", "))
    });
    each.collect::<Vec<_>>().join(", and by ")
}

async fn take_away(args: &ReleaseArgs, redlock: &Redlock, theirs: &[&FoundHolder]) -> Result<ExitCode, Failure> {
    let (mut released_on, mut unanswered, mut words, mut is_complete) = (Vec::new(), Vec::new(), Vec::new(), true);
    let mut taken: Vec<&CurrentHolder> = Vec::new();
    for holder in theirs {
        if taken.contains(&&holder.by) {
            continue; // they look alike, and all of them were taken away together
        }
        taken.push(&holder.by);
        let forced = redlock.force_release(args.resource.as_str(), &holder.by).await?;
        is_complete &= forced.is_complete();
        words.push(format!("{} on {}", holder.by, forced.released_on.len()));
        released_on.extend(forced.released_on);
        // Each release is for all of them; what one release learned another may not have.
        unanswered.extend(forced.unknown);
    }
    unanswered.sort_by(|one: &Unanswered, other| one.address.cmp(&other.address));
    unanswered.dedup_by(|one, other| one.address == other.address);
    let words = format!("{} is taken from {}", shown(&args.resource), words.join(" and "));
    print(args, &released_on, &unanswered, &words)?;
    if is_complete {
        return Ok(ExitCode::SUCCESS);
    }
    Err(Failure::new(Code::NoQuorum, format!("a quorum may still have it: {}", reasons(&unanswered))))
}

fn print(args: &ReleaseArgs, on: &[String], unanswered: &[Unanswered], words: &str) -> Result<ExitCode, Failure> {
    if args.form.json {
        return output::write_json(&json!({
            "resource": args.resource,
            "released_on": on,
            "unknown": unknown(unanswered),
        }));
    }
    output::write(format!("{words}\n").as_bytes())
}

/// Asks the user at the terminal.
fn is_agreed(args: &ReleaseArgs, inspection: &Inspection) -> Result<bool, Failure> {
    if !stdin().is_terminal() {
        return Err(Failure::new(Code::Usage, "standard input is no terminal; --yes releases without asking"));
    }
    let _ = write!(
        stderr(),
        "{} is held by {}, whose work may go on beside that of the next holder.\nTake it away? [y/N] ",
        shown(&args.resource),
        all_of(&inspection.holders)
    );
    let mut answer = String::new();
    let read = stdin().read_line(&mut answer).map_err(|error| Failure::new(Code::OsError, error.to_string()))?;
    Ok(read > 0 && ["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}
