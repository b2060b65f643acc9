//! Who has the lock.

use std::fmt;
use std::time::Duration;

use crate::protocol::CurrentHolder;

/// Who holds a lock that was not acquired, who gets it next, and how many wait.
///
/// With the feature `serde` it can be serialised, for the body of a response: the fields as they are named here, and
/// `earliest_expiry_ms` in milliseconds.
///
/// ```no_run
/// # async fn f(redlock: redquorum::Redlock) {
/// let Err(error) = redlock.lock("report").try_acquire().await else { return };
/// if let Some(held_by) = error.held_by() {
///     println!("{} has it, {} wait here and {} elsewhere", held_by.by, held_by.waiting_here, held_by.waiting_elsewhere);
///     if held_by.next.as_deref() == Some(&*redlock.client_id()) {
///         println!("it comes to this client next");
///     }
/// }
/// # }
/// ```
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldBy {
    /// The resource that is taken.
    pub resource: String,
    /// Who holds it, as far as the stored value shows; this client, if a caller of it waits for the lock.
    pub by: CurrentHolder,
    /// On how many instances it is taken, as far as they answered; zero if it is held in this client, where nothing is sent.
    pub refused_by: usize,
    /// How many instances there are.
    pub instances: usize,
    /// When the first of its keys expires, unless it is renewed or released before.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "earliest_expiry_ms", serialize_with = "crate::serialized::optional_millis")
    )]
    pub earliest_expiry: Option<Duration>,
    /// Whether its keys have no end, as far as that is known: those of this library always have one, so it is data of another program,
    /// and no client gets the lock until that is deleted.
    pub never_expires: bool,
    /// Whether a caller of this client holds the lock, or waits for it.
    pub in_this_client: bool,
    /// How many callers of this client wait for it.
    pub waiting_here: usize,
    /// How many other clients have announced to this one that they wait for it. They announce themselves to the one that has it, or gets
    /// it next, so it is zero elsewhere, as it is without the right to `SUBSCRIBE`.
    pub waiting_elsewhere: usize,
    /// The id of the client that comes next, as far as it is known ([`Redlock::client_id`](crate::Redlock::client_id)): of those
    /// who wait for a lock that this client has, the first; this client, if a caller of it waits.
    pub next: Option<String>,
}

impl fmt::Display for HeldBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, by, refused_by, instances, .. } = self;
        match self.earliest_expiry {
            Some(left) if self.in_this_client => {
                write!(f, "{resource:?} is held in this client, by {by} (valid for {left:.1?})")?;
            }
            None if self.in_this_client => write!(f, "{resource:?} is waited for in this client")?,
            earliest => {
                write!(f, "{resource:?} is held by {by} (taken on {refused_by} of {instances} instances")?;
                earliest.map_or(Ok(()), |expiry| write!(f, ", the earliest key expires in {expiry:.1?}"))?;
                if self.never_expires {
                    write!(f, ", and the key never expires: another program has stored it")?;
                }
                write!(f, ")")?;
            }
        }
        match (self.waiting_here, self.waiting_elsewhere) {
            (0, 0) => Ok(()),
            (here, 0) => write!(f, "; {here} wait in this client"),
            (here, elsewhere) => write!(f, "; {here} wait in this client, {elsewhere} elsewhere"),
        }
    }
}

#[cfg(test)]
impl HeldBy {
    pub(super) fn sample() -> Self {
        let (label, client) = (Some("bank/1".to_owned()), Some("0123456789ab".to_owned()));
        let by = CurrentHolder { label, client, ..CurrentHolder::default() };
        Self {
            resource: "a".to_owned(),
            by,
            refused_by: 2,
            instances: 3,
            earliest_expiry: Some(Duration::from_micros(1_900)),
            never_expires: false,
            in_this_client: false,
            waiting_here: 1,
            waiting_elsewhere: 2,
            next: None,
        }
    }
}

#[cfg(all(test, feature = "serde"))]
mod tests {
    use super::*;

    #[test]
    fn what_an_answer_contains_keeps_its_names() {
        let expected = concat!(
            r#"{"resource":"a","by":{"kind":"lock","holder":null,"label":"bank/1","client":"0123456789ab"},"#,
            r#""refused_by":2,"instances":3,"earliest_expiry_ms":1,"never_expires":false,"in_this_client":false,"#,
            r#""waiting_here":1,"waiting_elsewhere":2,"next":null}"#
        );
        assert_eq!(serde_json::to_string(&HeldBy::sample()).unwrap(), expected);
    }
}
