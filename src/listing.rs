//! What operators want to know beyond one lock: which locks there are, and how the instances do.

use std::future::ready;
use std::pin::pin;

use futures_util::stream::{self, StreamExt};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};

use crate::client::Redlock;
use crate::error::{Unanswered, answered};
use crate::inspection::{Inspection, inspect};
use crate::instance::Examination;
use crate::resource::{RESERVED, Resource};
use crate::runtime::ask_all::ask_all;

/// How many locks are read at once.
const AT_ONCE: usize = 64;

/// What is written as `%` and two digits in the text from which the next page is made.
const UNUSUAL: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b':')
    .remove(b'/')
    .remove(b'@')
    .remove(b'+')
    .remove(b',');

/// The locks that were found by [`Redlock::list`] or [`Redlock::list_page`]. A snapshot: each instance was scanned and read for itself,
/// and meanwhile locks came and went.
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Listing {
    /// The locks, by name. Those that a client has on fewer instances than a quorum, since it tries to acquire them, are among them.
    pub locks: Vec<Inspection>,
    /// Where the next page begins, if there are more locks than this one has.
    pub next: Option<String>,
    /// Whether all keys were looked at, on all instances but those in `unknown`.
    pub is_complete: bool,
    /// The instances that could not be scanned.
    pub unknown: Vec<Unanswered>,
}

impl Redlock {
    /// The locks whose names match `pattern` (as of `KEYS`: `*`, `?`, `[ab]`), below this client's namespace. Changes nothing.
    ///
    /// Each instance looks at about `most_keys` of its keys, some hundreds at a time (`SCAN`, for which
    /// the user needs the right). Locks of other libraries look like any other data and are not listed.
    ///
    /// ```no_run
    /// # async fn f(redlock: redquorum::Redlock) {
    /// for lock in redlock.list("orders:*", 100_000).await.locks {
    ///     println!("{}: {:?}", lock.resource, lock.holder().map(|holder| holder.by.to_string()));
    /// }
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// Safe: it only reads.
    pub async fn list(&self, pattern: &str, most_keys: usize) -> Listing {
        self.list_page(pattern, most_keys, "", usize::MAX).await
    }

    /// The same, a page of `count` locks at most, in the order of their full names. `after` is `""` for the first page, and
    /// [`next`](Listing::next) of the page before for any other: the full name of a lock, with `%` and two digits for each byte that is no
    /// letter, digit or usual sign. Each page scans anew, and reads the locks of its own and the next few.
    ///
    /// ```no_run
    /// # async fn f(redlock: redquorum::Redlock) {
    /// let mut page = redlock.list_page("*", 1_000_000, "", 500).await;
    /// while let Some(next) = page.next {
    ///     page = redlock.list_page("*", 1_000_000, &next, 500).await;
    /// }
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// Safe: it only reads.
    pub async fn list_page(&self, pattern: &str, most_keys: usize, after: &str, count: usize) -> Listing {
        let mut full = literal(&self.settings.namespace);
        full.extend(pattern.as_bytes());
        let scanned = ask_all(&self.shared, |instance| instance.scan(full.clone(), most_keys)).await;
        let (found, unknown) = answered(&self.shared, scanned);
        let is_complete = found.iter().all(|(_, found)| found.are_all);
        let mut keys: Vec<_> = found.into_iter().flat_map(|(_, found)| found.keys).collect();
        keys.sort_unstable();
        keys.dedup();
        let after: Vec<u8> = percent_decode_str(after).collect(); // what is no such text is a key as it stands
        let resource = |key: &Vec<u8>| Resource::new(b"", key).ok().filter(|_| !key.starts_with(RESERVED));
        let locks = keys.iter().filter(|key| **key > after).filter_map(|key| Some((key, resource(key)?)));
        let locks = locks.map(|(key, resource)| async move { (key, inspect(&self.shared, &resource).await) });
        let is_ours = |lock: &Inspection| lock.holders.iter().any(|holder| holder.by.client.is_some());
        // Other data is not gathered, however much of it there is.
        let mut rest = pin!(stream::iter(locks).buffered(AT_ONCE).filter(|(_, lock)| ready(is_ours(lock))));
        let page: Vec<_> = rest.by_ref().take(count).collect().await;
        let has_more = rest.next().await.is_some();
        let next = page.last().filter(|_| has_more).map(|(key, _)| percent_encode(key, UNUSUAL).to_string());
        Listing { locks: page.into_iter().map(|(_, lock)| lock).collect(), next, is_complete, unknown }
    }

    /// Reads from each instance what it is and how it does, in the configured order. Changes nothing: a write that it sends, to see
    /// whether one would be carried out, has no effect.
    /// [`instances`](Self::instances) shows without a request what a client needs to know anyway.
    ///
    /// ```no_run
    /// # async fn f(redlock: redquorum::Redlock) {
    /// for instance in redlock.examine().await {
    ///     match instance.answer {
    ///         Ok(details) => println!("{}: {}, {:?}", instance.address, details.version, details.round_trip),
    ///         Err(cause) => println!("{}: {cause}", instance.address),
    ///     }
    /// }
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// Safe: it changes nothing.
    pub async fn examine(&self) -> Vec<Examination> {
        let answers = ask_all(&self.shared, |instance| instance.examine()).await.into_iter();
        let instances = self.shared.instances.iter().zip(answers);
        instances
            .map(|(instance, answer)| Examination {
                address: instance.address().to_owned(),
                answer: answer.map_err(Into::into),
            })
            .collect()
    }
}

/// A pattern that matches just this.
fn literal(name: &[u8]) -> Vec<u8> {
    let mut pattern = Vec::new();
    for byte in name {
        if b"*?[]^\\-".contains(byte) {
            pattern.push(b'\\');
        }
        pattern.push(*byte);
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_gives_its_key_back() {
        for (key, text) in [(&b"orders:42"[..], "orders:42"), (b"a b%41\xff'", "a%20b%2541%FF%27"), (b"", "")] {
            assert_eq!(percent_encode(key, UNUSUAL).to_string(), text);
            assert_eq!(Vec::from_iter(percent_decode_str(text)), key);
        }
        assert_eq!(Vec::from_iter(percent_decode_str("100%")), b"100%");
    }

    #[test]
    fn a_namespace_matches_itself_alone() {
        assert_eq!(literal(b"a:*[b]\\"), b"a:\\*\\[b\\]\\\\");
    }
}
