//! What a worker tells of each time that it had a lock.

use std::fmt;
use std::str::FromStr;

use rustix::time::{ClockId, clock_gettime};

/// One time that a task had a lock. All times are nanoseconds of CLOCK_MONOTONIC, which is the same in
/// every process of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Section {
    /// Counted over all processes.
    pub(crate) task: usize,
    pub(crate) key: usize,
    pub(crate) asked: u64,
    pub(crate) held: u64,
    pub(crate) release_begun: u64,
    pub(crate) released: u64,
}

/// The time now, in nanoseconds of CLOCK_MONOTONIC.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let [seconds, nanos] = [time.tv_sec, time.tv_nsec].map(|part| u64::try_from(part).unwrap_or(0));
    seconds * 1_000_000_000 + nanos
}

/// As a line on the way to the parent.
impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { task, key, asked, held, release_begun, released } = self;
        write!(f, "{task} {key} {asked} {held} {release_begun} {released}")
    }
}

impl FromStr for Section {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let parts: Option<Vec<u64>> = line.split(' ').map(|part| part.parse().ok()).collect();
        let Some(&[task, key, asked, held, release_begun, released]) = parts.as_deref() else {
            return Err(format!("a worker said {line:?}"));
        };
        let [task, key] = [task, key].map(|number| usize::try_from(number).unwrap_or(usize::MAX));
        Ok(Self { task, key, asked, held, release_begun, released })
    }
}

#[test]
fn a_section_reads_back_as_it_was_written() {
    let section = Section { task: 1, key: 2, asked: 3, held: u64::MAX, release_begun: 5, released: 6 };
    assert_eq!(section.to_string().parse(), Ok(section));
    assert!("1 2 3 4 5".parse::<Section>().is_err());
    assert!("1 2 3 4 5 six".parse::<Section>().is_err());
}
