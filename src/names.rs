//! The names that are given to be locked.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// The name of a lock. Made from
///
/// - text: `&str`, `&&str`, `String`, `&String`, `Cow<str>`, `Box<str>`, `Arc<str>`;
/// - bytes: `&[u8]`, `Vec<u8>`, `&Vec<u8>`, `[u8; N]`, `&[u8; N]`, `Cow<[u8]>`, `Box<[u8]>`, `Arc<[u8]>`;
/// - an integer, except `u8`, which is named by its decimal digits: `42` is `"42"`;
/// - with the feature `uuid` a `Uuid`, named by its hyphenated form in small letters.
///
/// The Redis key is the namespace followed by the name itself, so that other Redlock clients exclude each other with
/// this one.
///
/// ```
/// use redquorum::ResourceName;
///
/// let name: ResourceName = "orders:42".into();
/// assert_eq!(name, b"orders:42".into());
/// assert_eq!(ResourceName::from(42_u64), "42".into());
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceName(Arc<[u8]>);

impl ResourceName {
    /// The name as bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", display_name(self.as_bytes()))
    }
}

/// For people: bytes that are no text are replaced, and long names shortened.
impl fmt::Display for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&display_name(self.as_bytes()))
    }
}

/// Text and bytes. No blanket impl: it would overlap with that of a name for itself.
macro_rules! named_by_bytes {
    ($([$($generics:tt)*] $name:ty),* $(,)?) => {$(
        impl<$($generics)*> From<$name> for ResourceName {
            fn from(name: $name) -> Self {
                Self(AsRef::<[u8]>::as_ref(&*name).into())
            }
        }
    )*};
}

named_by_bytes! {
    [] &str, [] &&str, [] String, [] &String, [] Box<str>, [] Arc<str>, [] Cow<'_, str>,
    [] &[u8], [] Vec<u8>, [] &Vec<u8>, [] Box<[u8]>, [] Arc<[u8]>, [] Cow<'_, [u8]>, [const N: usize] &[u8; N],
}

impl<const N: usize> From<[u8; N]> for ResourceName {
    fn from(name: [u8; N]) -> Self {
        name.as_slice().into()
    }
}

impl From<&Self> for ResourceName {
    fn from(name: &Self) -> Self {
        name.clone()
    }
}

/// Named by its usual form as text. Not `u8`: several are the bytes of one name.
macro_rules! named_by_text {
    ($($name:ty),*) => {$(
        impl From<$name> for ResourceName {
            fn from(name: $name) -> Self {
                name.to_string().into()
            }
        }
    )*};
}

named_by_text!(u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize);
#[cfg(feature = "uuid")]
named_by_text!(uuid::Uuid);

/// A name for people: at most 80 characters, bytes that are no text replaced.
pub(crate) fn display_name(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(name);
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{}..", text.get(..end).unwrap_or_default()),
        None => text.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `lock_all` takes them.
    fn names<I: IntoIterator<Item: Into<ResourceName>>>(names: I) -> Vec<String> {
        let bytes = |name: ResourceName| String::from_utf8_lossy(name.as_bytes()).into_owned();
        names.into_iter().map(|name| bytes(name.into())).collect()
    }

    fn name(name: impl Into<ResourceName>) -> String {
        name.into().to_string()
    }

    #[test]
    fn what_is_one_name() {
        let (text, bytes) = ("ab".to_owned(), b"ab".to_vec());
        let ab = [
            name("ab"),
            name(text.clone()),
            name(&text),
            name(Cow::Borrowed("ab")),
            name(Cow::<str>::Owned(text.clone())),
            name(Box::<str>::from("ab")),
            name(Arc::<str>::from("ab")),
            name(&*bytes),
            name(&bytes),
            name(bytes.clone()),
            name(b"ab"),
            name(*b"ab"),
            name(Cow::Borrowed(&*bytes)),
            name(Box::<[u8]>::from(&*bytes)),
            name(Arc::<[u8]>::from(&*bytes)),
        ];
        for (index, name) in ab.iter().enumerate() {
            assert_eq!(name, "ab", "{index}");
        }
        assert_eq!([name(42), name(-1_i64)], ["42", "-1"]);
        assert_eq!([name(u64::MAX), name(u128::MAX)], [u64::MAX.to_string(), u128::MAX.to_string()]);
    }

    #[test]
    fn what_is_a_name_in_a_list() {
        let (text, bytes) = (["a", "b"].map(str::to_owned), [b"a".to_vec(), b"b".to_vec()]);
        let (texts, slices) = (text.to_vec(), ["a", "b"]);
        let borrowed: &[&str; 2] = &slices;
        let lists = [
            names(slices),
            names(borrowed),
            names(&slices[..]),
            names(slices.to_vec()),
            names(text.clone()),
            names(&text),
            names(&text[..]),
            names(texts.clone()),
            names(&texts),
            names(texts.iter().collect::<Vec<&String>>()),
            names(bytes.clone()),
            names(bytes.to_vec()),
            names(&bytes),
            names([*b"a", *b"b"]),
            names([b"a", b"b"]),
            names([Cow::Borrowed("a"), "b".to_owned().into()]),
            names(["a", "b"].map(Arc::<str>::from)),
            names(texts.iter()),
            names(texts),
            names(bytes),
        ];
        for (index, names) in lists.iter().enumerate() {
            assert_eq!(*names, ["a", "b"], "{index}");
        }
        assert_eq!(names([7_u64, 12]), ["7", "12"]);
        assert_eq!(names(7..9), ["7", "8"]);
        assert_eq!(ResourceName::from([0_u8, 1]).as_bytes(), [0, 1], "bytes are one name");
        assert!(names([""; 0]).is_empty());
    }

    #[test]
    #[cfg(feature = "uuid")]
    fn a_uuid_is_named_in_its_usual_form() {
        let id = uuid::Uuid::from_u128(0x6ba7_b810_9dad_11d1_80b4_00c0_4fd4_30c8);
        assert_eq!(name(id), "6ba7b810-9dad-11d1-80b4-00c04fd430c8");
        assert_eq!(names([id, uuid::Uuid::nil()]).len(), 2);
    }

    #[test]
    fn a_long_or_binary_name_is_shortened_for_people() {
        assert_eq!(display_name(&[b'x'; 200]).len(), 82);
        assert_eq!(display_name(b"a\xffb"), "a\u{fffd}b");
    }
}
