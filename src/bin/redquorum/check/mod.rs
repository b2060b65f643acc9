//! `redquorum check`: what an installation needs before it goes live.

mod exposed;
mod rights;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use redquorum::{AdmissionStatus, InstanceStatus, Lock, Redlock, RwLock};
use serde_json::json;

use crate::cli::CheckArgs;
use crate::clock::since_boot;
use crate::exit::{Code, Failure};
use crate::output::{self, Look, offset, painted, time, with_colours, with_options};
use crate::settings::Settings;
use crate::status::{observe, persistence, settle};

/// The result of looking at one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Good,
    Doubtful,
    Bad,
}

impl Verdict {
    const fn name(self) -> &'static str {
        match self {
            Self::Good => "ok",
            Self::Doubtful => "warning",
            Self::Bad => "failure",
        }
    }

    const fn look(self) -> Look {
        match self {
            Self::Good => Look::Good,
            Self::Doubtful => Look::Doubtful,
            Self::Bad => Look::Bad,
        }
    }
}

/// One thing that was looked at: whose, and the result with what to do.
struct Finding {
    verdict: Verdict,
    about: String,
    text: String,
}

impl Finding {
    fn new(verdict: Verdict, about: &str, text: impl Into<String>) -> Self {
        Self { verdict, about: about.to_owned(), text: with_options(&text.into()) }
    }
}

/// Of what concerns all instances.
const ALL: &str = "all";

fn no_record(resource: &str) -> String {
    format!(
        "no lock can be acquired: too few instances have admission records, which clients that want locks write; acquire one \
        with the settings of your services, as by `redquorum run -r {resource} -- true`, and check again"
    )
}

/// What is locked, and for how long.
struct Attempt<'a> {
    resource: &'a str,
    ttl: Duration,
    /// Whether enough instances have valid records.
    is_possible: bool,
}

impl<'a> Attempt<'a> {
    fn new(resource: &'a str, settings: &Settings, redlock: &Redlock) -> Self {
        let instances = redlock.instances();
        let recorded = instances.iter().filter_map(|instance| instance.max_ttl).min();
        let missing = instances.iter().filter(|it| it.admission == AdmissionStatus::Unrecorded).count();
        let is_possible = missing == 0 || instances.len() - missing >= settings.quorum_of(instances.len());
        Self { resource, ttl: recorded.map_or(settings.ttl, |longest| longest.min(settings.ttl)), is_possible }
    }

    fn lock(&self, redlock: &Redlock) -> Lock {
        redlock.lock(self.resource).ttl(self.ttl)
    }

    fn rw_lock(&self, redlock: &Redlock) -> RwLock {
        redlock.rw_lock(self.resource).ttl(self.ttl)
    }
}

fn votes(instance: &InstanceStatus) -> bool {
    matches!(instance.admission, AdmissionStatus::Admitted | AdmissionStatus::Off)
}

pub(crate) async fn check(args: &CheckArgs, settings: &Settings) -> Result<ExitCode, Failure> {
    let judging = settings.judging_client()?;
    settle(&judging, settings).await;
    let mut findings = of_settings(&judging, settings);
    findings.extend(of_instances(&judging, settings).await);
    // Its locks fit the records of the instances, and leave them as they are.
    let redlock = settings.looking_client()?;
    settle(&redlock, settings).await;
    let attempt = Attempt::new(&args.resource, settings, &redlock);
    let instances = redlock.instances();
    let voting = || instances.iter().enumerate().filter(|(_, instance)| votes(instance));
    for (index, instance) in voting() {
        findings.push(rights::of_instance(index, &instance.address, &attempt, settings).await);
    }
    findings.push(match attempt.is_possible {
        true => of_a_lock(&redlock, &attempt).await,
        false => Finding::new(Verdict::Bad, ALL, no_record(attempt.resource)),
    });
    for (index, instance) in voting() {
        findings.extend(rights::of_readers(index, &instance.address, &attempt, settings).await);
    }
    findings.extend(of_machines(&redlock, settings));
    findings.extend(exposed::of_instances(&redlock, settings).await);
    let _ = redlock.shutdown(Duration::from_secs(1)).await; // a quorum has released, the others may not have yet
    if args.quiet {
        findings
            .iter()
            .filter(|it| it.verdict == Verdict::Bad)
            .for_each(|it| output::say(&format!("{}: {}", it.about, it.text)));
    } else if args.form.json {
        let list =
            findings.iter().map(|it| json!({ "verdict": it.verdict.name(), "about": it.about, "text": it.text }));
        output::write_json(&json!({ "is_well": is_well(&findings), "findings": list.collect::<Vec<_>>() }))?;
    } else {
        output::write(in_words(&findings, with_colours()).as_bytes())?;
    }
    Ok(if is_well(&findings) { ExitCode::SUCCESS } else { Code::Failed.into() })
}

