#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod key;
mod layer;
mod locked;
mod refusal;

pub use key::{header, path_parameter};
pub use layer::{LockLayer, LockService};
pub use locked::Locked;
pub use refusal::NotLocked;
