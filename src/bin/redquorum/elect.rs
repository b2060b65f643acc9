//! `redquorum elect`: a command on the one machine that leads, and who that is.

use std::process::ExitCode;
use std::time::Duration;

use redquorum::{Leader, LeaderError};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::cli::{ElectArgs, RunArgs};
use crate::exit::{Code, Failure};
use crate::inspect::{reasons, shown};
use crate::output;
use crate::run;
use crate::settings::Settings;

/// How often in a ttl a watched election is looked at for having no leader.
const LOOKS_PER_TTL: u32 = 4;

/// Leads with a command, and shows who leads without one.
pub(crate) async fn elect(args: ElectArgs, settings: &Settings) -> Result<ExitCode, Failure> {
    if args.command.is_empty() { print_leader(&args, settings).await } else { lead(args, settings).await }
}

/// Runs the command while this candidate leads, and campaigns again when the lead is lost before the command has ended by itself.
async fn lead(args: ElectArgs, settings: &Settings) -> Result<ExitCode, Failure> {
    let as_run = || RunArgs {
        resources: vec![args.election.clone()],
        shared: false,
        permits: None,
        info: args.info.clone(),
        wait: args.wait,
        once: false,
        holder: None,
        keep: None,
        at_least: None,
        max_hold: args.max_hold,
        conflict_exit_code: args.conflict_exit_code,
        pass_environment: args.pass_environment,
        command: args.command.clone(),
    };
    loop {
        match run::run(as_run(), settings).await {
            Err(Failure { code: Code::Lost, message }) => output::say(&format!("{message}; campaigns again")),
            ended => return ended,
        }
    }
}

async fn print_leader(args: &ElectArgs, settings: &Settings) -> Result<ExitCode, Failure> {
    let redlock = settings.connected_to_look().await?;
    let election = redlock.election(args.election.as_str());
    if !args.watch {
        let leader = election.leader().await?;
        write(args, leader.as_ref())?;
        return Ok(if leader.is_some() { ExitCode::SUCCESS } else { Code::Free.into() });
    }
    let (mut leaders, mut says_none, mut pause) = (election.observe()?, false, Duration::ZERO);
    loop {
        tokio::select! {
            leader = leaders.next() => {
                says_none = false;
                write(args, Some(&leader))?;
            }
            // An observer sees leaders only.
            () = sleep(pause), if !says_none => {
                pause = settings.ttl / LOOKS_PER_TTL;
                if let Ok(None) = election.leader().await {
                    says_none = true;
                    write(args, None)?;
                }
            }
        }
    }
}

fn write(args: &ElectArgs, leader: Option<&Leader>) -> Result<ExitCode, Failure> {
    if args.form.json {
        return output::write_json(&to_json(&args.election, leader));
    }
    let name = shown(&args.election);
    let text = match leader {
        Some(Leader { info, token, client, .. }) => {
            format!("{name}: led by {}, client {client}, token {token}\n", shown(info))
        }
        None => format!("{name}: no leader\n"),
    };
    output::write(text.as_bytes())
}

fn to_json(election: &str, leader: Option<&Leader>) -> Value {
    let leader = leader.map(
        |Leader { info, token, client, .. }| json!({ "info": info, "token": token.to_string(), "client": client }),
    );
    json!({ "election": election, "leader": leader })
}

impl From<LeaderError> for Failure {
    fn from(error: LeaderError) -> Self {
        match error {
            LeaderError::BadRequest(error) => error.into(),
            LeaderError::Unknown { unknown, .. } => {
                Self::new(Code::NoQuorum, format!("too few instances answered: {}", reasons(&unknown)))
            }
            error => Self::new(Code::NoQuorum, error.to_string()),
        }
    }
}
