//! The scripts, and the commands that run them.
//!
//! A script is put together from functions, one in each `.lua` file beside this, and one line that calls
//! one of them on the whole of `KEYS` and `ARGV`.

pub(crate) mod batch;
pub(crate) mod command;
#[cfg(feature = "testing")]
pub(crate) mod kinds;

use std::sync::LazyLock;

use redis::{Pipeline, Script};

const TOKEN_LIMIT: &str = include_str!("token_limit.lua");
const TOKENS: &str = include_str!("tokens.lua");
const LARGER_TOKEN: &str = include_str!("larger_token.lua");
const FORGET_TOKENS: &str = include_str!("forget_tokens.lua");
const ADMISSION: &str = include_str!("admission.lua");
const WRITE_RECORD: &str = include_str!("write_record.lua");
const CLOCK: &str = include_str!("clock.lua");
const SET_IF_FREE: &str = include_str!("set_if_free.lua");
const EXTEND_TTL: &str = include_str!("extend_ttl.lua");
const FAILURE: &str = include_str!("failure.lua");
const REFUSAL: &str = include_str!("refusal.lua");
/// What acquire.lua calls.
const TO_ACQUIRE: &str =
    concat!(include_str!("failure.lua"), include_str!("refusal.lua"), include_str!("reservation.lua"),);
const ACQUIRE: &str = include_str!("acquire.lua");
const EXTEND: &str = include_str!("extend.lua");
const TOMBSTONE: &str = include_str!("tombstone.lua");
const RELEASE: &str = include_str!("release.lua");
const PASS_ON: &str = include_str!("pass_on.lua");

const ACQUIRE_ONE: &str = include_str!("acquire_one.lua");
const ACQUIRE_ALONE: &str = include_str!("acquire_alone.lua");
const RELEASE_ALONE: &str = include_str!("release_alone.lua");
const EXTEND_MANY: &str = include_str!("extend_many.lua");
const BATCH: &str = include_str!("batch.lua");

const CALL_ACQUIRE: &str = "return acquire(1, #KEYS, ARGV[3], ARGV[4], ARGV[5])";
const CALL_EXTEND: &str = "return extend(1, #KEYS, ARGV[3], ARGV[4], ARGV[5])";
const CALL_RELEASE: &str = "return release(1, #KEYS, ARGV[1], ARGV[2], ARGV[3])";

const CALL_PASS_ON: &str = "return pass_on(1, ARGV[1], ARGV[2], ARGV[6], ARGV[3], ARGV[4], ARGV[5])";
const CALL_KEEP: &str = "return give_up(KEYS[1], ARGV[1] ~= '' and ARGV[1], ARGV[2], ARGV[3], ARGV[4])";

/// All scripts.
pub(crate) struct Scripts {
    acquire: Text,
    extend: Text,
    release: Text,
    /// A release that names its successors.
    pass_on: Text,
    /// A client gives up what is kept for it.
    keep: Text,
    batch: Text,
    extend_many: Text,
    write_record: Text,
    forget_tokens: Text,
    /// What loads all of them, put together once for all connections.
    loading: Pipeline,
}

/// A script and the hash by which it is called.
struct Text {
    text: String,
    hash: String,
}

impl Text {
    fn of(parts: &[&str]) -> Self {
        let text = parts.concat();
        let hash = Script::new(&text).get_hash().to_owned();
        Self { text, hash }
    }
}

impl Scripts {
    /// `alone` are the short ways of an acquire and of a release that are alone in their command.
    fn with(alone: [&[&str]; 2]) -> Self {
        let [acquire_alone, release_alone] = alone.map(<[&str]>::concat);
        let mut scripts = Self {
            loading: Pipeline::new(),
            acquire: Text::of(&[
                ADMISSION,
                TOKEN_LIMIT,
                TOKENS,
                SET_IF_FREE,
                &acquire_alone,
                CLOCK,
                EXTEND_TTL,
                TO_ACQUIRE,
                LARGER_TOKEN,
                ACQUIRE,
                CALL_ACQUIRE,
            ]),
            extend: Text::of(&[
                ADMISSION,
                CLOCK,
                TOKEN_LIMIT,
                TOKENS,
                EXTEND_TTL,
                FAILURE,
                REFUSAL,
                EXTEND,
                CALL_EXTEND,
            ]),
            release: Text::of(&[&release_alone, TOKEN_LIMIT, TOKENS, TOMBSTONE, FAILURE, RELEASE, CALL_RELEASE]),
            pass_on: Text::of(&[TOKEN_LIMIT, TOKENS, TOMBSTONE, FAILURE, PASS_ON, CALL_PASS_ON]),
            keep: Text::of(&[TOKEN_LIMIT, TOKENS, TOMBSTONE, FAILURE, PASS_ON, CALL_KEEP]),
            batch: Self::of_several(),
            extend_many: Text::of(&[ADMISSION, CLOCK, EXTEND_TTL, EXTEND_MANY]),
            write_record: Text::of(&[WRITE_RECORD]),
            forget_tokens: Text::of(&[TOKENS, FORGET_TOKENS]),
        };
        scripts.loading = scripts.load_all();
        scripts
    }

    fn of_several() -> Text {
        Text::of(&[
            ADMISSION,
            CLOCK,
            TOKEN_LIMIT,
            TOKENS,
            LARGER_TOKEN,
            SET_IF_FREE,
            ACQUIRE_ONE,
            EXTEND_TTL,
            TO_ACQUIRE,
            ACQUIRE,
            EXTEND,
            TOMBSTONE,
            RELEASE,
            PASS_ON,
            BATCH,
        ])
    }

    /// Those that are sent.
    pub(crate) fn shipped() -> &'static Self {
        static SHIPPED: LazyLock<Scripts> =
            LazyLock::new(|| Scripts::with([&[ACQUIRE_ONE, ACQUIRE_ALONE], &[RELEASE_ALONE]]));
        &SHIPPED
    }

    /// The scripts without their shortcuts, to be compared with those that have them.
    #[cfg(feature = "testing")]
    pub(crate) fn without_shortcuts() -> &'static Self {
        static PLAIN: LazyLock<Scripts> = LazyLock::new(|| Scripts::with([&[], &[]]));
        &PLAIN
    }

    /// Loads every script: on each new connection, and again when an instance lost its scripts.
    pub(crate) const fn load(&self) -> &Pipeline {
        &self.loading
    }

    fn load_all(&self) -> Pipeline {
        let mut pipeline = redis::pipe();
        let Self { acquire, extend, release, pass_on, keep, batch, .. } = self;
        let Self { extend_many, write_record, forget_tokens, .. } = self;
        let scripts = [acquire, extend, release, pass_on, keep, batch];
        for script in scripts.into_iter().chain([extend_many, write_record, forget_tokens]) {
            pipeline.cmd("SCRIPT").arg("LOAD").arg(&script.text).ignore();
        }
        pipeline
    }
}
