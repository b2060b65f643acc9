//! The rule of `protocol::admission`, carried out over a connection.

pub(crate) mod first_use;
pub(super) mod handshake;
pub(crate) mod peers;
pub(crate) mod processes;
pub(super) mod server_info;
pub(super) mod shared;
