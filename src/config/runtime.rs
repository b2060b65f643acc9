//! Whether the runtime can do what the client needs.

use std::panic::{UnwindSafe, catch_unwind};
use std::time::Duration;

use crate::error::BuildError;

/// A runtime of tokio does not say what it can do; it panics where it cannot.
pub(super) fn check_runtime(needs_network: bool) -> Result<(), BuildError> {
    if !can(|| drop(tokio::time::sleep(Duration::ZERO))) {
        return Err(BuildError::NoTimers);
    }
    #[cfg(unix)]
    if needs_network && !can(|| drop(tokio::net::UnixStream::pair())) {
        return Err(BuildError::NoNetwork);
    }
    Ok(())
}

fn can(what: impl FnOnce() + UnwindSafe) -> bool {
    catch_unwind(what).is_ok()
}
