//! The scripts on real servers against their mirror in the in-process instances, which most tests
//! run on: the same random sequences must get the same replies and leave the same data.
//!
//! `REDQUORUM_SEED=<number>` repeats a run.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::panic, reason = "a difference is shown with all that led to it")]
#![expect(clippy::disallowed_methods, reason = "real servers run in real time")]

mod admit;
mod client;
mod compare;
mod generate;
mod kept;
mod known;
#[path = "../shared/lua.rs"]
#[expect(dead_code, clippy::expect_used, reason = "test code, of which other tests use the rest")]
mod lua;
mod model;
mod plain;
mod seen;
mod server;
mod simulated;

use std::time::{Duration, Instant};
use std::vec::IntoIter;

use compare::{same_content, same_reply};
use generate::{Between, Generator, Key, SHORT, Step, record};
use model::{Model, Told};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redis::{Cmd, Value as Wire};
use redquorum::testing::conformance::Content;
use redquorum::testing::protocol::{RawReply, Reply};
use redquorum_testkit::{Program, Server};
use seen::Seen;
use server::{Execution, Real, executions};

const SEQUENCES: usize = 2_000;
/// Sequences that are carried out side by side, so that one wait is enough for all. Fewer if the
/// machine is busy.
const AT_ONCE: usize = 50;
/// In so many rounds all wait until short ttls are over.
const WAITS: usize = 5;

/// A short ttl must not end but in a wait: a round that took this long is drawn anew. By as much may
/// the times differ that are compared.
const MOST: Duration = Duration::from_millis(1_000);
const MOST_REPEATS: usize = 20;

/// Every case that is looked for comes up so often at least.
const OFTEN: usize = 5;

/// Too slow to tell what expired when.
struct TooSlow;

