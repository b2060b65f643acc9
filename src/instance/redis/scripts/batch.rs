//! The command that carries out several requests at once.

use std::time::Duration;

use redis::Cmd;

use super::Scripts;
use super::command::{add_keys, add_record, add_successors, millis};
use crate::instance::Request;
use crate::protocol::AttachedRecord;

impl Scripts {
    /// The one command that carries out all `requests`, in their order, the first `releases` of them all
    /// together: see [`put_leading_first`].
    pub(crate) fn batch(&self, requests: &[&Request], releases: usize, attached: Option<&AttachedRecord>) -> Cmd {
        let (first, others) = requests.split_at(releases.min(requests.len()));
        let claims = || requests.iter().map(|request| request.claim());
        let acquired = others.iter().find(|request| matches!(request, Request::Acquire(_)));
        let ttl = acquired.map_or(Duration::ZERO, |request| request.claim().ttl);
        let letters: String = others.iter().map(|request| letter(request, ttl)).collect();

        let keys: usize = claims().map(|claim| claim.resources.len()).sum();
        let mut command = Cmd::with_capacity(8 + keys + 2 * requests.len(), 256 * requests.len());
        command.arg("EVALSHA").arg(&self.batch.hash).arg(keys);
        claims().for_each(|claim| add_keys(&mut command, claim));
        add_record(&mut command, attached, false);
        command.arg(first.len()).arg(millis(ttl)).arg(&letters);
        for release in first {
            command.arg(release.claim().value.as_bytes()).arg(release.claim().token.proposed_us());
        }
        for (request, letter) in others.iter().zip(letters.chars()) {
            let claim = request.claim();
            command.arg(claim.value.as_bytes()).arg(claim.token.proposed_us());
            if letter != USUAL_ACQUIRE {
                command.arg(claim.resources.len()).arg(millis(claim.ttl));
            }
            if let Request::PassOn(_, successors) = request {
                add_successors(&mut command, successors);
            }
        }
        command
    }
}

/// The letter of an acquire of one resource, with the usual ttl.
const USUAL_ACQUIRE: char = 'a';

/// What batch.lua calls a request by.
fn letter(request: &Request, usual_ttl: Duration) -> char {
    match request {
        Request::Acquire(claim) => {
            let is_usual = claim.resources.len() == 1 && claim.ttl == usual_ttl;
            if is_usual { USUAL_ACQUIRE } else { 'A' }
        }
        Request::Extend(_) => 'E',
        Request::Release(claim) if claim.resent => 'S',
        Request::Release(_) => 'R',
        Request::PassOn(claim, _) if claim.resent => 'Q',
        Request::PassOn(..) => 'P',
    }
}

/// How many requests of a batch come first: releases that are carried out all together, and then plain acquires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Leading {
    pub(crate) releases: usize,
    pub(crate) acquires: usize,
}

/// Where in a batch a request goes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Release,
    PlainAcquire,
    Behind,
}

/// Puts those first that can be carried out together, and returns how many they are.
///
/// Releases are those of one resource, for which nothing was sent twice, and which stand behind nothing
/// else of their own round (P6). Acquires are those that may be plain (P28), and for whose key nothing else stands
/// before them. They may pass others by: no answer had reached those who made them.
pub(crate) fn put_leading_first<T>(
    batch: &mut Vec<T>,
    request: impl Fn(&T) -> &Request,
    may_be_plain: impl Fn(&Request) -> bool,
) -> Leading {
    let mut placed: Vec<(Place, T)> = Vec::with_capacity(batch.len());
    for item in batch.drain(..) {
        let place = place(request(&item), placed.iter().map(|(place, item)| (*place, request(item))), &may_be_plain);
        placed.push((place, item));
    }
    placed.sort_by_key(|(place, _)| *place); // stable: else they keep their order
    let count = |place| placed.iter().filter(|(at, _)| *at == place).count();
    let leading = Leading { releases: count(Place::Release), acquires: count(Place::PlainAcquire) };
    batch.extend(placed.into_iter().map(|(_, item)| item));
    leading
}

