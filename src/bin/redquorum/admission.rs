//! `redquorum admission`: the records that let instances vote.

use std::process::ExitCode;
use std::time::Duration;

use redquorum::Redlock;
use redquorum::operator::{AdmissionRecords, RecordsError, ShownRecord};
use serde_json::{Value, json};

use crate::cli::{AdmissionCommand, OpenArgs, SetArgs};
use crate::exit::{Code, Failure};
use crate::output::{self, Look, Table, time, with_colours, with_options};
use crate::settings::Settings;
use crate::status::settle;

pub(crate) async fn admission(command: &AdmissionCommand, settings: &Settings) -> Result<ExitCode, Failure> {
    match command {
        AdmissionCommand::Show { form } => show(form.json, settings).await,
        AdmissionCommand::Open(args) => open(args, settings).await,
        AdmissionCommand::Set(args) => set(args, settings).await,
    }
}

async fn records(settings: &Settings, is_dry_run: bool) -> Result<(Redlock, AdmissionRecords), Failure> {
    if !settings.has_admission() {
        return Err(Failure::new(Code::Usage, "without admission there are no records"));
    }
    let redlock = settings.operating_client()?;
    settle(&redlock, settings).await;
    let records = redlock.admission_records();
    Ok((redlock, if is_dry_run { records.dry_run() } else { records }))
}

async fn open(args: &OpenArgs, settings: &Settings) -> Result<ExitCode, Failure> {
    let longest_ttl = settings.given_quarantine()?;
    let (redlock, records) = records(settings, args.dry_run).await?;
    records.open(args.no_lock_was_held_within).await?;
    done(
        &redlock,
        args.dry_run,
        ["would vote, for ttls", "votes from now on, for ttls", "vote from now on, for ttls"],
        longest_ttl,
    )
}

async fn set(args: &SetArgs, settings: &Settings) -> Result<ExitCode, Failure> {
    let longest_ttl = settings.given_quarantine()?;
    let (redlock, records) = records(settings, args.dry_run).await?;
    let found = records.show().await;
    let former: Vec<_> = found.iter().filter_map(|shown| shown.longest_ttl).filter(|it| *it > longest_ttl).collect();
    let wait = former.iter().max().map(|longest| time(*longest));
    if let Some(wait) = wait.as_ref().filter(|_| former.len() > 1 && !args.all_at_once) {
        let advice = "name one after the other with -i, so that the rest votes; or add --all-at-once";
        let would = format!("{} instances allow more, and would not vote for {wait}", former.len());
        return Err(Failure::new(Code::Usage, format!("{would}: {advice}")));
    }
    records.set().await?;
    let done = done(&redlock, args.dry_run, ["would allow ttls", "allows ttls", "allow ttls"], longest_ttl);
    if let Some(wait) = wait {
        output::say(&format!("what allowed more waits for {wait} before it votes again"));
    }
    done
}

/// With the words for what would be, is for one, and is for several.
fn done(
    redlock: &Redlock,
    is_dry_run: bool,
    [would, of_one, of_several]: [&str; 3],
    longest_ttl: Duration,
) -> Result<ExitCode, Failure> {
    let count = redlock.instances().len();
    let instances = if count == 1 { "instance" } else { "instances" };
    let (does, gap) = match is_dry_run {
        true => (would, "; nothing was written"),
        false => (if count == 1 { of_one } else { of_several }, ""),
    };
    output::write(format!("{count} {instances} {does} up to {}{gap}\n", time(longest_ttl)).as_bytes())
}

impl From<RecordsError> for Failure {
    fn from(error: RecordsError) -> Self {
        let code = if matches!(error, RecordsError::ShortWord { .. }) { Code::Usage } else { Code::Failed };
        Self::new(code, error.to_string())
    }
}

async fn show(as_json: bool, settings: &Settings) -> Result<ExitCode, Failure> {
    let (_redlock, records) = records(settings, false).await?;
    let shown = records.show().await;
    if as_json {
        output::write_json(&json!({ "instances": shown.iter().map(to_json).collect::<Vec<_>>() }))?;
    } else {
        output::write(in_words(&shown, with_colours()).as_bytes())?;
    }
    Ok(if shown.iter().all(is_well) { ExitCode::SUCCESS } else { Code::Failed.into() })
}

/// Whether it votes for a client with these settings, or will.
fn is_well(shown: &ShownRecord) -> bool {
    shown.is_of_this_process && shown.misfit.is_none()
}

fn in_words(shown: &[ShownRecord], colours: bool) -> String {
    let mut table = Table::new(&["INSTANCE", "PROCESS", "VOTES", "TTLS UP TO", "THIS CLIENT", "RECORD"]);
    shown.iter().for_each(|shown| table.row(cells(shown)));
    let mut text = table.render(colours);
    for shown in shown {
        let misfit = shown.misfit.as_ref().map(ToString::to_string);
        if let Some(problem) = misfit.or_else(|| shown.unknown.as_ref().map(ToString::to_string)) {
            text.push_str(&format!("{}: {}\n", shown.address, with_options(&problem)));
        }
    }
    text
}

fn cells(shown: &ShownRecord) -> Vec<(String, Look)> {
    let (process, process_look) = match (&shown.record, shown.is_of_this_process) {
        _ if shown.unknown.is_some() => ("not read", Look::Bad),
        (None, _) => ("no record", Look::Doubtful),
        (Some(_), true) => ("this one", Look::Good),
        (Some(_), false) => ("another", Look::Doubtful),
    };
    let (votes, votes_look) = match shown.votes_in {
        Some(Duration::ZERO) => ("yes".to_owned(), Look::Good),
        Some(left) => (format!("in {}", time(left)), Look::Doubtful),
        None => ("no".to_owned(), Look::Bad),
    };
    let (fits, fits_look) = match (&shown.misfit, shown.is_of_this_process) {
        (Some(_), _) => ("does not fit", Look::Bad),
        (None, true) => ("fits", Look::Good),
        (None, false) => ("-", Look::Plain),
    };
    let or_none = |text: Option<String>| (text.unwrap_or_else(|| "-".to_owned()), Look::Plain);
    vec![
        (shown.address.clone(), Look::Plain),
        (process.to_owned(), process_look),
        (votes, votes_look),
        or_none(shown.longest_ttl.map(time)),
        (fits.to_owned(), fits_look),
        or_none(shown.record.clone()),
    ]
}

fn to_json(shown: &ShownRecord) -> Value {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    json!({
        "address": shown.address,
        "record": shown.record,
        "is_of_this_process": shown.is_of_this_process,
        "votes_in_ms": shown.votes_in.map(millis),
        "longest_ttl_ms": shown.longest_ttl.map(millis),
        "misfit": shown.misfit.as_ref().map(|misfit| with_options(&misfit.to_string())),
        "unknown": shown.unknown.as_ref().map(|cause| with_options(&cause.to_string())),
    })
}
