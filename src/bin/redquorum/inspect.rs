//! `redquorum inspect`: who has a lock.

use std::process::ExitCode;

use redquorum::{Cause, CurrentHolder, FoundHolder, HolderKind, Inspection, Redlock, Unanswered};
use serde_json::{Value, json};

use crate::cli::InspectArgs;
use crate::exit::{Code, Failure};
use crate::output::{self, time};
use crate::settings::Settings;

/// A semaphore has no more.
const MOST_PERMITS: u32 = 256;

pub(crate) async fn inspect(args: &InspectArgs, settings: &Settings) -> Result<ExitCode, Failure> {
    let redlock = settings.connected_to_look().await?;
    let inspection = redlock.inspect(args.resource.as_str()).await?;
    if args.form.json {
        output::write_json(&to_json(&inspection))?;
    } else if !args.quiet {
        let text = in_words(&inspection, redlock.instances().len()) + &permits(args, &redlock, &inspection).await?;
        output::write(text.as_bytes())?;
    }
    is_known(&inspection, redlock.instances().len())?;
    Ok(if inspection.holder().is_some() { ExitCode::SUCCESS } else { Code::Free.into() })
}

/// The permits that are held where a name is free that may be a semaphore's.
async fn permits(args: &InspectArgs, redlock: &Redlock, inspection: &Inspection) -> Result<String, Failure> {
    if !inspection.holders.is_empty() {
        return Ok(String::new());
    }
    let permits = redlock.semaphore(args.resource.as_str(), MOST_PERMITS).inspect().await?;
    let held = permits.iter().enumerate().filter(|(_, permit)| permit.holder().is_some());
    let held: Vec<String> = held.map(|(index, _)| format!("#{index}")).collect();
    let text = || format!("  permits of a semaphore that are held: {}\n", held.join(", "));
    Ok(if held.is_empty() { String::new() } else { text() })
}

/// Why each of these instances has not answered.
pub(crate) fn reasons(unknown: &[Unanswered]) -> String {
    let reasons = alike(unknown).into_iter().map(|(addresses, reason)| format!("{addresses}: {reason}"));
    reasons.collect::<Vec<_>>().join("; ")
}

/// What several instances say alike, once, with all of their addresses.
pub(crate) fn alike(said: &[Unanswered]) -> Vec<(String, &Cause)> {
    let mut found: Vec<(String, &Cause)> = Vec::new();
    for Unanswered { address, cause, .. } in said {
        match found.iter_mut().find(|(_, other)| *other == cause) {
            Some((addresses, _)) => addresses.push_str(&format!(", {address}")),
            None => found.push((address.clone(), cause)),
        }
    }
    found
}

/// Whether enough instances have answered for their answers on the lock to count.
pub(crate) fn is_known(inspection: &Inspection, instances: usize) -> Result<(), Failure> {
    if instances - inspection.unknown.len() >= inspection.quorum {
        return Ok(());
    }
    let needed = inspection.quorum;
    Err(Failure::new(
        Code::NoQuorum,
        format!("fewer than {needed} instances could be read: {}", reasons(&inspection.unknown)),
    ))
}

fn in_words(inspection: &Inspection, instances: usize) -> String {
    let mut text = format!("{}\n", shown(&inspection.resource));
    for holder in &inspection.holders {
        text.push_str(&format!("  {}\n", holder_in_words(holder, inspection.quorum, instances)));
    }
    if !inspection.free_on.is_empty() {
        text.push_str(&format!(
            "  free on {} of {instances}: {}\n",
            inspection.free_on.len(),
            inspection.free_on.join(", ")
        ));
    }
    if let Some(token) = inspection.largest_token {
        text.push_str(&format!("  largest token {token}\n"));
    }
    for (addresses, reason) in alike(&inspection.unknown) {
        text.push_str(&format!("  unknown on {addresses}: {}\n", output::with_options(&reason.to_string())));
    }
    text
}

fn holder_in_words(holder: &FoundHolder, quorum: usize, instances: usize) -> String {
    let left = holder.expires_in.map_or(", never expires".to_owned(), |left| format!(", expires in {}", time(left)));
    let few = if holder.on.len() < quorum { ", fewer than a quorum" } else { "" };
    format!("{} on {} of {instances}{few}{left}", has(holder), holder.on.len())
}

/// Who has it, and how.
pub(crate) fn has(holder: &FoundHolder) -> String {
    let how = match holder.by.kind {
        _ if holder.other_type.is_some() => "blocked by",
        _ if holder.is_mark => "kept as",
        HolderKind::WaitingWriter => "kept for",
        _ => "held by",
    };
    format!("{how} {}", name_of(holder))
}

/// Who has it, or what stands there instead.
pub(crate) fn name_of(holder: &FoundHolder) -> String {
    match &holder.other_type {
        Some(other) => format!("another program's {}", shown(other)),
        None if holder.is_mark => format!("a mark of {}", holder.by),
        None => holder.by.to_string(),
    }
}

/// A name for a line of a terminal.
pub(crate) fn shown(name: &str) -> String {
    name.escape_debug().collect()
}

pub(crate) fn to_json(inspection: &Inspection) -> Value {
    let holders = inspection.holders.iter().map(|holder| {
        json!({
            "by": by(&holder.by),
            "other_type": holder.other_type,
            "is_mark": holder.is_mark,
            "expires_in_ms": holder.expires_in.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX)),
            "on": holder.on,
        })
    });
    json!({
        "resource": inspection.resource,
        "is_held": inspection.holder().is_some(),
        "quorum": inspection.quorum,
        "largest_token": inspection.largest_token.map(|token| token.to_string()),
        "holders": holders.collect::<Vec<_>>(),
        "free_on": inspection.free_on,
        "unknown": unknown(&inspection.unknown),
    })
}

fn by(by: &CurrentHolder) -> Value {
    json!({ "kind": by.kind.name(), "holder": by.holder, "label": by.label, "client": by.client })
}

/// Instances that did not answer, and why.
pub(crate) fn unknown(instances: &[Unanswered]) -> Value {
    let shown = |it: &Unanswered| {
        let reason = output::with_options(&it.cause.to_string());
        json!({ "address": it.address, "reason": reason })
    };
    instances.iter().map(shown).collect()
}
