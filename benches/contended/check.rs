//! What every run must show, whatever it measures.

use std::time::Duration;

use redquorum_testkit::{Fleet, Server, wait_until};

use crate::Outcome;
use crate::section::Section;
use crate::storage::rows;
use crate::workload::Workload;

/// How long the last releases may take. Well below the ttl, with which keys would go by themselves.
const LAST_RELEASES: Duration = Duration::from_millis(500);

/// Two never hold the same key at once.
pub(crate) fn exclusion(sections: &[Section]) -> Outcome {
    let mut sorted = sections.to_vec();
    sorted.sort_unstable_by_key(|section| (section.key, section.held));
    let overlaps = |pair: &&[Section]| pair[0].key == pair[1].key && pair[1].held < pair[0].release_begun;
    match sorted.windows(2).find(overlaps) {
        Some(pair) => Err(format!("two holders at once: {:?}", pair).into()),
        None => Ok(()),
    }
}

/// Each request has its entry in the table, once.
pub(crate) fn storage(server: &Server, workload: Workload, quick: bool) -> Outcome {
    let Workload::Requests = workload else { return Ok(()) };
    let keys = Workload::keys(quick);
    for (key, row) in rows(server, keys)?.into_iter().enumerate() {
        let expected: Vec<_> = (key..workload.tasks(quick)).step_by(keys).collect();
        if row != expected {
            return Err(format!("row {key} has {row:?} instead of {expected:?}").into());
        }
    }
    Ok(())
}

pub(crate) fn no_key_left(fleet: &Fleet) -> Outcome {
    let mut left = Ok(Vec::new());
    wait_until(LAST_RELEASES, || {
        left = fleet.iter().map(Server::keys).collect::<Result<Vec<_>, _>>();
        left.as_ref().map_or(true, |keys| keys.iter().all(Vec::is_empty))
    });
    let left = left?.concat();
    if left.is_empty() { Ok(()) } else { Err(format!("keys were left behind: {left:?}").into()) }
}

#[test]
fn sections_that_overlap_are_found() {
    let section =
        |key, held, release_begun| Section { task: 0, key, asked: 0, held, release_begun, released: u64::MAX };
    assert!(exclusion(&[section(0, 30, 40), section(0, 10, 20), section(0, 20, 30)]).is_ok());
    assert!(exclusion(&[section(0, 10, 20), section(1, 15, 25)]).is_ok());
    assert!(exclusion(&[section(0, 10, 20), section(0, 30, 40), section(0, 19, 29)]).is_err());
}
