//! `redquorum config check`: the settings that count, and where they come from.

use std::process::ExitCode;

use redquorum::Config;
use serde_json::{Value, json};

use crate::cli::{Common, ConfigCommand};
use crate::exit::{Code, Failure};
use crate::output::{self, Look, Table, with_colours};
use crate::settings::{Settings, Source, Sources};

pub(crate) fn config(command: &ConfigCommand, common: &Common) -> Result<ExitCode, Failure> {
    let ConfigCommand::Check { form } = command;
    // Any failure here is one of the settings.
    let of_settings = |failure: Failure| Failure { code: Code::Config, ..failure };
    let sources = Sources::gather(common).map_err(of_settings)?;
    let all = sources.said().or_defaults();
    if form.json {
        output::write_json(&json!({ "settings": to_json(&all, &sources) }))?;
    } else {
        output::write(in_words(&all, &sources).as_bytes())?;
    }
    can_be_used(&sources).map_err(of_settings)?;
    Ok(ExitCode::SUCCESS)
}

/// Builds a client on a runtime that never runs: all is checked, and nothing is connected.
fn can_be_used(sources: &Sources) -> Result<(), Failure> {
    let settings = Settings::of(sources)?;
    let no_threads = |error| Failure::new(Code::OsError, format!("no runtime could be built: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(no_threads)?;
    let built = {
        let _entered = runtime.enter();
        settings.client().map(drop)
    };
    runtime.shutdown_background();
    built
}

fn in_words(all: &Config, sources: &Sources) -> String {
    let mut table = Table::new(&["SETTING", "VALUE", "FROM"]);
    for (name, value) in all.settings() {
        let source = sources.source(name);
        let from = match source {
            Source::Default => "default".to_owned(),
            Source::File(_) => format!("file {}", place(name, source).unwrap_or_default()),
            Source::Variable | Source::Option => place(name, source).unwrap_or_default(),
        };
        let value = if value.is_empty() { "-".to_owned() } else { value.escape_debug().to_string() };
        table.row(vec![(name.to_owned(), Look::Plain), (value, Look::Plain), (from, Look::Plain)]);
    }
    table.render(with_colours())
}

fn to_json(all: &Config, sources: &Sources) -> Vec<Value> {
    let of_setting = |(name, value): (&'static str, String)| {
        let source = sources.source(name);
        let kind = match source {
            Source::Option => "option",
            Source::Variable => "variable",
            Source::File(_) => "file",
            Source::Default => "default",
        };
        json!({ "setting": name, "value": value, "from": kind, "place": place(name, source) })
    };
    all.settings().map(of_setting).collect()
}

/// The option, the variable or the file.
fn place(setting: &str, source: Source<'_>) -> Option<String> {
    match source {
        Source::Option if setting == "instances" => Some("--instance".to_owned()),
        Source::Option => Some(format!("--{}", setting.replace('_', "-"))),
        Source::Variable => Some(format!("REDQUORUM_{}", setting.to_uppercase())),
        Source::File(path) => Some(path.to_string_lossy().escape_debug().to_string()),
        Source::Default => None,
    }
}
