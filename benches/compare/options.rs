//! What the caller may choose.

use std::env;

use crate::Outcome;

/// How much is measured.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) rounds: usize,
    pub(crate) quick: bool,
}

impl Options {
    pub(crate) fn read() -> Outcome<Self> {
        let mut args = env::args().skip(1);
        let mut quick = false;
        let mut rounds = env::var("BENCH_ROUNDS").ok();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--quick" => quick = true,
                "--rounds" => rounds = Some(args.next().ok_or("--rounds needs a number")?),
                other => return Err(format!("{other}: known are --quick and --rounds N").into()),
            }
        }
        let rounds = rounds.map_or(Ok(if quick { 2 } else { 5 }), |text| text.parse())?;
        if rounds == 0 { Err("at least one round is needed".into()) } else { Ok(Self { rounds, quick }) }
    }
}
