//! A random mixture: one fault after another, now and then two at once, for a chosen time and seed.

use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{Action, CutKind, Expectation, Number, Scenario, Setup};
use crate::client::Role::{Careless, Holder, Rival, Worker};

const SOME: &[&[Number]] = &[&[1], &[2], &[3], &[4], &[5], &[1, 4], &[2, 5], &[3, 4], &[1, 2, 3], &[3, 4, 5]];

const CLIENTS: &[&[Number]] = &[&[1], &[2], &[3], &[1, 2], &[1, 2, 3]];

const EVERYONE: &[Number] = &[1, 2, 3];

/// Who may be killed. The other one lives for the whole mixture, which shows what it uses over all that time.
const MORTAL: &[Number] = &[1, 3];

const WAYS: &[CutKind] = &[CutKind::Lost, CutKind::Refused, CutKind::Requests, CutKind::Replies, CutKind::Lossy];

pub(crate) const MIXTURE: Scenario = Scenario {
    name: "mixture",
    about: "faults of all kinds at random",
    clients: &[&[Worker, Holder], &[Worker, Rival], &[Worker, Careless]],
    setup: Setup::Proxies,
    prepare: &[],
    steps: &[],
    seconds: 0.0,
    violated_by: &[],
    beside: &[],
    shows: Expectation::Safety,
    quick: true,
};

/// The steps of a mixture; the same for the same seed.
pub(crate) fn mixture(seconds: f64, seed: u64) -> (Scenario, Vec<(f64, Action)>) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut steps = Vec::new();
    let mut at = 2.0;
    while at < seconds - 9.0 {
        let lasts = random.random_range(0.3..4.0);
        let (begin, end) = fault(&mut random);
        // A clock jumps alone, when all are connected: one who connects only after the jump cannot notice it
        // (docs/safety.md). A client that hangs cannot be told to cut its links.
        let alone = matches!(begin, Action::Clock(..) | Action::PauseClient(_));
        at += if alone { 2.5 } else { 0.0 };
        steps.push((at, begin));
        if !alone && random.random_bool(0.3) {
            let (second, second_end) = link_fault(&mut random);
            steps.push((at + lasts * random.random_range(0.0..1.0), second));
            steps.push((at + lasts, second_end));
        }
        steps.push((at + lasts, end));
        at += lasts + random.random_range(0.5..4.0);
    }
    steps.push((at, Action::Heal));
    steps.sort_by(|a, b| a.0.total_cmp(&b.0));
    (Scenario { seconds, ..MIXTURE }, steps)
}

/// A fault and what ends it.
fn fault(random: &mut Xoshiro256PlusPlus) -> (Action, Action) {
    let some = pick(random, SOME);
    match random.random_range(0..12) {
        0 => (Action::Kill(some), Action::Start(some)),
        1 => (Action::Restart(some), Action::Heal),
        2 => (Action::Pause(some), Action::Resume(some)),
        3 => (Action::Flush(some), Action::Heal),
        4 => (Action::Fill(some), Action::Drain(some)),
        5 => (Action::Slow(some, random.random_range(5..150)), Action::Slow(some, 0)),
        6 => {
            let one = pick(random, SOME.get(..5).unwrap_or(SOME));
            (Action::Clock(one, *[-60, 5, 60].choose(random).unwrap_or(&60)), Action::Heal)
        }
        7 => {
            let client = random.random_range(1..=EVERYONE.len());
            (Action::PauseClient(client), Action::ResumeClient(client))
        }
        8 => (Action::RestartClient(*MORTAL.choose(random).unwrap_or(&1)), Action::Heal),
        _ => link_fault(random),
    }
}

fn link_fault(random: &mut Xoshiro256PlusPlus) -> (Action, Action) {
    let way = *WAYS.choose(random).unwrap_or(&CutKind::Lost);
    (Action::Cut(pick(random, CLIENTS), pick(random, SOME), way), Action::Mend(EVERYONE))
}

fn pick(random: &mut Xoshiro256PlusPlus, from: &'static [&'static [Number]]) -> &'static [Number] {
    from.choose(random).copied().unwrap_or(EVERYONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_mixture() {
        assert_eq!(mixture(60.0, 7).1, mixture(60.0, 7).1);
        assert_ne!(mixture(60.0, 7).1, mixture(60.0, 8).1);
        assert!(mixture(60.0, 7).1.len() > 10);
    }
}
