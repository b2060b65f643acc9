//! The scripts, one in each `.lua` file beside this, and the commands that run them.

use std::sync::LazyLock;
use std::time::Duration;

use redis::{Cmd, Pipeline, Script};

use crate::protocol::{FencingToken, ProcessIdentity, RecordOrigin};
use crate::resource::{ADMISSION_KEY, FLOOR_KEY, NO_LOCK, TOKENS_KEY};

/// Says for each script once what it is called and where it is.
macro_rules! scripts {
    ($($(#[$doc:meta])* $kind:ident = $file:literal,)*) => {
        /// Which script.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum ScriptKind {
            $($(#[$doc])* $kind,)*
        }

        impl ScriptKind {
            /// All of them in their order.
            pub(crate) const ALL: [Self; [$($file),*].len()] = [$(Self::$kind),*];

            /// In Lua.
            pub(crate) fn text(self) -> &'static str {
                match self {
                    $(Self::$kind => include_str!($file),)*
                }
            }
        }
    };
}

scripts! {
    Acquire = "acquire.lua",
    Extend = "extend.lua",
    Release = "release.lua",
    Read = "read.lua",
    WriteRecord = "write_record.lua",
    ForgetTokens = "forget_tokens.lua",
    Rights = "rights.lua",
    /// An operator says that no lock was held. It is loaded when it is called.
    Open = "open.lua",
}

impl ScriptKind {
    /// By which it is called.
    pub(crate) fn hash(self) -> &'static str {
        static SCRIPTS: LazyLock<[Script; ScriptKind::ALL.len()]> =
            LazyLock::new(|| ScriptKind::ALL.map(|script| Script::new(script.text())));
        SCRIPTS.get(self as usize).map(Script::get_hash).unwrap_or_default()
    }
}

/// Loads every script that clients call: on each new connection, and again when an instance lost its scripts.
pub(crate) fn load() -> &'static Pipeline {
    static LOADING: LazyLock<Pipeline> = LazyLock::new(|| {
        let mut loading = Pipeline::new();
        for script in ScriptKind::ALL.into_iter().filter(|script| *script != ScriptKind::Open) {
            loading.cmd("SCRIPT").arg("LOAD").arg(script.text()).ignore();
        }
        loading
    });
    &LOADING
}

/// Nothing is ever stored under it.
const NO_KEY: &str = "redquorum:rights";

/// The command that finds out which rights are missing, where the scripts are loaded.
pub(crate) fn call_rights() -> Cmd {
    let mut command = Cmd::new();
    command.arg("EVALSHA").arg(ScriptKind::Rights.hash()).arg(0).arg(NO_KEY);
    command
}

/// The commands that find it out at any time: the server may have lost its scripts.
pub(crate) fn rights() -> Pipeline {
    let mut commands = Pipeline::new();
    commands.cmd("SCRIPT").arg("LOAD").arg(ScriptKind::Rights.text()).add_command(call_rights());
    commands
}

/// What is written into an admission record besides whom it is for.
#[derive(Clone, Debug)]
pub(crate) struct RecordWrite {
    /// The longest ttl that it allows.
    pub(crate) longest_ttl_ms: u64,
    pub(crate) origin: RecordOrigin,
    /// The least instant from which the process may vote.
    pub(crate) vote_from_ms: u64,
    /// For how long it waits from now; `None` if the record only follows the one that was found.
    pub(crate) wait_ms: Option<u64>,
    /// Its order, or the least of it where it waits from now.
    pub(crate) order: u64,
    /// The least and the most of the floor where it waits from now (P13), in microseconds since 2025.
    pub(crate) floor_us: (u64, u64),
}

/// The command that forgets some of the tokens that are older than `retention` by a clock that shows `wall_us` (P13).
pub(crate) fn forget_tokens(wall_us: u64, retention: Duration) -> Cmd {
    let retention_us = millis(retention).saturating_mul(1_000);
    let up_to = FencingToken::since_epoch_us(wall_us).saturating_sub_unsigned(retention_us);
    let mut command = Cmd::new();
    command.arg("EVALSHA").arg(ScriptKind::ForgetTokens.hash()).arg(0).arg(up_to).arg(retention_us).arg(NO_LOCK);
    command
}

/// The command that writes an admission record if `found` is still there (P15).
pub(crate) fn write_record(found: &[u8], identity: &ProcessIdentity, write: RecordWrite) -> Cmd {
    let RecordWrite { longest_ttl_ms, origin, vote_from_ms, wait_ms, order, floor_us } = write;
    let mut command = Cmd::new();
    command.arg("EVALSHA").arg(ScriptKind::WriteRecord.hash()).arg(1).arg(ADMISSION_KEY);
    command.arg(found).arg(identity.as_str()).arg(longest_ttl_ms).arg(origin.word());
    command.arg(vote_from_ms).arg(wait_ms.map(|ms| ms.to_string()).unwrap_or_default()).arg(order);
    command.arg(floor_us.0).arg(floor_us.1);
    command
}

/// The commands that write the first record of an instance if it shows no trace of use, or only look whether it does (P15). The script
/// is loaded with them, as it is hardly ever called.
pub(crate) fn open(identity: &ProcessIdentity, longest_ttl_ms: u64, channel: &str, writes: bool) -> Pipeline {
    let mut commands = redis::pipe();
    commands.cmd("SCRIPT").arg("LOAD").arg(ScriptKind::Open.text());
    commands.cmd("EVALSHA").arg(ScriptKind::Open.hash()).arg(3).arg(ADMISSION_KEY).arg(TOKENS_KEY).arg(FLOOR_KEY);
    commands.arg(identity.as_str()).arg(longest_ttl_ms).arg(channel).arg(if writes { "write" } else { "look" });
    commands.arg(NO_LOCK);
    commands
}

/// Its form in commands.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
