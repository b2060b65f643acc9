//! Who was in beside whom.

use crate::load::Visit;
use crate::section::Section;
use crate::subject::Access;

/// Pairs that were in at the same time. A time in ends where the release begins.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Overlaps {
    pub(crate) reader_beside_writer: usize,
    pub(crate) writer_beside_writer: usize,
}

pub(crate) fn overlaps(visits: &[Visit]) -> Overlaps {
    let mut events: Vec<(u64, bool, Access)> = Vec::new();
    for visit in visits {
        events.push((visit.section.held, true, visit.access));
        events.push((visit.section.release_begun, false, visit.access));
    }
    events.sort_unstable_by_key(|&(at, enters, _)| (at, enters)); // out before in
    let (mut readers, mut writers, mut seen) = (0, 0, Overlaps::default());
    for (_, enters, access) in events {
        match (enters, access) {
            (true, Access::Read) => {
                seen.reader_beside_writer += writers;
                readers += 1;
            }
            (true, Access::Write) => {
                seen.reader_beside_writer += readers;
                seen.writer_beside_writer += writers;
                writers += 1;
            }
            (false, Access::Read) => readers -= 1,
            (false, Access::Write) => writers -= 1,
        }
    }
    seen
}

/// The most that were in at once.
pub(crate) fn most(sections: impl IntoIterator<Item = Section>) -> usize {
    let mut events: Vec<(u64, bool)> = Vec::new();
    for section in sections {
        events.extend([(section.held, true), (section.release_begun, false)]);
    }
    events.sort_unstable();
    let (mut inside, mut most) = (0_usize, 0);
    for (_, enters) in events {
        inside = if enters { inside + 1 } else { inside - 1 };
        most = most.max(inside);
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::Kind;

    const fn section(held: u64, release_begun: u64) -> Section {
        Section { task: 0, key: 0, asked: 0, held, release_begun, released: release_begun }
    }

    #[test]
    fn pairs_are_counted_and_one_that_comes_as_another_goes_is_none() {
        let visit = |access, held, end| Visit { kind: Kind::Ours, access, section: section(held, end) };
        let apart = [visit(Access::Write, 0, 10), visit(Access::Read, 10, 20), visit(Access::Read, 11, 15)];
        assert_eq!(overlaps(&apart), Overlaps::default());
        let beside = [visit(Access::Write, 0, 10), visit(Access::Read, 9, 20), visit(Access::Write, 8, 12)];
        assert_eq!(overlaps(&beside), Overlaps { reader_beside_writer: 2, writer_beside_writer: 1 });
    }

    #[test]
    fn the_most_at_once() {
        assert_eq!(most([section(0, 10), section(10, 20), section(5, 7), section(6, 8)]), 3);
    }
}
