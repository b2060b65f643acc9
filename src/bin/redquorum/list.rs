//! `redquorum list`: the locks that there are.

use std::process::ExitCode;

use redquorum::Inspection;
use serde_json::{Value, json};

use crate::cli::ListArgs;
use crate::exit::{Code, Failure};
use crate::inspect::{alike, name_of, shown, to_json, unknown};
use crate::output::{self, Look, Table, time, with_colours};
use crate::settings::Settings;

pub(crate) async fn list(args: &ListArgs, settings: &Settings) -> Result<ExitCode, Failure> {
    let redlock = settings.connected_to_look().await?;
    let count = usize::try_from(args.count).unwrap_or(usize::MAX);
    let listing = redlock.list_page(&args.pattern, args.most, &args.after, count).await;
    let instances = redlock.instances().len();
    if args.form.json {
        output::write_json(&json!({
            "locks": listing.locks.iter().map(to_json).collect::<Vec<Value>>(),
            "next": listing.next,
            "is_complete": listing.is_complete,
            "unknown": unknown(&listing.unknown),
        }))?;
    } else {
        output::write(table(&listing.locks, instances).render(with_colours()).as_bytes())?;
        for (addresses, reason) in alike(&listing.unknown) {
            output::say(&format!("unknown on {addresses}: {reason}"));
        }
        if let Some(next) = &listing.next {
            output::say(&format!("there are more locks: list --after {next}"));
        }
        if !listing.is_complete {
            output::say("there are more keys; look at more of them with --most");
        }
    }
    // What a quorum has, at least one of so many instances shows.
    if listing.unknown.len() >= settings.quorum_of(instances) {
        return Err(Failure::new(Code::NoQuorum, "too few instances answered"));
    }
    Ok(ExitCode::SUCCESS)
}

fn table(locks: &[Inspection], instances: usize) -> Table {
    let mut table = Table::new(&["RESOURCE", "HELD BY", "ON", "EXPIRES IN"]);
    for lock in locks {
        for holder in &lock.holders {
            let has_quorum = holder.on.len() >= lock.quorum;
            let look = if has_quorum { Look::Plain } else { Look::Doubtful };
            table.row(vec![
                (shown(&lock.resource), Look::Plain),
                (name_of(holder), Look::Plain),
                (format!("{}/{instances}", holder.on.len()), look),
                (holder.expires_in.map_or("never".to_owned(), time), Look::Plain),
            ]);
        }
    }
    table
}
