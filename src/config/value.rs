//! What a file, a variable or another source says of one setting.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use super::address::HIDDEN;
use super::duration;

/// Nothing of it is repeated in an error but what cannot be a secret: the setting that was meant may be another one.
pub(super) enum Value {
    Typed(toml::Value),
    /// Of a variable, where it is no text.
    Bytes(OsString),
}

impl From<OsString> for Value {
    fn from(variable: OsString) -> Self {
        variable.into_string().map_or_else(Self::Bytes, |text| Self::Typed(text.into()))
    }
}

impl Value {
    pub(super) fn text(self) -> Result<String, String> {
        match self {
            Self::Typed(toml::Value::String(text)) => Ok(text),
            Self::Typed(_) => Err("it must be a text in quotes".to_owned()),
            Self::Bytes(_) => Err("it is no text; write it in UTF-8".to_owned()),
        }
    }

    pub(super) fn secret(self) -> Result<String, String> {
        self.text()
    }

    pub(super) fn path(self) -> Result<PathBuf, String> {
        match self {
            Self::Bytes(path) => Ok(path.into()),
            Self::Typed(_) => self.text().map(PathBuf::from),
        }
    }

    /// A text is split at spaces and commas.
    pub(super) fn list(self) -> Result<Vec<String>, String> {
        let problem = |_| "it must be a list of texts in quotes".to_owned();
        match self {
            Self::Typed(toml::Value::Array(items)) => {
                items.into_iter().map(|item| Self::Typed(item).text().map_err(problem)).collect()
            }
            Self::Typed(_) => {
                let text = self.text().map_err(problem)?;
                let items = text.split(|c: char| c == ',' || c.is_whitespace());
                Ok(items.filter(|item| !item.is_empty()).map(str::to_owned).collect())
            }
            Self::Bytes(_) => self.text().map(|text| vec![text]),
        }
    }

    pub(super) fn time(self) -> Result<Duration, String> {
        let problem =
            |_| "it must be a time in quotes; write \"500ms\", \"10s\", \"5m\", \"1h\" or \"1m30s\"".to_owned();
        self.text().map_err(problem).and_then(|text| duration::parse(&text))
    }

    pub(super) fn number(self) -> Result<usize, String> {
        self.parsed().ok_or_else(|| "it must be a number, such as 2".to_owned())
    }

    pub(super) fn flag(self) -> Result<bool, String> {
        self.parsed().ok_or_else(|| "it must be true or false".to_owned())
    }

    /// Also of a text, as in variables.
    fn parsed<T: FromStr>(self) -> Option<T> {
        let text = match self {
            Self::Typed(toml::Value::Integer(number)) => number.to_string(),
            Self::Typed(toml::Value::Boolean(flag)) => flag.to_string(),
            other => other.text().ok()?,
        };
        text.parse().ok()
    }
}

/// How values are written.
pub(super) mod shown {
    use super::{Duration, Path, duration};

    pub(in super::super) use self::{text as flag, text as number};

    pub(in super::super) fn text(value: &impl ToString) -> String {
        value.to_string()
    }

    pub(in super::super) fn secret(_: &String) -> String {
        super::HIDDEN.to_owned()
    }

    pub(in super::super) fn path(path: &impl AsRef<Path>) -> String {
        path.as_ref().display().to_string()
    }

    pub(in super::super) fn time(time: &Duration) -> String {
        duration::shown(*time)
    }
}
