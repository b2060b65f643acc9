//! A run of scenarios, one after another, with progress.

use std::process::ExitCode;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use crate::Outcome;
use crate::check::{CheckLimits, Judgement, WaitLimits};
use crate::client::LockLibrary;
use crate::docker::Engine;
use crate::options::Options;
use crate::report::{Report, ScenarioReport};
use crate::scenario::{Action, SCENARIOS, Scenario, mixture};
use crate::stage::{Server, TTL, play};

/// A scenario with all that it is run with.
struct ScenarioRun {
    scenario: Scenario,
    steps: Vec<(f64, Action)>,
    server: Server,
    peer: LockLibrary,
}

pub(crate) async fn run(options: &Options) -> Outcome<ExitCode> {
    let runs = runs(options)?;
    let engine = Engine::open(&options.image).await?;
    let mut terminate = signal(SignalKind::terminate())?;
    let played = tokio::select! {
        played = play_all(&engine, &runs, options) => played,
        _ = tokio::signal::ctrl_c() => Err("interrupted; what was started is removed".into()),
        _ = terminate.recv() => Err("terminated; what was started is removed".into()),
    };
    engine.close().await?;
    let report = played?;
    report.write(&options.report)?;
    print!("{}", report.summary());
    println!("report: {0}/report.html and {0}/report.json", options.report);
    Ok(if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn play_all(engine: &Engine, runs: &[ScenarioRun], options: &Options) -> Outcome<Report> {
    let versions = engine.versions().await?;
    let mut report = Report::new(options, versions);
    for (index, run) in runs.iter().enumerate() {
        let ScenarioRun { scenario, steps, server, peer } = run;
        eprint!("{:>3}/{} {:<24} {:<13} {:<10} ", index + 1, runs.len(), scenario.name, server.program(), peer.name());
        let history = play(engine, scenario, steps, *server, *peer).await?;
        let result = judge(run, history);
        eprintln!("{}", result.line());
        report.results.push(result);
    }
    Ok(report)
}

fn judge(run: &ScenarioRun, history: Vec<crate::event::Event>) -> ScenarioReport {
    let drift = match run.peer {
        LockLibrary::Rslock => Duration::ZERO,
        _ => TTL / 100 + Duration::from_millis(2),
    };
    let limits = CheckLimits { ttl: TTL, drift, waiting: wait_limits(run.peer) };
    let judgement = Judgement::of(&history, limits);
    ScenarioReport::new(run.scenario, run.server, run.peer, judgement, history)
}

/// What those who wait are promised. Controls that are to be caught at something else are not asked.
fn wait_limits(peer: LockLibrary) -> Option<WaitLimits> {
    // A ttl and a quarter of a second, and as much as a busy machine may take.
    let after_crash = Some(TTL + Duration::from_millis(250 + 750));
    match peer {
        LockLibrary::WithAdmission | LockLibrary::LastFirst => Some(WaitLimits {
            // An instance that was restarted sits out the ttl, and a client that had no quorum may pause for a second.
            without_faults: Some(TTL + Duration::from_secs(3)),
            after_crash,
            // Also meanwhile: as many as get in within that second, and as many again on a faster machine.
            overtakes: Some(300),
            overtakes_within: Some(3),
        }),
        LockLibrary::WithoutOrder => Some(WaitLimits { after_crash, ..WaitLimits::default() }),
        LockLibrary::WithoutAdmission | LockLibrary::Rslock => None,
    }
}

fn runs(options: &Options) -> Outcome<Vec<ScenarioRun>> {
    let chosen = |name: &str, quick: bool| {
        if options.scenarios.is_empty() { !options.quick || quick } else { options.scenarios.iter().any(|n| n == name) }
    };
    let known = |name: &&String| *name == "mixture" || SCENARIOS.iter().any(|scenario| scenario.name == **name);
    if let Some(unknown) = options.scenarios.iter().find(|name| !known(name)) {
        return Err(format!("there is no scenario {unknown}; `drill list` has them").into());
    }
    let mut runs = Vec::new();
    let seconds = options.mixture_seconds.unwrap_or(if options.quick { 25.0 } else { 120.0 });
    // The short run goes from one server to the other, scenario by scenario.
    let in_turn = options.quick && options.servers.len() > 1;
    let mut number = 0;
    for server in if in_turn { vec![Server::Valkey] } else { options.servers.clone() } {
        for scenario in SCENARIOS.iter().filter(|scenario| chosen(scenario.name, scenario.quick)) {
            number += 1;
            let server = if in_turn && number % 2 == 0 { Server::Redis } else { server };
            let mut peers = vec![options.peer];
            if options.controls {
                let controls = scenario.violated_by.iter().chain(scenario.beside);
                peers.extend(controls.filter(|peer| **peer != options.peer));
            }
            let steps = scenario.steps.to_vec();
            runs.extend(peers.iter().map(|peer| ScenarioRun {
                scenario: *scenario,
                steps: steps.clone(),
                server,
                peer: *peer,
            }));
        }
        if chosen("mixture", true) {
            let (scenario, steps) = mixture(seconds, options.seed);
            runs.push(ScenarioRun { scenario, steps, server, peer: options.peer });
        }
    }
    Ok(runs)
}