fn is_well(findings: &[Finding]) -> bool {
    !findings.iter().any(|finding| finding.verdict == Verdict::Bad)
}

fn in_words(findings: &[Finding], colours: bool) -> String {
    let mut text = String::new();
    let width = findings.iter().map(|finding| finding.about.chars().count()).max().unwrap_or(0);
    for Finding { verdict, about, text: what } in findings {
        let gap = " ".repeat("failure".len() - verdict.name().len());
        let name = painted(verdict.name(), verdict.look(), colours);
        text.push_str(&format!("{name}{gap}  {about:width$}  {what}\n"));
    }
    let count = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
    let (bad, doubtful) = (count(Verdict::Bad), count(Verdict::Doubtful));
    let [checks, warnings, failures] =
        [(findings.len(), "check"), (doubtful, "warning"), (bad, "failure")].map(|(count, what)| counted(count, what));
    text.push_str(&format!("{checks}, {warnings}, {failures}\n"));
    text
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// What can be said without a request.
fn of_settings(redlock: &Redlock, settings: &Settings) -> Vec<Finding> {
    let count = redlock.instances().len();
    let quorum = settings.quorum_of(count);
    let spare = count - quorum;
    let (verdict, text) = match count {
        1 => (Verdict::Doubtful, "one instance alone: locks end with it; use three or five".to_owned()),
        count if spare == 0 && quorum > count / 2 + 1 => {
            (Verdict::Doubtful, format!("{count} instances, {quorum} needed: none may fail; use a smaller quorum"))
        }
        count if count % 2 == 0 && quorum == count / 2 + 1 => {
            let fewer = count - 1;
            (Verdict::Doubtful, format!("{count} instances can lose {spare}, as {fewer} can; use an odd number"))
        }
        count => (Verdict::Good, format!("{count} instances, {quorum} needed: {spare} may fail")),
    };
    let admission = if settings.has_admission() {
        Finding::new(Verdict::Good, ALL, "instances that may have forgotten locks do not vote for max_ttl")
    } else {
        let text = "admission is off: an instance that restarts empty lets a lock be granted twice; turn it on";
        Finding::new(Verdict::Doubtful, ALL, text)
    };
    vec![Finding::new(verdict, ALL, text), admission]
}

/// Instances that fail together.
fn of_machines(redlock: &Redlock, settings: &Settings) -> Vec<Finding> {
    let instances = redlock.instances();
    let spare = instances.len() - settings.quorum_of(instances.len());
    let mut machines = BTreeMap::<&str, usize>::new();
    for instance in &instances {
        *machines.entry(machine(&instance.address)).or_default() += 1;
    }
    let too_many = machines.into_iter().filter(|(_, count)| *count > spare.max(1));
    let warning = |(machine, count)| {
        let text = format!("{count} instances are on {machine}, and {spare} may fail: give each a machine of its own");
        Finding::new(Verdict::Doubtful, ALL, text)
    };
    too_many.map(warning).collect()
}

/// Whether it is a path.
fn is_socket(address: &str) -> bool {
    address.starts_with('/')
}

/// Where an instance is, as far as its address says.
fn machine(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let is_here = host == "localhost" || host == "[::1]" || host.starts_with("127.") || is_socket(address);
    if is_here { "this machine" } else { host }
}

async fn of_instances(redlock: &Redlock, settings: &Settings) -> Vec<Finding> {
    let mut findings = Vec::new();
    for instance in observe(redlock, settings).await {
        let address = &instance.seen.address;
        for problem in &instance.problems {
            let verdict = if problem.is_severe { Verdict::Bad } else { Verdict::Doubtful };
            findings.push(Finding::new(verdict, address, problem.text.as_str()));
        }
        if let (true, Some(details)) = (instance.problems.is_empty(), &instance.details) {
            let (version, kept, policy) = (&details.version, persistence(details), &details.eviction_policy);
            let (offset, trip) = (offset(details.clock_offset), time(details.round_trip));
            let text = format!("master, {version}, {policy}, persistence {kept}, clock {offset}, round trip {trip}");
            findings.push(Finding::new(Verdict::Good, address, text));
        }
    }
    findings
}

/// As a program would use them.
async fn of_a_lock(redlock: &Redlock, attempt: &Attempt<'_>) -> Finding {
    let begun = since_boot();
    let guard = match attempt.lock(redlock).try_acquire().await {
        Ok(guard) => guard,
        Err(error) if error.is_contended() => return Finding::new(Verdict::Doubtful, ALL, error.to_string()),
        Err(error) => return Finding::new(Verdict::Bad, ALL, format!("no lock can be acquired: {error}")),
    };
    let took = since_boot().saturating_sub(begun);
    match guard.release().await {
        Ok(_) => Finding::new(Verdict::Good, ALL, format!("a lock was acquired in {}, and released", time(took))),
        Err(error) => Finding::new(Verdict::Bad, ALL, format!("a lock was not released: {error}")),
    }
}