#[test]
fn real_servers_do_what_the_in_process_instances_do() {
    let seed = std::env::var("REDQUORUM_SEED").ok().map_or_else(rand::random, |seed| seed.parse().unwrap());
    println!("REDQUORUM_SEED={seed}");
    let programs = Program::all_required().unwrap();
    std::thread::scope(|scope| {
        let runs: Vec<_> = programs.iter().map(|program| scope.spawn(move || run(program, seed))).collect();
        for run in runs {
            run.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
}

fn run(program: &Program, seed: u64) {
    let begun = Instant::now();
    let mut rng = StdRng::seed_from_u64(seed);
    let mut real = Real::start(Server::start(program).unwrap());
    let (mut at_once, mut waits, mut repeats) = (AT_ONCE, 0, 0);
    let (mut sequences, mut commands, mut seen) = (0, 0, Seen::default());
    // Longer if chance would have it that a case is rare.
    while sequences < SEQUENCES || (seen.least() < OFTEN && sequences < 4 * SEQUENCES) {
        match round(&mut real, &mut rng, at_once, sequences >= waits * SEQUENCES / WAITS) {
            Ok((sent, there)) => {
                sequences += at_once;
                commands += sent;
                seen += there;
                waits = sequences.div_ceil(SEQUENCES / WAITS);
            }
            Err(TooSlow) => {
                at_once = (at_once / 2).max(1);
                repeats += 1;
                assert!(repeats <= MOST_REPEATS, "this machine is too busy to compare times");
            }
        }
    }
    let took = begun.elapsed();
    println!(
        "{:?}: {sequences} sequences, {commands} commands, {repeats} rounds repeated, {took:?}; {seen:?}",
        real.server
    );
    assert!(seen.least() >= OFTEN, "not often enough: {seen:?}");
}

/// A number of sequences from the beginning to the end; gives how many commands were sent, and what
/// happened in them.
fn round(real: &mut Real, rng: &mut StdRng, at_once: usize, waits: bool) -> Result<(usize, Seen), TooSlow> {
    let recorded = record(rng, model::wall_us() / 1_000);
    let written = rng.random_bool(0.8).then_some(&recorded);
    real.reset(written);
    let mut models: Vec<Model> = (0..at_once).map(|_| Model::new(written)).collect();
    let between = [Between::Nothing, if waits { Between::Wait } else { Between::Nothing }, Between::Flush];
    let (mut since, mut sent) = (Instant::now(), 0);
    for what in between {
        match what {
            Between::Nothing => {}
            Between::Wait => {
                std::thread::sleep(SHORT + SHORT / 20);
                since = Instant::now();
            }
            Between::Flush => {
                real.reset(None);
                models.iter_mut().for_each(Model::flush);
            }
        }
        let mut generator = Generator { rng: &mut *rng, recorded: recorded.clone() };
        sent += part(real, &mut models, &mut || generator.steps(), since)?;
    }
    let mut seen = Seen::default();
    models.iter().for_each(|model| seen += model.seen());
    Ok((sent, seen))
}

/// One part of every sequence, and a look at what it left.
pub(crate) fn part(
    real: &mut Real,
    models: &mut [Model],
    steps: &mut dyn FnMut() -> Vec<Step>,
    since: Instant,
) -> Result<usize, TooSlow> {
    let executions = executions();
    for model in &mut *models {
        model.now_is(Instant::now());
        for step in steps() {
            model.carry_out(step);
        }
    }
    // Each in the usual way and in one of the others, in turn.
    let also = |sequence: usize| &executions[1 + sequence % (executions.len() - 1)];
    let runs: Vec<(&Execution, usize)> =
        (0..models.len()).flat_map(|sequence| [(&executions[0], sequence), (also(sequence), sequence)]).collect();
    let mut commands: Vec<Cmd> = Vec::new();
    for (execution, sequence) in &runs {
        let namespace = execution.namespace(*sequence);
        let steps = models[*sequence].part().iter();
        commands.extend(steps.flat_map(|(step, told)| execution.commands(step, told.all_end(), &namespace)));
    }
    let mut answers = real.send(&commands);
    let namespaces: Vec<String> = runs.iter().map(|(execution, sequence)| execution.namespace(*sequence)).collect();
    let mut seen = real.look(&namespaces).into_iter();
    let count = real.count();
    if since.elapsed() > MOST {
        return Err(TooSlow);
    }
    let mut expected_count = 0;
    for ((execution, sequence), found) in runs.into_iter().zip(&mut seen) {
        let model = &mut models[sequence];
        let at = format!("{:?}, {}", real.server, execution.name);
        check_replies(execution, model, &mut answers, &at);
        let expected = model.contents();
        let other = Key::all().zip(expected.iter().zip(&found)).find(|(_, (a, b))| !same_content(a, b, MOST));
        if let Some((key, (expected, found))) = other {
            panic!("{at}: {key:?} is {found:?} instead of {expected:?}\n{model}");
        }
        expected_count += expected.iter().filter(|content| **content != Content::Nothing).count() + model.tombstones();
    }
    // Of all sequences.
    expected_count += usize::from(models.iter().any(Model::has_floor));
    assert_eq!(count, expected_count, "{:?}: keys that no sequence uses", real.server);
    Ok(commands.len() + namespaces.len())
}

/// Compares the answers to the last part of a sequence.
fn check_replies(execution: &Execution, model: &Model, answers: &mut IntoIter<Wire>, at: &str) {
    for (index, (step, told)) in model.part().iter().enumerate() {
        let difference = match (step, told) {
            (Step::Asks(asks, record), Told::Replies(expected)) => {
                let raws = execution.raws(asks, record.as_ref(), told.all_end(), answers);
                let same = |(raw, expected): (&RawReply, &Reply)| {
                    let tells_clock = matches!(raw.reply, Reply::Granted | Reply::Repaired | Reply::Kept { .. });
                    let near = raw.instance_us.is_none_or(|us| us.abs_diff(model::wall_us()) < 10_000_000);
                    same_reply(expected, &raw.reply, MOST) && (tells_clock || raw.instance_us.is_none()) && near
                };
                let all_same = raws.len() == expected.len() && raws.iter().zip(expected).all(same);
                (!all_same).then(|| format!("{raws:?}"))
            }
            (_, Told::Answers(expected)) => {
                let given: Vec<Wire> = answers.by_ref().take(expected.len()).collect();
                (given != *expected).then(|| format!("{given:?}"))
            }
            (_, Told::Replies(_)) => unreachable!("only requests get replies"),
        };
        if let Some(found) = difference {
            panic!("{at}: step {index} of the last part is answered {found}\n{model}");
        }
    }
}
