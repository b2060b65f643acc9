//! What the caller may choose.

use std::env;

use crate::Outcome;
use crate::report::WORKLOADS;
use crate::subject::Kind;

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
    pub(crate) fn read() -> Outcome<Self> {
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
        if !only.is_empty() && !WORKLOADS.contains(&only.as_str()) {
            return Err(format!("{only}: the workloads are {}", WORKLOADS.join(", ")).into());
        }
        let subjects = Kind::ALL.map(|kind| kind.to_string());
        if !subject.is_empty() && !subjects.contains(&subject) {
            return Err(format!("{subject}: the subjects are {}", subjects.join(", ")).into());
        }
        if rounds == 0 { Err("at least one round is needed".into()) } else { Ok(Self { rounds, quick, only, subject }) }
    }
}
