//! Which server process each of a client's connections leads to, and whose that name is if two say the same (P16).

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crate::log_limit::LogLimit;
use crate::protocol::Instant;
use crate::random;

/// After this many questions in a row that it left without an answer an instance has no name that others cannot take.
const SILENT_AFTER: u32 = 3;

/// The processes behind the instances of one client, by the position of the instance in the configuration.
#[derive(Debug, Default)]
pub(crate) struct ProcessRegistry {
    processes: Mutex<Processes>,
    nonce: OnceLock<Option<String>>,
    /// An instance that lies may come back many times a second.
    pub(super) warnings: LogLimit,
}

#[derive(Debug, Default)]
struct Processes {
    by_index: BTreeMap<usize, Process>,
    claims: u64,
}

#[derive(Debug)]
struct Process {
    address: String,
    run_id: String,
    /// Which claim of the client it was. The first that is still remembered goes before later ones.
    order: u64,
    /// From when on its votes count, by the client's clock.
    counts_from: Instant,
    /// When it was connected last, and for how long the name of one that is not connected stays its own.
    since: Instant,
    quarantine: Duration,
    is_connected: bool,
    /// Since when it has been away, but for a moment now and then.
    away: Option<Instant>,
    /// How many questions in a row it has left without an answer.
    silent: u32,
}

impl Process {
    /// Whether it has the name still.
    fn is_recent(&self, now: Instant) -> bool {
        self.is_connected || self.away.is_none_or(|away| now.saturating_since(away) < self.quarantine)
    }
}

/// The name of a process as one connection has just read it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim<'a> {
    pub(crate) index: usize,
    pub(crate) address: &'a str,
    pub(crate) run_id: &'a str,
    pub(crate) now: Instant,
    /// How long an instance sits out that may have forgotten locks.
    pub(crate) quarantine: Duration,
}

/// Another instance has, or had lately, the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Namesake {
    pub(crate) index: usize,
    pub(crate) address: String,
    pub(crate) is_connected: bool,
    /// It had the name before.
    pub(crate) is_first: bool,
}

impl ProcessRegistry {
    /// Notes which instance has this name from now on, and returns the instant from which its votes count: at once, unless another instance had the
    /// name before. `others` are those that were shown to be other processes.
    ///
    /// # Errors
    /// When it is not known whether another instance is the same process: one process has one vote.
    pub(crate) fn claim(&self, claim: Claim<'_>, others: &[usize]) -> Result<Instant, Namesake> {
        let Claim { index, address, run_id, now, quarantine } = claim;
        let mut processes = self.processes();
        let own = processes.by_index.get(&index).filter(|own| own.run_id == run_id);
        let own = own.map(|own| (own.order, own.counts_from, own.away, own.silent));
        let mut namesakes = processes.by_index.iter().filter(|(other, process)| {
            **other != index && process.run_id == run_id && process.is_recent(now) && !others.contains(other)
        });
        if let Some((other, process)) = namesakes.next() {
            let is_first = own.is_none_or(|(order, ..)| process.order < order);
            // What is not connected cannot be asked, and does not come before what had the name first.
            if process.is_connected || is_first {
                let (address, is_connected) = (process.address.clone(), process.is_connected);
                return Err(Namesake { index: *other, address, is_connected, is_first });
            }
        }
        let later = if others.is_empty() { Instant::ZERO } else { now.saturating_add(quarantine) };
        // An instance that comes back has answered nothing by that.
        let (order, counts_from, away, silent) = own.unwrap_or((processes.claims, later, None, 0));
        processes.claims += 1;
        let (address, run_id, since, is_connected) = (address.to_owned(), run_id.to_owned(), now, true);
        let process = Process { address, run_id, order, counts_from, since, quarantine, is_connected, away, silent };
        processes.by_index.insert(index, process);
        Ok(counts_from)
    }

    /// Notes that the instance at `index` is not connected any more. Its name stays its own for a quarantine, which does not
    /// begin anew if it comes back for less than that.
    pub(crate) fn disconnected(&self, index: usize, now: Instant) {
        let mut processes = self.processes();
        let Some(process) = processes.by_index.get_mut(&index).filter(|process| process.is_connected) else { return };
        process.is_connected = false;
        let was_steady = now.saturating_since(process.since) >= process.quarantine;
        process.away = process.away.filter(|_| !was_steady).or(Some(now));
    }

    /// Its name is free.
    pub(crate) fn forget(&self, index: usize) {
        self.processes().by_index.remove(&index);
    }

    /// The instance at `index` did not answer whether it is the process that it says. Whether that was so too often.
    pub(crate) fn was_silent(&self, index: usize) -> bool {
        let mut processes = self.processes();
        let Some(process) = processes.by_index.get_mut(&index) else { return false };
        process.silent += 1;
        process.silent >= SILENT_AFTER
    }

    /// It did.
    pub(crate) fn has_answered(&self, index: usize) {
        if let Some(process) = self.processes().by_index.get_mut(&index) {
            process.silent = 0;
        }
    }

    /// What only this client knows, and the instance behind the connection at `index` learns; `None` without randomness.
    pub(crate) fn secret(&self, index: usize) -> Option<String> {
        let nonce = self.nonce.get_or_init(|| random::uuid().ok().map(|nonce| nonce.simple().to_string()));
        nonce.as_ref().map(|nonce| format!("{nonce}-{index}"))
    }

