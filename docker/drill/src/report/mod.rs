//! What was found, for people and for programs.

use serde::Serialize;

use crate::Outcome;
use crate::check::{Availability, Judgement, ObservedLease, PhaseBounds, Usage, Violation, Waiting};
use crate::client::LockLibrary;
use crate::event::{Event, EventKind};
use crate::options::Options;
use crate::scenario::{Action, Expectation, Scenario};
use crate::stage::Server;

mod html;
mod timeline;
mod usage;
mod waiting;

/// One scenario with one library on one server.
#[derive(Debug, Serialize)]
pub(crate) struct ScenarioReport {
    pub(crate) scenario: &'static str,
    pub(crate) about: &'static str,
    /// What was done before the clients worked.
    pub(crate) prepared: Vec<String>,
    pub(crate) server: &'static str,
    pub(crate) server_version: String,
    pub(crate) peer: &'static str,
    pub(crate) verdict: ScenarioOutcome,
    pub(crate) violations: Vec<Violation>,
    /// Whether what the scenario is to show was seen; with guards on only.
    pub(crate) shown: Option<bool>,
    pub(crate) availability: Availability,
    pub(crate) grants: usize,
    pub(crate) losses: usize,
    pub(crate) refused_writes: usize,
    /// How those fared who waited for a lock, if anybody did.
    pub(crate) waiting: Option<Waiting>,
    /// What processes that ran for long used of the machine.
    pub(crate) usage: Vec<Usage>,
    pub(crate) marks: PhaseBounds,
    #[serde(skip)]
    pub(crate) leases: Vec<ObservedLease>,
    #[serde(skip)]
    pub(crate) history: Vec<Event>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ScenarioOutcome {
    /// Nothing was violated, as it must be.
    Good,
    /// Something was violated that must not be.
    Violated,
    /// A control: something was violated, as it must be, or the checker sees nothing.
    Caught,
    /// A control in which nothing was found: the checker or the scenario is broken.
    Blind,
}

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) command: String,
    pub(crate) seed: u64,
    pub(crate) versions: String,
    pub(crate) version: &'static str,
    pub(crate) results: Vec<ScenarioReport>,
}

impl ScenarioReport {
    pub(crate) fn new(
        scenario: Scenario,
        server: Server,
        peer: LockLibrary,
        judgement: Judgement,
        history: Vec<Event>,
    ) -> Self {
        let Judgement { leases, marks, availability, waiting, usage, violations } = judgement;
        let expected = scenario.violated_by.contains(&peer);
        let verdict = match (violations.is_empty(), expected) {
            (true, false) => ScenarioOutcome::Good,
            (false, true) => ScenarioOutcome::Caught,
            (true, true) => ScenarioOutcome::Blind,
            // Nobody claims that a control survives the other scenarios.
            (false, false) if peer == LockLibrary::WithAdmission => ScenarioOutcome::Violated,
            (false, false) => ScenarioOutcome::Caught,
        };
        let refused_writes =
            history.iter().filter(|event| matches!(event.kind, EventKind::Write { accepted: false, .. })).count();
        let server_version = history.iter().find_map(|event| match &event.kind {
            EventKind::Server { version } => Some(version.clone()),
            _ => None,
        });
        let server_version = server_version.unwrap_or_default();
        let mut result = Self {
            scenario: scenario.name,
            about: scenario.about,
            prepared: scenario.prepare.iter().map(Action::text).collect(),
            server: server.program(),
            server_version,
            peer: peer.name(),
            verdict,
            violations,
            shown: None,
            availability,
            grants: leases.len(),
            losses: leases.iter().filter(|lease| lease.lost).count(),
            refused_writes,
            waiting,
            usage,
            marks,
            leases,
            history,
        };
        result.shown = (peer == LockLibrary::WithAdmission).then(|| result.shows(&scenario));
        result
    }

