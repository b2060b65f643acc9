//! The scripts one by one, for whoever is to recognise them.

use super::Scripts;

/// Which script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScriptKind {
    Acquire,
    Extend,
    Enter,
    Release,
    Leave,
    Batch,
    Renew,
    Admit,
}

impl Scripts {
    /// Every script with its text and the hash by which it is called.
    pub(crate) fn all(&self) -> [(ScriptKind, &str, &str); 8] {
        let Self { acquire, extend, enter, release, leave, batch, renew, admit } = self;
        [
            (ScriptKind::Acquire, acquire),
            (ScriptKind::Extend, extend),
            (ScriptKind::Enter, enter),
            (ScriptKind::Release, release),
            (ScriptKind::Leave, leave),
            (ScriptKind::Batch, batch),
            (ScriptKind::Renew, renew),
            (ScriptKind::Admit, admit),
        ]
        .map(|(script, text)| (script, &*text.text, &*text.hash))
    }
}