    fn processes(&self) -> MutexGuard<'_, Processes> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Instant = Instant::from_millis;
    const QUARANTINE: Duration = Duration::from_secs(10);

    fn claim(
        processes: &ProcessRegistry,
        at: (usize, u64),
        run_id: &str,
        others: &[usize],
    ) -> Result<Instant, Namesake> {
        let (index, now) = (at.0, MS(at.1));
        let address = ["a", "b", "c"][index];
        processes.claim(Claim { index, address, run_id, now, quarantine: QUARANTINE }, others)
    }

    fn namesake(index: usize, is_connected: bool, is_first: bool) -> Result<Instant, Namesake> {
        Err(Namesake { index, address: ["a", "b", "c"][index].to_owned(), is_connected, is_first })
    }

    #[test]
    fn a_name_that_nobody_else_has_counts_at_once_and_the_same_instance_may_come_again() {
        let processes = ProcessRegistry::default();
        for run_id in ["one", "one", "another"] {
            assert_eq!(claim(&processes, (0, 1), run_id, &[]), Ok(Instant::ZERO));
        }
        assert_eq!(claim(&processes, (1, 1), "one", &[]), Ok(Instant::ZERO), "it is free again");
        assert_eq!(claim(&processes, (2, 1), "another", &[]), namesake(0, true, true));
    }

    /// An instance that came while another was away for a moment took its name, and shut it out from then on.
    #[test]
    fn a_name_stays_with_whom_had_it_first_also_while_that_is_away() {
        let processes = ProcessRegistry::default();
        assert_eq!(claim(&processes, (0, 1), "one", &[]), Ok(Instant::ZERO));
        processes.disconnected(0, MS(1_000));
        assert_eq!(claim(&processes, (1, 10_999), "one", &[]), namesake(0, false, true));
        assert_eq!(claim(&processes, (1, 11_000), "one", &[]), Ok(Instant::ZERO), "it does not come back");
        assert_eq!(claim(&processes, (0, 12_000), "one", &[]), namesake(1, true, false), "which had it later");
        assert_eq!(claim(&processes, (0, 12_000), "one", &[1]), Ok(Instant::ZERO), "what was known before goes on");
        processes.disconnected(1, MS(12_000));
        processes.disconnected(0, MS(12_000));
        assert_eq!(claim(&processes, (0, 12_001), "one", &[]), Ok(Instant::ZERO));
    }

    /// An instance that came back again and again kept the name of another for ever, and never had time enough to answer.
    #[test]
    fn a_name_is_not_kept_by_coming_back_for_a_moment() {
        let processes = ProcessRegistry::default();
        for at in [1, 4_000, 8_000] {
            assert_eq!(claim(&processes, (0, at), "one", &[]), Ok(Instant::ZERO));
            processes.disconnected(0, MS(at + 1_000));
        }
        assert_eq!(claim(&processes, (1, 10_999), "one", &[]), namesake(0, false, true));
        assert_eq!(claim(&processes, (1, 11_001), "one", &[]), Ok(Instant::ZERO));
        processes.forget(1);
        assert_eq!(claim(&processes, (0, 12_000), "one", &[]), Ok(Instant::ZERO));
        processes.disconnected(0, MS(22_000));
        assert_eq!(claim(&processes, (1, 31_999), "one", &[]), namesake(0, false, true), "it was there for long");
    }

    #[test]
    fn another_process_of_the_same_name_counts_after_a_quarantine_that_does_not_begin_anew() {
        let processes = ProcessRegistry::default();
        assert_eq!(claim(&processes, (0, 1), "one", &[]), Ok(Instant::ZERO));
        assert_eq!(claim(&processes, (1, 500), "one", &[0]), Ok(MS(10_500)));
        processes.disconnected(1, MS(2_000));
        assert_eq!(claim(&processes, (1, 3_000), "one", &[]), namesake(0, true, true), "it is asked each time");
        assert_eq!(claim(&processes, (1, 3_000), "one", &[0]), Ok(MS(10_500)));
        assert_eq!(claim(&processes, (2, 4_000), "one", &[0]), namesake(1, true, true));
        assert_eq!(claim(&processes, (2, 4_000), "one", &[0, 1]), Ok(MS(14_000)));
    }

    #[test]
    fn an_instance_that_does_not_answer_three_times_in_a_row_has_no_name_to_keep() {
        let processes = ProcessRegistry::default();
        assert_eq!(claim(&processes, (0, 1), "one", &[]), Ok(Instant::ZERO));
        assert_eq!([processes.was_silent(0), processes.was_silent(0)], [false, false]);
        processes.has_answered(0);
        assert_eq!([processes.was_silent(0), processes.was_silent(0)], [false, false]);
        processes.disconnected(0, MS(1));
        assert_eq!(claim(&processes, (0, 1), "one", &[]), Ok(Instant::ZERO));
        assert!(processes.was_silent(0), "also if it has come back meanwhile");
        processes.forget(0);
        assert_eq!(claim(&processes, (1, 1), "one", &[]), Ok(Instant::ZERO));
    }

    #[test]
    fn each_instance_has_a_secret_of_its_own() {
        let processes = ProcessRegistry::default();
        assert_eq!(processes.secret(0), processes.secret(0));
        assert_ne!(processes.secret(0), processes.secret(1));
        assert_ne!(processes.secret(0), ProcessRegistry::default().secret(0));
    }
}
