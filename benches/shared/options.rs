//! What the caller may choose.

use std::env;

use redquorum_testkit::Program;

use crate::Outcome;

/// How much is measured.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) rounds: usize,
    pub(crate) quick: bool,
    /// The one workload to measure, by its name; all of them if empty.
    pub(crate) only: String,
    /// Likewise the one subject.
    pub(crate) subject: String,
}

impl Options {
    /// From the command line, where only these workloads and subjects are known.
    pub(crate) fn read(workloads: &[&str], subjects: &[&str]) -> Outcome<Self> {
        let mut args = env::args().skip(1);
        let mut quick = false;
        let mut rounds = env::var("BENCH_ROUNDS").ok();
        let (mut only, mut subject) = (String::new(), String::new());
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--quick" => quick = true,
                "--rounds" => rounds = Some(args.next().ok_or("--rounds needs a number")?),
                "--only" => only = args.next().ok_or("--only needs the name of a workload")?,
                "--subject" => subject = args.next().ok_or("--subject needs the name of a subject")?,
                other => {
                    let known = "--quick, --rounds N, --only WORKLOAD and --subject SUBJECT";
                    return Err(format!("{other}: known are {known}").into());
                }
            }
        }
        let rounds = rounds.map_or(Ok(if quick { 2 } else { 5 }), |text| text.parse())?;
        for (what, chosen, known) in [("workloads", &only, workloads), ("subjects", &subject, subjects)] {
            if !chosen.is_empty() && !known.contains(&chosen.as_str()) {
                return Err(format!("{chosen}: the {what} are {}", known.join(", ")).into());
            }
        }
        if rounds == 0 { Err("at least one round is needed".into()) } else { Ok(Self { rounds, quick, only, subject }) }
    }

    /// How and where it is measured, in a sentence.
    pub(crate) fn about(&self, program: &Program, machine: &str) -> String {
        let quick = if self.quick { "quick " } else { "" };
        format!("{program}; {quick}rounds: {}; {machine}.", self.rounds)
    }

    /// Whether a workload is to be measured.
    pub(crate) fn has_workload(&self, name: &str) -> bool {
        self.only.is_empty() || self.only == name
    }

    /// Whether a subject is to be measured.
    pub(crate) fn has_subject(&self, name: &str) -> bool {
        self.subject.is_empty() || self.subject == name
    }
}
