//! `redquorum inspect`: who has a lock.

use std::process::ExitCode;

use redquorum::{Cause, CurrentHolder, FoundHolder, HolderKind, Inspection, Unanswered};
use serde_json::{Value, json};

use crate::cli::InspectArgs;
use crate::exit::{Code, Failure};
use crate::output::{self, time};
use crate::settings::Settings;

pub(crate) async fn inspect(args: &InspectArgs, settings: &Settings) -> Result<ExitCode, Failure> {
    let redlock = settings.connected_to_look().await?;
    let inspection = redlock.inspect(args.resource.as_str()).await?;
    if args.form.json {
        output::write_json(&to_json(&inspection))?;
    } else if !args.quiet {
        output::write(in_words(&inspection, redlock.instances().len()).as_bytes())?;
    }
    is_known(&inspection, redlock.instances().len())?;
    Ok(if inspection.holder().is_some() { ExitCode::SUCCESS } else { Code::Free.into() })
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
        format!("fewer than {needed} instances answered: {}", reasons(&inspection.unknown)),
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
    for (addresses, reason) in alike(&inspection.unknown) {
        text.push_str(&format!("  unknown on {addresses}: {}\n", output::with_options(&reason.to_string())));
    }
    text
}

fn holder_in_words(holder: &FoundHolder, quorum: usize, instances: usize) -> String {
    let token = holder.token.map(|token| format!(", token {token}")).unwrap_or_default();
    let left = holder.expires_in.map_or(", never expires".to_owned(), |left| format!(", expires in {}", time(left)));
    let few = if holder.on.len() < quorum { ", fewer than a quorum" } else { "" };
    let how = match holder.by.kind {
        HolderKind::WaitingWriter => "waited for by",
        HolderKind::Reader => "read by",
        _ => "held by",
    };
    format!("{how} {} on {} of {instances}{few}{token}{left}", holder.by, holder.on.len())
}

/// A name for a line of a terminal.
pub(crate) fn shown(name: &str) -> String {
    name.escape_debug().collect()
}

pub(crate) fn to_json(inspection: &Inspection) -> Value {
    let holders = inspection.holders.iter().map(|holder| {
        json!({
            "by": by(&holder.by),
            "token": holder.token.map(|token| token.to_string()),
            "expires_in_ms": holder.expires_in.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX)),
            "on": holder.on,
        })
    });
    json!({
        "resource": inspection.resource,
        "is_held": inspection.holder().is_some(),
        "quorum": inspection.quorum,
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
