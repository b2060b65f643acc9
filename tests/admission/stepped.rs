//! Servers with a clock that a test can step.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use redquorum::Admission;
use redquorum_testkit::{Program, ServerBuilder};

use crate::support::{Outcome, Stage, THIRD};

/// The servers whose clock can be stepped here: all, if `make servers` has built the library that they are started with.
pub(crate) fn programs() -> Outcome<Vec<Program>> {
    if library().is_none() {
        eprintln!("skipped: steps of a clock need Linux, and target/clockstep.so, which make servers builds");
        return Ok(Vec::new());
    }
    Ok(Program::all_required()?)
}

fn library() -> Option<PathBuf> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/clockstep.so");
    (cfg!(target_os = "linux") && built.exists()).then_some(built)
}

/// A stage whose third server goes by the clock.
pub(crate) async fn stage(program: &Program, mode: Admission) -> Outcome<(Clock, Stage)> {
    let clock = Clock::new()?;
    let stage = Stage::start_with(program, mode, |index, builder| clock.set_on(index, builder)).await?;
    Ok((clock, stage))
}

/// A stage under guard, each server of which goes by a clock of its own.
pub(crate) async fn stage_of_steps(program: &Program) -> Outcome<(Vec<Clock>, Stage)> {
    let clocks: Vec<Clock> = (0..5).map(|_| Clock::new()).collect::<Outcome<_>>()?;
    let set = |index: usize, builder| clocks[index].set(builder);
    let stage = Stage::start_with(program, Admission::On, set).await?;
    Ok((clocks, stage))
}

/// The clock of a server of a stage, as an offset to the machine's.
pub(crate) struct Clock {
    library: PathBuf,
    file: PathBuf,
}

impl Clock {
    fn new() -> Outcome<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let file = std::env::temp_dir().join(format!("redquorum-clock-{}-{number}", std::process::id()));
        let clock = Self { library: library().ok_or("no target/clockstep.so")?, file };
        clock.step("+0")?;
        Ok(clock)
    }

    fn set_on(&self, index: usize, builder: ServerBuilder) -> ServerBuilder {
        if index == THIRD { self.set(builder) } else { builder }
    }

    fn set(&self, builder: ServerBuilder) -> ServerBuilder {
        builder.env("LD_PRELOAD", &self.library).env("CLOCK_OFFSET_FILE", &self.file)
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
