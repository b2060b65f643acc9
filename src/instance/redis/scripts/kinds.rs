//! The scripts one by one, for a server in the process that must recognise them.

use super::Scripts;

/// Which script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScriptKind {
    Acquire,
    Extend,
    Release,
    PassOn,
    Keep,
    Batch,
    ExtendMany,
    WriteRecord,
    ForgetTokens,
}

impl Scripts {
    /// Every script with its text and the hash by which it is called.
    pub(crate) fn all(&self) -> [(ScriptKind, &str, &str); 9] {
        let Self { acquire, extend, release, pass_on, keep, batch, .. } = self;
        let Self { extend_many, write_record, forget_tokens, .. } = self;
        [
            (ScriptKind::Acquire, acquire),
            (ScriptKind::Extend, extend),
            (ScriptKind::Release, release),
            (ScriptKind::PassOn, pass_on),
            (ScriptKind::Keep, keep),
            (ScriptKind::Batch, batch),
            (ScriptKind::ExtendMany, extend_many),
            (ScriptKind::WriteRecord, write_record),
            (ScriptKind::ForgetTokens, forget_tokens),
        ]
        .map(|(script, text)| (script, &*text.text, &*text.hash))
    }
}
