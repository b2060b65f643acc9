//! Servers with a clock that a test can step.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use redquorum::Admission;
use redquorum_testkit::{Kind, Program, ServerBuilder};

use crate::support::{Outcome, Stage, THIRD};

/// The servers that follow a clock of their own on this machine: Valkey, if libfaketime is there.
/// Redis is built with jemalloc, which libfaketime does not get on with.
pub(crate) fn programs() -> Outcome<Vec<Program>> {
    let mut programs = Program::all_required()?;
    programs.retain(|program| program.kind() == Kind::Valkey && library().is_some());
    if programs.is_empty() {
        eprintln!("skipped: steps of a clock need a valkey-server and libfaketime (Debian: libfaketime)");
    }
    Ok(programs)
}

fn library() -> Option<PathBuf> {
    let dirs = fs::read_dir("/usr/lib").ok()?.flatten().map(|dir| dir.path());
    let candidates = dirs.map(|dir| dir.join("faketime/libfaketime.so.1"));
    candidates.into_iter().find(|path| path.exists())
}

/// A stage whose third server goes by the clock.
pub(crate) async fn stage(program: &Program, mode: Admission) -> Outcome<(Clock, Stage)> {
    let clock = Clock::new()?;
    let stage = Stage::start_with(program, mode, |index, builder| clock.set_on(index, builder)).await?;
    Ok((clock, stage))
}

/// The clock of the third server of a stage, as an offset to the machine's.
pub(crate) struct Clock {
    library: PathBuf,
    file: PathBuf,
}

impl Clock {
    fn new() -> Outcome<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let file = std::env::temp_dir().join(format!("redquorum-clock-{}-{number}", std::process::id()));
        let clock = Self { library: library().ok_or("no libfaketime")?, file };
        clock.step("+0")?;
        Ok(clock)
    }

    fn set_on(&self, index: usize, builder: ServerBuilder) -> ServerBuilder {
        if index != THIRD {
            return builder;
        }
        let builder = builder.env("LD_PRELOAD", &self.library).env("FAKETIME_NO_CACHE", "1");
        builder.env("FAKETIME_TIMESTAMP_FILE", &self.file).env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
    }

    /// Steps the clock to this many seconds off the machine's.
    pub(crate) fn step(&self, offset: &str) -> Outcome {
        let next = self.file.with_extension("next");
        fs::write(&next, format!("{offset}\n"))?;
        fs::rename(next, &self.file)?; // never half written
        Ok(())
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.file));
    }
}
