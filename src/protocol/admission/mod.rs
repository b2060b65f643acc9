//! Which instances may vote: those that cannot have forgotten a lock that is still held (P14 to P17).

pub(super) mod clock_watch;
pub(super) mod decide;
pub(super) mod own_clock;
pub(super) mod record;
pub(super) mod state;
