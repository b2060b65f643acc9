//! The scripts one by one, for a server in the process that must recognise them.

use super::Scripts;

/// Which script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScriptKind {
    Acquire,
    Extend,
    Release,
    Read,
    WriteRecord,
    ForgetTokens,
    Open,
}

impl Scripts {
    /// Every script with its text and the hash by which it is called.
    pub(crate) fn all(&self) -> [(ScriptKind, &str, &str); 7] {
        let Self { acquire, extend, release, read, write_record, forget_tokens, open, .. } = self;
        [
            (ScriptKind::Acquire, acquire),
            (ScriptKind::Extend, extend),
            (ScriptKind::Release, release),
            (ScriptKind::Read, read),
            (ScriptKind::WriteRecord, write_record),
            (ScriptKind::ForgetTokens, forget_tokens),
            (ScriptKind::Open, open),
        ]
        .map(|(script, text)| (script, text.text, &*text.hash))
    }
}
