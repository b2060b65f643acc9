//! What a client's process takes of memory and descriptors, which must not grow while it runs.

use std::fs;
use std::io;
use std::time::Duration;

use tokio::time::sleep;

use crate::clock::now;
use crate::event::{EventKind, log_now};

const EVERY: Duration = Duration::from_secs(5);

/// Logs it again and again, where the system tells it.
pub(super) async fn watch(name: String) {
    let since = now();
    loop {
        sleep(EVERY).await;
        if let Some((resident_kib, descriptors)) = resident_kib().zip(descriptors().ok()) {
            log_now(&name, EventKind::Uses { since, resident_kib, descriptors });
        }
    }
}

fn resident_kib() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Without the one that reads them.
fn descriptors() -> io::Result<u64> {
    let open = fs::read_dir("/proc/self/fd")?.count();
    Ok(u64::try_from(open).unwrap_or(u64::MAX).saturating_sub(1))
}