fn place<'a>(
    request: &Request,
    mut before: impl Iterator<Item = (Place, &'a Request)>,
    may_be_plain: impl Fn(&Request) -> bool,
) -> Place {
    let claim = request.claim();
    let mut keys = claim.resources.lock_keys();
    let (key, is_usual) = (keys.next(), keys.next().is_none());
    match request {
        Request::Release(_) if is_usual && !claim.resent => {
            // Those that lead already too: of two releases of a round both would find the key.
            let is_behind_its_own = before.any(|(_, before)| before.claim().value == claim.value);
            if is_behind_its_own { Place::Behind } else { Place::Release }
        }
        Request::Acquire(_) if may_be_plain(request) => {
            let names = |request: &Request| request.claim().resources.lock_keys().any(|named| Some(named) == key);
            let is_behind = before.any(|(place, before)| place != Place::Release && names(before));
            if is_behind { Place::Behind } else { Place::PlainAcquire }
        }
        _ => Place::Behind,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::instance::Claim;

    const ACQUIRE: fn(Arc<Claim>) -> Request = Request::Acquire;
    const EXTEND: fn(Arc<Claim>) -> Request = Request::Extend;
    const RELEASE: fn(Arc<Claim>) -> Request = Request::Release;

    /// Of the round with this number.
    fn claim(round: u128, names: &[&str], resent: bool) -> Arc<Claim> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        Arc::new(Claim { resent, ..Claim::sample(round, &names) })
    }

    fn one(kind: fn(Arc<Claim>) -> Request, round: u128) -> Request {
        kind(claim(round, &["a"], false))
    }

    /// What a batch makes of `requests`: how many releases come first, and where each was before.
    fn ordered(requests: Vec<Request>) -> (usize, Vec<usize>) {
        let mut batch: Vec<(usize, Request)> = requests.into_iter().enumerate().collect();
        let leading = put_leading_first(&mut batch, |(_, request)| request, |_| false);
        (leading.releases, batch.into_iter().map(|(at, _)| at).collect())
    }

    #[test]
    fn releases_pass_by_what_is_not_of_their_own_round() {
        let batch = vec![one(ACQUIRE, 1), one(RELEASE, 2), one(EXTEND, 3), one(RELEASE, 4)];
        assert_eq!(ordered(batch), (2, vec![1, 3, 0, 2]));
    }

    /// Otherwise the key would be set after it was deleted, and stay (P6).
    #[test]
    fn a_release_stays_behind_what_is_of_its_own_round() {
        for earlier in [ACQUIRE, EXTEND] {
            let batch = vec![one(RELEASE, 1), one(earlier, 2), one(RELEASE, 2), one(RELEASE, 3)];
            assert_eq!(ordered(batch), (2, vec![0, 3, 1, 2]));
        }
    }

    /// Otherwise both would find the key.
    #[test]
    fn of_two_releases_of_a_round_one_comes_first() {
        let batch = vec![one(RELEASE, 1), one(RELEASE, 1), one(RELEASE, 2)];
        assert_eq!(ordered(batch), (2, vec![0, 2, 1]));
    }

    #[test]
    fn releases_that_need_more_than_a_comparison_do_not_come_first() {
        let resent = RELEASE(claim(1, &["a"], true));
        let several = RELEASE(claim(2, &["a", "b"], false));
        let batch = vec![resent, several, one(RELEASE, 4)];
        assert_eq!(ordered(batch), (1, vec![2, 0, 1]));
    }

    #[test]
    fn a_plain_acquire_stays_behind_what_else_is_of_its_key() {
        let named = |kind: fn(Arc<Claim>) -> Request, round, name| kind(claim(round, &[name], false));
        let both = Request::Release(claim(1, &["a", "b"], false));
        let requests = vec![
            both,
            named(ACQUIRE, 2, "c"),
            named(ACQUIRE, 3, "b"),
            named(ACQUIRE, 4, "c"),
            named(RELEASE, 5, "d"),
            named(ACQUIRE, 6, "d"),
            named(RELEASE, 6, "d"),
        ];
        let mut batch: Vec<(usize, Request)> = requests.into_iter().enumerate().collect();
        let is_acquire = |request: &Request| matches!(request, Request::Acquire(_));
        let leading = put_leading_first(&mut batch, |(_, request)| request, is_acquire);
        assert_eq!(leading, Leading { releases: 1, acquires: 2 });
        let order: Vec<usize> = batch.into_iter().map(|(at, _)| at).collect();
        assert_eq!(order, [4, 1, 5, 0, 2, 3, 6]);
    }

    /// Sent as a usual one, it would get the ttl of the others.
    #[test]
    fn only_an_acquire_of_the_usual_terms_is_sent_as_a_usual_one() {
        let sample = Claim::clone(&claim(1, &["a"], false));
        let letter_of = |claim: Claim| letter(&ACQUIRE(Arc::new(claim)), sample.ttl);
        let later = |time: Duration| time + Duration::from_millis(1);
        assert_eq!(letter_of(sample.clone()), USUAL_ACQUIRE);
        assert_eq!(letter_of(Claim::clone(&claim(1, &["a", "b"], false))), 'A');
        assert_eq!(letter_of(Claim { ttl: later(sample.ttl), ..sample.clone() }), 'A');
    }
}
