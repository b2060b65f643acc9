//! The worker processes, as their parent sees them.

use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use crate::Outcome;
use crate::section::now;
use crate::tasks::Record;
use crate::worker::Job;

/// From when the start is told until it comes: so long may the slowest worker take to hear of it.
const NOTICE: Duration = Duration::from_millis(200);

/// Ended when dropped.
pub(crate) struct Workers(Vec<Worker>);

struct Worker {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Workers {
    /// Starts the processes of a workload and waits until each is connected.
    pub(crate) fn start(job: &Job) -> Outcome<Self> {
        let spawn = |process| Worker::spawn(&Job { process, ..job.clone() });
        let mut workers = Self((0..job.workload.processes()).map(spawn).collect::<Outcome<_>>()?);
        for worker in &mut workers.0 {
            let line = worker.line()?;
            if line != Job::READY {
                return Err(format!("a worker said {line:?}").into());
            }
        }
        Ok(workers)
    }

    /// Has all of them begin at once; gives when that is, and when tasks stop asking.
    pub(crate) fn begin(&mut self, length: Duration) -> Outcome<Range<u64>> {
        let nanos = |time: Duration| u64::try_from(time.as_nanos());
        let start = now() + nanos(NOTICE)?;
        let span = start..start + nanos(length)?;
        for worker in &mut self.0 {
            writeln!(worker.stdin, "{} {}", span.start, span.end)?;
        }
        Ok(span)
    }

    /// Waits until all have told what they did.
    pub(crate) fn collect(mut self) -> Outcome<Record> {
        let mut all = Record::default();
        for worker in &mut self.0 {
            all.append(worker.collect()?);
        }
        Ok(all)
    }
}

impl Worker {
    fn spawn(job: &Job) -> Outcome<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(job.arguments())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (stdin, stdout) = stdin.zip(stdout).ok_or("a worker has no pipes")?;
        Ok(Self { child, stdin, stdout: BufReader::new(stdout) })
    }

    fn line(&mut self) -> Outcome<String> {
        let mut line = String::new();
        if self.stdout.read_line(&mut line)? == 0 {
            return Err(format!("a worker ended too early: {}", self.child.wait()?).into());
        }
        Ok(line.trim_end().to_owned())
    }

    fn collect(&mut self) -> Outcome<Record> {
        let mut record = Record::default();
        loop {
            let line = self.line()?;
            if let Some(failed) = line.strip_prefix(Job::DONE) {
                record.failed = failed.trim().parse()?;
                return Ok(record);
            }
            record.sections.push(line.parse()?);
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.child.kill()); // one that has ended already is no problem
        drop(self.child.wait());
    }
}
