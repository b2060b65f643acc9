//! What a server is said to have done to a key.

use std::time::Duration;

use redquorum::FencingToken;
use redquorum::testing::simulation::{Denial, KeyState, Said, Step, StepKind};

use super::{Scene, scene};

const NOW: Duration = Duration::from_secs(1_750_000_000);
const TTL: Duration = Duration::from_secs(1);

fn token(at: u64) -> Option<FencingToken> {
    FencingToken::from_wire(at.to_string().as_bytes())
}

/// A key with this value, for a ttl from now on.
fn has(value: &[u8]) -> KeyState {
    KeyState { value: Some(value.to_vec()), end: Some(NOW + TTL), token: token(2), ..KeyState::default() }
}

/// An ordinary acquire of a free lock by the value `mine`.
fn granted() -> Step {
    Step {
        connection: 0,
        command: 1,
        begins: 0,
        ends: 0,
        at: Duration::from_secs(1),
        wall: NOW,
        kind: StepKind::Acquire,
        key: b"a".to_vec(),
        value: b":mine".to_vec(),
        token: token(2),
        ttl: TTL,
        is_known: true,
        resent: false,
        is_admitted: true,
        said: Said::Yes,
        stale: None,
        before: KeyState { token: token(1), ..KeyState::default() },
        after: has(b":mine"),
    }
}

/// One that is refused, as another has the lock.
fn refused() -> Step {
    Step { said: Said::No, before: has(b":other"), after: has(b":other"), ..granted() }
}

/// A key of readers, and until when each reads, in ms from now on.
fn read_by(readers: &[(&[u8], f64)]) -> KeyState {
    let end_of = |(member, end): &(&[u8], f64)| (member.to_vec(), NOW.as_secs_f64() * 1e3 + end);
    KeyState { end: Some(NOW + TTL), readers: readers.iter().map(end_of).collect(), ..KeyState::default() }
}

fn leaves() -> Step {
    Step { kind: StepKind::ReaderLeaves, value: b"me".to_vec(), before: read_by(&[(b"me", 500.0)]), ..granted() }
}

pub(super) fn scenes() -> Vec<Scene> {
    vec![
        scene!("what is refused sets nothing", |world| {
            let before = KeyState { token: token(1), ..KeyState::default() };
            world.check_step(0, &Step { before, after: has(b":mine"), ..refused() });
        }),
        scene!("in quarantine nothing is set", |world| {
            world
                .check_step(0, &Step { kind: StepKind::Extend, said: Said::Repaired, is_admitted: false, ..granted() });
        }),
        scene!("who may not vote changes nothing", |world| {
            world.check_step(0, &Step { said: Said::NotAdmitted, ..granted() });
        }),
        scene!("nothing is granted below what was forgotten", |world| {
            let floor = |state: KeyState| KeyState { floor: token(3), ..state };
            world.check_step(0, &Step { before: floor(KeyState::default()), after: floor(has(b":mine")), ..granted() });
        }),
        scene!("the largest token is named", |world| {
            world.check_step(0, &Step { stale: token(1), ..refused() });
        }),
        scene!("a release deletes", |world| {
            let kind = StepKind::Release;
            world.check_step(0, &Step { kind, before: has(b":mine"), after: has(b":mine"), ..granted() });
        }),
        scene!("a full server lets nobody in", |world| {
            world.judge().denials.push((0, 0..2, Denial::Memory));
            let let_in = world.judge().is_let_in(0, &granted());
            let_in.into_iter().for_each(|(invariant, what)| world.violate(invariant, what));
        }),
        scene!("a reader that leaves is gone", |world| {
            world.check_step(0, &Step { after: read_by(&[(b"me", 500.0)]), ..leaves() });
        }),
        scene!("a key without readers is deleted", |world| {
            world.check_step(0, &Step { after: read_by(&[(b"me", -1.0)]), ..leaves() });
        }),
        scene!("the floor never falls", |world| {
            let at = |floor: u64, command| {
                let state = KeyState { floor: token(floor), ..has(b":mine") };
                Step { kind: StepKind::Read, command, before: state.clone(), after: state, ..granted() }
            };
            let fallen = [at(3, 1), at(2, 2)].map(|step| world.judge().has_floor_fallen(0, &step));
            fallen.into_iter().flatten().for_each(|(invariant, what)| world.violate(invariant, what));
        }),
        scene!("nothing is renewed for nobody", |world| {
            let guard = world.redlock(0).lock("a").acquire().await.expect("a lock that is free");
            guard.extend().await.expect("a lease that is held");
            world.absorb();
        }),
    ]
}
