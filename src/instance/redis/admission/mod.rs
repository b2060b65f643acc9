//! The rule of `protocol::admission`, carried out over a connection.

pub(super) mod handshake;
pub(super) mod namesakes;
pub(super) mod operator;
pub(super) mod peers;
pub(super) mod records;
pub(super) mod server_info;
pub(super) mod shared;
