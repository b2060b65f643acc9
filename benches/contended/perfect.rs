//! A line that costs nothing: first come, first served, and the next one begins as another one ends.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use crate::section::Section;

/// How long each section would have been waited for with such a line between the tasks, where so many work at once.
/// Work and pauses are those that were measured, in their order and again and again, by any client.
pub(crate) fn waits(sections: &[Section], tasks: usize, places: usize, span: &Range<u64>) -> Vec<u64> {
    let measured = turns(sections, tasks);
    let mut turns = measured.iter().cycle();
    let mut arrivals: BinaryHeap<_> = vec![Reverse(span.start); tasks].into();
    let (mut free, mut waits): (BinaryHeap<_>, _) = (vec![Reverse(span.start); places].into(), Vec::new());
    while let Some((Reverse(asked), turn)) = arrivals.pop().zip(turns.next()) {
        let held = free.pop().map_or(asked, |Reverse(free_at)| free_at.max(asked));
        waits.push(held - asked);
        let done = held + turn.work;
        free.push(Reverse(done));
        if done + turn.pause < span.end {
            arrivals.push(Reverse(done + turn.pause));
        }
    }
    waits
}

struct Turn {
    work: u64,
    pause: u64,
}

/// What tasks did, without waits and releases. The last section of a task is no turn: no pause follows.
fn turns(sections: &[Section], tasks: usize) -> Vec<Turn> {
    let mut sorted = sections.to_vec();
    sorted.sort_unstable_by_key(|section| section.held);
    let mut last_of: Vec<Option<Section>> = vec![None; tasks];
    let mut turns = Vec::new();
    for next in sorted {
        if let Some(last) = last_of[next.task].replace(next) {
            turns.push(Turn { work: last.release_begun - last.held, pause: next.asked - last.released });
        }
    }
    turns
}

#[test]
fn a_waiter_waits_for_those_before_it_and_for_nothing_else() {
    let section =
        |task, asked, held, released| Section { task, key: 0, asked, held, release_begun: released, released };
    // Work for 2, and a pause for 1; then work for 2, and a pause for 10. They waited longer than they had to.
    let measured = [section(0, 0, 0, 2), section(0, 3, 20, 22), section(1, 0, 9, 11), section(1, 21, 30, 32)];
    // Asked at 0 and 0, at 3 and 7 after pauses of 1, and at 14 after one of 10.
    assert_eq!(waits(&measured, 2, 1, &(0..17)), [0, 2, 1, 0, 0]);
    assert!(waits(&measured, 2, 2, &(0..17)).iter().all(|wait| *wait == 0), "there is a place for each");
    assert!(waits(&[], 2, 1, &(0..17)).is_empty());
}
