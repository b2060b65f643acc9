//! The runtime under paused time, over in-process instances with faults.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod acquire;
mod attach;
mod background_release;
mod cancel;
mod crowd;
mod debug;
mod dropped;
mod events;
mod evidence;
mod extend;
mod fencing;
mod foreign;
mod forgets;
mod holder;
mod inspect;
mod keep;
mod line;
mod line_leaving;
mod lock;
mod loss;
mod release;
mod renew;
mod run;
mod several_waits;
mod shutdown;
mod stats;
mod succession;
mod support;
mod suspended;
mod told;
mod told_of_loss;
mod unpolled;
mod verdict;
mod wait_events;
