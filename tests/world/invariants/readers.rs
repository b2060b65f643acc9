//! P33, P34: what a request does to the readers under a key on one server, and to the marks of writers that wait.

use redquorum::testing::simulation::{KeyState, Said, Step, StepKind};

/// For how long a mark counts.
const LONGEST_MARK_MS: f64 = 3_000.0;

/// The clock of the server as scripts read it, in ms.
#[expect(clippy::cast_precision_loss, reason = "a clock in ms is below 2^53")]
const fn now_ms(step: &Step) -> f64 {
    step.wall.as_millis() as f64
}

/// When the step's reader is gone.
fn own_end(state: &KeyState, step: &Step) -> Option<f64> {
    let own = state.readers.iter().find(|(member, _)| *member == step.value);
    own.map(|(_, end)| *end).filter(|end| *end > now_ms(step))
}

/// Readers that are not gone by then.
fn readers<'a>(state: &'a KeyState, step: &Step) -> impl Iterator<Item = &'a (Vec<u8>, f64)> {
    let now_ms = now_ms(step);
    state.readers.iter().filter(move |(_, end)| *end > now_ms)
}

/// A writer waits.
fn is_marked(state: &KeyState, step: &Step) -> bool {
    let now_ms = now_ms(step);
    state.readers.iter().any(|(_, end)| now_ms < -end && -end <= now_ms + LONGEST_MARK_MS)
}

/// Whether each of the others that read is still there, until then at least.
fn leaves_others(step: &Step) -> bool {
    let others = readers(&step.before, step).filter(|(member, _)| *member != step.value);
    others
        .into_iter()
        .all(|(member, end)| step.after.readers.iter().any(|(other, later)| other == member && later >= end))
}

/// Whether the key is there for as long as the last of them, and a mark.
fn outlives_readers(step: &Step) -> bool {
    let last = readers(&step.after, step).map(|(_, end)| *end).fold(0.0, f64::max);
    let end_ms = step.after.end.map_or(f64::INFINITY, |end| end.as_secs_f64() * 1e3);
    end_ms + 1.0 >= last
}

/// What a step of a reader must not do.
/// `is_denied` if the server does not do all that it is asked for.
pub(super) fn broken_by_reader(step: &Step, is_denied: bool) -> Option<&'static str> {
    let is_granted = matches!(step.said, Said::Yes | Said::Repaired | Said::Kept);
    let (had, has) = (own_end(&step.before, step), own_end(&step.after, step));
    if !leaves_others(step) {
        return Some("a reader leaves others alone"); // P33
    }
    if !outlives_readers(step) {
        return Some("a key outlives its readers"); // P33
    }
    if step.kind == StepKind::ReaderLeaves {
        // A mark of before a clock went back counts no more, and stays for its time.
        let is_empty = step.after.readers.iter().all(|(_, end)| end.abs() <= now_ms(step));
        return match has {
            _ if is_denied => None,
            Some(_) => Some("a reader that leaves is gone"),
            None if is_empty && step.said == Said::Yes && !step.after.readers.is_empty() => {
                Some("a key without readers is deleted")
            }
            None => None,
        };
    }
    if has < had {
        return Some("an end moves only forward"); // P9
    }
    if !is_granted {
        return (has > had).then_some("what is refused sets nothing");
    }
    let wanted = now_ms(step) + step.ttl.as_secs_f64() * 1e3 - 1.0;
    let is_new = step.kind == StepKind::ReaderComes && had.is_none();
    if step.before.value.is_some() {
        Some("no reader is let in beside a key") // P33
    } else if has.is_none_or(|end| end < wanted) {
        Some("what is granted is kept for its ttl") // P2
    } else if !step.is_known {
        Some("nothing is granted under another record") // P14
    } else if !step.is_admitted && (had.is_none() || step.said != Said::Kept) {
        Some("in quarantine no client is let in") // P10, P14
    } else if is_new && is_marked(&step.before, step) {
        Some("no reader passes a writer that waits") // P34
    } else {
        None
    }
}

/// What any other must not do to them.
pub(super) fn broken_beside_readers(step: &Step) -> Option<&'static str> {
    if !matches!(step.kind, StepKind::Set | StepKind::Acquire | StepKind::Extend | StepKind::Keep | StepKind::Release) {
        return None;
    }
    (!leaves_others(step)).then_some("no key takes the place of readers") // P33
}
