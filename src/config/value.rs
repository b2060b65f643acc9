//! What a file, a variable or another source says of one setting.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_core::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::duration;

/// Nothing of it is repeated in an error but what cannot be a secret: the setting that was meant may be another one.
pub(super) enum Value {
    Text(String),
    /// Of a variable, where it is no text.
    Bytes(OsString),
    List(Vec<Self>),
    Number(usize),
    Flag(bool),
    /// As if the setting was not there.
    Nothing,
    Other,
}

impl Value {
    pub(super) fn of_variable(value: OsString) -> Self {
        match value.into_string() {
            Ok(text) if text.is_empty() => Self::Nothing,
            Ok(text) => Self::Text(text),
            Err(bytes) => Self::Bytes(bytes),
        }
    }

    pub(super) fn text(self) -> Result<String, String> {
        match self {
            Self::Text(text) => Ok(text),
            Self::Bytes(_) => Err("it is no text; write it in UTF-8".to_owned()),
            _ => Err("it must be a text in quotes".to_owned()),
        }
    }

    pub(super) fn path(self) -> Result<PathBuf, String> {
        match self {
            Self::Bytes(path) => Ok(path.into()),
            other => other.text().map(PathBuf::from),
        }
    }

    /// A text is split at spaces and commas.
    pub(super) fn list(self) -> Result<Vec<String>, String> {
        match self {
            Self::List(items) => items
                .into_iter()
                .map(|item| item.text().map_err(|_| "it must be a list of texts in quotes".to_owned()))
                .collect(),
            Self::Text(text) => {
                let items = text.split(|c: char| c == ',' || c.is_whitespace());
                Ok(items.filter(|item| !item.is_empty()).map(str::to_owned).collect())
            }
            Self::Bytes(_) => self.text().map(|text| vec![text]),
            _ => Err("it must be a list of texts in quotes".to_owned()),
        }
    }

    pub(super) fn time(self) -> Result<Duration, String> {
        match self {
            Self::Text(text) => duration::parse(&text),
            _ => Err("it must be a time in quotes; write \"500ms\", \"10s\", \"5m\", \"1h\" or \"1m30s\"".to_owned()),
        }
    }

    pub(super) fn number(self) -> Result<usize, String> {
        let number = match self {
            Self::Number(number) => Some(number),
            Self::Text(text) => text.parse().ok(),
            _ => None,
        };
        number.ok_or_else(|| "it must be a number, such as 2".to_owned())
    }

    pub(super) fn flag(self) -> Result<bool, String> {
        let flag = match self {
            Self::Flag(flag) => Some(flag),
            Self::Text(text) => text.parse().ok(),
            _ => None,
        };
        flag.ok_or_else(|| "it must be true or false".to_owned())
    }
}

/// How values are written.
pub(super) mod shown {
    use super::{Duration, Path, duration};

    pub(in super::super) use self::{text as flag, text as number};

    pub(in super::super) fn text(value: &impl ToString) -> String {
        value.to_string()
    }

    pub(in super::super) fn path(path: &impl AsRef<Path>) -> String {
        path.as_ref().display().to_string()
    }

    pub(in super::super) fn time(time: &Duration) -> String {
        duration::shown(*time)
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Any)
    }
}

/// Takes whatever is there: an error of serde's own would repeat it.
struct Any;

impl<'de> Visitor<'de> for Any {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the value of a setting")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(text.to_owned()))
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<Value, E> {
        Ok(Value::Flag(flag))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Value, E> {
        Ok(usize::try_from(number).map_or(Value::Other, Value::Number))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Value, E> {
        Ok(usize::try_from(number).map_or(Value::Other, Value::Number))
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Value, E> {
        Ok(Value::Other)
    }

    fn visit_bytes<E: Error>(self, _: &[u8]) -> Result<Value, E> {
        Ok(Value::Other)
    }

    fn visit_none<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Nothing)
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Nothing)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Value::Other)
    }
}
