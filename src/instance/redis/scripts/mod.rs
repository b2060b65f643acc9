//! The scripts, one in each `.lua` file beside this, and the commands that run them.

pub(crate) mod command;
#[cfg(feature = "testing")]
pub(crate) mod kinds;

use std::sync::LazyLock;

use redis::{Pipeline, Script};

/// All scripts.
pub(crate) struct Scripts {
    acquire: Text,
    extend: Text,
    release: Text,
    read: Text,
    write_record: Text,
    forget_tokens: Text,
    /// An operator says that no lock was held. It is loaded when it is called.
    open: Text,
    /// What loads all of them but that, put together once for all connections.
    loading: Pipeline,
}

/// A script and the hash by which it is called.
struct Text {
    text: &'static str,
    hash: String,
}

impl Text {
    fn of(text: &'static str) -> Self {
        Self { text, hash: Script::new(text).get_hash().to_owned() }
    }
}

impl Scripts {
    /// Those that are sent.
    pub(crate) fn shipped() -> &'static Self {
        static SHIPPED: LazyLock<Scripts> = LazyLock::new(Scripts::new);
        &SHIPPED
    }

    fn new() -> Self {
        let mut scripts = Self {
            acquire: Text::of(include_str!("acquire.lua")),
            extend: Text::of(include_str!("extend.lua")),
            release: Text::of(include_str!("release.lua")),
            read: Text::of(include_str!("read.lua")),
            write_record: Text::of(include_str!("write_record.lua")),
            forget_tokens: Text::of(include_str!("forget_tokens.lua")),
            open: Text::of(include_str!("open.lua")),
            loading: Pipeline::new(),
        };
        let Self { acquire, extend, release, read, write_record, forget_tokens, loading, .. } = &mut scripts;
        for script in [acquire, extend, release, read, write_record, forget_tokens] {
            loading.cmd("SCRIPT").arg("LOAD").arg(script.text).ignore();
        }
        scripts
    }

    /// Loads every script that clients call: on each new connection, and again when an instance lost its scripts.
    pub(crate) const fn load(&self) -> &Pipeline {
        &self.loading
    }
}