    /// Whether what the scenario is to show was seen.
    fn shows(&self, scenario: &Scenario) -> bool {
        let Availability { before, during, recovery_ms, .. } = &self.availability;
        before.granted > 0
            && match scenario.shows {
                Expectation::Available => during.granted > 0 && recovery_ms.is_some(),
                // A round of the instant before may still be won.
                Expectation::FailsFast => {
                    let later = self.marks.fault + 500 * crate::clock::MILLI;
                    let none = !self.leases.iter().any(|lease| (later..self.marks.healed).contains(&lease.from));
                    none && during.failed > 0 && during.slowest_failure_ms < 1_000.0 && recovery_ms.is_some()
                }
                Expectation::RefusedWrite => self.refused_writes > 0,
                Expectation::KeepsHolding => {
                    let held = |lease: &&ObservedLease| lease.resource == "held" && lease.from < self.marks.fault;
                    self.leases.iter().rfind(held).is_some_and(|lease| lease.to > self.marks.healed)
                }
                Expectation::WaitersGetIn => {
                    let strikes = scenario.steps.iter().filter(|(_, action)| matches!(action, Action::Strike(..)));
                    let hit = self.waiting.as_ref().map_or(0, |waiting| waiting.crashes.len());
                    recovery_ms.is_some() && hit == strikes.count()
                }
                Expectation::Safety => true,
            }
    }

    /// The name of its files, without the ending.
    fn file(&self) -> String {
        format!("{}-{}-{}", self.scenario, self.server, self.peer.replace(' ', "-"))
    }

    /// For the terminal.
    pub(crate) fn line(&self) -> String {
        let share = |phase: &crate::check::Phase| {
            phase.share.map_or_else(|| "-".to_owned(), |share| format!("{:.0}%", share * 100.0))
        };
        let Availability { before, during, after, recovery_ms, .. } = &self.availability;
        let recovery = recovery_ms.map_or_else(|| "never".to_owned(), |ms| format!("{:.1} s", ms / 1000.0));
        let note = if self.shown == Some(false) { ", NOT AS INTENDED" } else { "" };
        let first = self.violations.first().map_or_else(String::new, |violation| format!(": {}", violation.text));
        format!(
            "{} ({} violations), {} grants, available {}/{}/{}, recovery {recovery}, {} lost, {} writes refused{note}{first}",
            self.verdict.name(),
            self.violations.len(),
            self.grants,
            share(before),
            share(during),
            share(after),
            self.losses,
            self.refused_writes
        )
    }
}

impl ScenarioOutcome {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Violated => "VIOLATED",
            Self::Caught => "caught",
            Self::Blind => "BLIND",
        }
    }
}

impl Report {
    pub(crate) fn new(options: &Options, versions: String) -> Self {
        Self {
            command: options.command.clone(),
            seed: options.seed,
            versions,
            version: env!("CARGO_PKG_VERSION"),
            results: Vec::new(),
        }
    }

    /// Whether nothing was violated that must not be, and every control was caught.
    pub(crate) fn is_good(&self) -> bool {
        !self.results.iter().any(|result| matches!(result.verdict, ScenarioOutcome::Violated | ScenarioOutcome::Blind))
    }

    pub(crate) fn summary(&self) -> String {
        let count = |verdict| self.results.iter().filter(|result| result.verdict == verdict).count();
        let mut text = format!(
            "{} good, {} violated, {} controls caught, {} controls in which the checker found nothing\n",
            count(ScenarioOutcome::Good),
            count(ScenarioOutcome::Violated),
            count(ScenarioOutcome::Caught),
            count(ScenarioOutcome::Blind)
        );
        for result in self.results.iter().filter(|result| result.verdict == ScenarioOutcome::Violated) {
            for violation in &result.violations {
                text.push_str(&format!(
                    "{} on {}: {}: {}\n",
                    result.scenario, result.server, violation.rule, violation.text
                ));
            }
        }
        self.results.iter().for_each(|result| text.push_str(&(waiting::text(result) + &usage::text(result))));
        text
    }

    pub(crate) fn write(&self, dir: &str) -> Outcome {
        std::fs::create_dir_all(dir)?;
        std::fs::write(format!("{dir}/report.json"), serde_json::to_string_pretty(self)?)?;
        for result in &self.results {
            let lines: Result<Vec<String>, _> = result.history.iter().map(serde_json::to_string).collect();
            std::fs::write(format!("{dir}/{}.jsonl", result.file()), lines?.join("\n"))?;
        }
        for result in &self.results {
            std::fs::write(format!("{dir}/{}.svg", result.file()), timeline::draw(result))?;
        }
        std::fs::write(format!("{dir}/report.html"), html::page(self))?;
        Ok(())
    }
}
