//! Admission on real servers: instances that may have forgotten locks do not vote (P14 to P17).
//!
//! What admission prevents is carried out without it as well, where it must be seen to happen.

mod access;
mod cost;
mod flushes;
mod forgets;
mod kept;
mod life;
mod own_clock;
mod refusals;
mod rolling;
mod sentinel;
mod stepped;
mod storm;
mod support;
