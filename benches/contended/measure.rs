//! What the sections of a run say.

use std::ops::Range;

use crate::commands::Commands;
use crate::perfect;
use crate::results::Metric;
use crate::section::Section;
use crate::tasks::Record;
use crate::workload::Workload;

/// What comes of the times of a run.
pub(crate) fn times(workload: Workload, record: &Record, span: &Range<u64>) -> Vec<Metric> {
    let sections = &record.sections;
    let count = sections.len() as f64;
    let (hand_offs, waits) = (sorted(hand_offs(sections)), sorted(waits(sections)));
    let mean = hand_offs.iter().sum::<u64>() as f64 / hand_offs.len() as f64;
    let mut metrics = vec![
        ("hand-off mean", mean / 1e3, "us"),
        ("hand-off p99", percentile(&hand_offs, 99) / 1e3, "us"),
        ("wait p50", percentile(&waits, 50) / 1e6, "ms"),
        ("wait p99", percentile(&waits, 99) / 1e6, "ms"),
        ("wait max", percentile(&waits, 100) / 1e6, "ms"),
        ("failed", record.failed as f64, "sections"),
    ];
    match workload {
        Workload::Sections { processes, tasks, .. } => {
            let shares = |groups, per_group| share(sections, span, groups, per_group);
            let within = sections.iter().filter(|section| section.held < span.end).count();
            let perfect = sorted(perfect::waits(sections, processes * tasks, 1, span));
            let work: u64 = sections.iter().map(|section| section.release_begun - section.held).sum();
            metrics.extend([
                ("sections/s", within as f64 * 1e9 / (span.end - span.start) as f64, "1/s"),
                ("p99/perfect", percentile(&waits, 99) / percentile(&perfect, 99), "ratio"),
                ("work", work as f64 / count / 1e6, "ms"),
                ("tasks", shares(processes * tasks, 1), "ratio"),
            ]);
            if processes > 1 {
                metrics.push(("processes", shares(processes, tasks), "ratio"));
            }
        }
        Workload::Requests => {
            let end = sections.iter().map(|section| section.released).max().unwrap_or(span.start);
            let seconds = (end - span.start) as f64 / 1e9;
            metrics.extend([("sections/s", count / seconds, "1/s"), ("all done", seconds * 1e3, "ms")]);
        }
    }
    metrics
}

/// What each section cost in a run whose commands were counted.
pub(crate) fn commands(record: &Record, commands: &Commands) -> [Metric; 2] {
    let count = record.sections.len() as f64;
    [
        ("commands", f64::from(commands.of_locks) / count, "1/section"),
        ("questions", f64::from(commands.of_health) / count, "1/section"),
    ]
}

/// From the beginning of a release until the next holder runs, where that is another task than before and
/// a client waited.
fn hand_offs(sections: &[Section]) -> Vec<u64> {
    let mut sorted = sections.to_vec();
    sorted.sort_unstable_by_key(|section| (section.key, section.held));
    let pairs = sorted.windows(2).enumerate().filter(|(at, pair)| {
        let (last, next) = (&pair[0], &pair[1]);
        let waited = |other: &Section| other.key == last.key && other.asked < last.release_begun;
        last.key == next.key && last.task != next.task && sorted[at + 1..].iter().any(waited)
    });
    pairs.map(|(_, pair)| pair[1].held - pair[0].release_begun).collect()
}

fn waits(sections: &[Section]) -> Vec<u64> {
    sections.iter().map(|section| section.held - section.asked).collect()
}

/// How often the one that got most was in, for each time of the one that got least. A group is so many
/// tasks next to each other.
fn share(sections: &[Section], span: &Range<u64>, groups: usize, per_group: usize) -> f64 {
    let mut counts = vec![0_u64; groups];
    for section in sections.iter().filter(|section| section.held < span.end) {
        counts[section.task / per_group] += 1;
    }
    let (most, fewest) = (counts.iter().max(), counts.iter().min());
    most.zip(fewest).map_or(f64::NAN, |(most, fewest)| *most as f64 / *fewest as f64)
}

fn sorted(mut times: Vec<u64>) -> Vec<u64> {
    times.sort_unstable();
    times
}

fn percentile(sorted: &[u64], percent: usize) -> f64 {
    let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(at).map_or(f64::NAN, |time| *time as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn section(task: usize, key: usize, asked: u64, held: u64, release_begun: u64) -> Section {
        Section { task, key, asked, held, release_begun, released: release_begun + 1 }
    }

    #[test]
    fn a_hand_off_is_to_another_task_while_one_waits() {
        let waited = [section(0, 0, 0, 0, 10), section(1, 0, 5, 13, 20)];
        assert_eq!(hand_offs(&waited), [3]);
        let overtaken = [section(0, 0, 0, 0, 10), section(1, 0, 12, 14, 20), section(2, 0, 5, 25, 30)];
        assert_eq!(hand_offs(&overtaken), [4, 5], "the lock lay there though somebody waited");
        let nobody_waited = [section(0, 0, 0, 0, 10), section(1, 0, 12, 14, 20)];
        assert!(hand_offs(&nobody_waited).is_empty());
        let the_same_task = [section(0, 0, 0, 0, 10), section(0, 0, 11, 14, 20), section(1, 0, 1, 30, 40)];
        assert_eq!(hand_offs(&the_same_task), [10]);
        let another_key = [section(0, 0, 0, 0, 10), section(1, 1, 5, 13, 20)];
        assert!(hand_offs(&another_key).is_empty());
    }

    #[test]
    fn a_waiter_that_never_gets_in_makes_the_share_infinite_and_late_grants_do_not_count() {
        let all = [section(0, 0, 0, 0, 1), section(1, 0, 0, 2, 3), section(0, 0, 0, 4, 5), section(1, 0, 0, 90, 91)];
        assert!((share(&all, &(0..50), 2, 1) - 2.0).abs() < 1e-9);
        assert!((share(&all, &(0..100), 2, 1) - 1.0).abs() < 1e-9);
        assert!(share(&all, &(0..50), 3, 1).is_infinite());
        assert!((share(&all, &(0..50), 1, 2) - 1.0).abs() < 1e-9);
    }
}
