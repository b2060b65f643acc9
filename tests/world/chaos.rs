//! Carries out the planned faults.

use std::sync::Arc;
use std::time::Duration;

use redquorum::testing::simulation::{Data, Denial, Server};
use tokio::time::{sleep, timeout};

use crate::demand::{LOCKS, NAMES};
use crate::faults::{Fault, FaultKind, Trigger};
use crate::history::Mark;
use crate::invariants::promises::loses_data;
use crate::net::Way;
use crate::world::World;

/// Those that a client may lack from one moment to the next.
const RIGHTS: [&str; 8] = ["SET", "ZADD", "PEXPIRE", "DEL", "EVALSHA", "GET", "MGET", "TIME"];

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The most that a clock is stepped by.
pub(crate) const LONGEST_STEP: Duration = Duration::from_millis(1_000);

/// One planned fault, from its trigger to its end.
pub(crate) async fn carry_out(world: Arc<World>, fault: Fault) {
    if !wait_for(&world, fault).await || world.is_calm() {
        return;
    }
    let server = usize::from(fault.target) % world.servers.len();
    if is_between_commands(fault) {
        let commands = world.servers[server].after_commands(1 + u64::from(fault.amount / 4 % 16));
        if timeout(world.scenario.ttl, commands).await.is_err() || world.is_calm() {
            return;
        }
    }
    let client = usize::from(fault.target / 8) % world.machines.len();
    note(&world, fault, server, client);
    strike(&world, fault, server, client).await;
}

/// Whether it strikes between two commands, of a plain acquire perhaps.
const fn is_between_commands(fault: Fault) -> bool {
    use FaultKind::{Flush, ForgetTokens, Restore, StepBack, StepForward};
    let may_be = matches!(fault.what, Flush | ForgetTokens | Restore | StepForward | StepBack);
    may_be && fault.amount.is_multiple_of(4)
}

/// Waits for the trigger; false if it does not come.
async fn wait_for(world: &World, fault: Fault) -> bool {
    if fault.trigger == Trigger::At {
        sleep(world.scenario.chaos * u32::from(fault.nth) / 256).await;
        return true;
    }
    let given = world.lock_given(usize::from(fault.nth));
    // Faults end with the chaos, given or not.
    let Ok(left) = timeout(world.scenario.chaos, given).await else { return false };
    let brief = Duration::from_millis(u64::from(fault.amount % 8));
    sleep(match fault.trigger {
        Trigger::Expiry => left.saturating_sub(brief),
        Trigger::Held => world.scenario.ttl * u32::from(fault.amount) / 256,
        Trigger::Grant | Trigger::At => brief,
    })
    .await;
    true
}

fn note(world: &World, fault: Fault, server: usize, client: usize) {
    let at = world.at();
    let mut history = world.history();
    let kind = FaultKind::ALL.iter().position(|kind| *kind == fault.what).unwrap_or(0);
    history.stats.faults[kind] += 1;
    history.marks.push(Mark { at, what: fault.what });
    let what = || format!("{:?} at server {server} or client {client}, amount {}", fault.what, fault.amount);
    history.note(at, "fault", [kind as u64, u64::from(fault.target)], what);
}

/// By how much the clock of a server is stepped.
fn step_us(fault: Fault) -> i64 {
    let most = i64::try_from(LONGEST_STEP.as_micros()).unwrap_or(0) * i64::from(fault.amount) / 255;
    match fault.what {
        FaultKind::StepForward => most,
        FaultKind::StepBack => -most,
        _ => 0,
    }
}

async fn strike(world: &World, fault: Fault, index: usize, client: usize) {
    let (server, link) = (&world.servers[index], &world.links[client][index]);
    let machine = &world.machines[client];
    let amount = u64::from(fault.amount);
    // Up to one and a half ttl.
    let time = world.scenario.ttl * u32::from(fault.amount) / 170;
    let step_us = step_us(fault);
    let bytes = 1 + usize::from(fault.amount) * 7;
    let running = server.is_running();
    if is_accident(fault.what, running) {
        world.note_accident((index, client), fault.what, step_us);
    }
    match fault.what {
        FaultKind::RestartEmpty => restart(world, fault, (index, Data::Nothing), amount).await,
        FaultKind::RestartOld => restart(world, fault, (index, Data::Saved), amount).await,
        FaultKind::Kill => restart(world, fault, (index, Data::Present), amount * 8).await,
        FaultKind::Flush if running => server.flush(),
        FaultKind::FlushAnotherDatabase if running => server.flush_another_database(),
        FaultKind::FailOver => server.fail_over(if amount % 2 == 0 { Data::Present } else { Data::Saved }),
        FaultKind::Resynchronise if running => server.resynchronise(Data::Saved),
        FaultKind::Restore if running => server.restore(Data::Saved),
        FaultKind::StepForward | FaultKind::StepBack => server.clock().step_us(step_us),
        FaultKind::Hang if running => {
            server.hang();
            sleep(time).await;
            server.go_on();
            world.links.iter().for_each(|links| links[index].note_disturbed());
        }
        FaultKind::Break => link.break_after(Way::Up, 0, time),
        FaultKind::BreakCommand => link.break_after(Way::Up, bytes, time),
        FaultKind::BreakReply => link.break_after(Way::Down, bytes, time),
        FaultKind::HoldUpCommands => link.hold_up(Way::Up, time),
        FaultKind::HoldUpReplies => link.hold_up(Way::Down, time),
        FaultKind::HoldUpBoth => link.hold_up_both(time),
        FaultKind::Suspend | FaultKind::StandStill => {
            if fault.what == FaultKind::StandStill {
                machine.clock.stop();
            }
            machine.suspend(time);
            world.links[client].iter().for_each(|link| link.hold_up_both(time));
            sleep(time).await;
            machine.clock.go_on();
        }
        FaultKind::Block => {
            world.machines.iter().for_each(|machine| machine.suspend(time));
            tokio::time::advance(time).await;
        }
        FaultKind::BlockApart => {
            if let Some(client) = world.scenario.apart {
                world.machines[client].suspend(time);
                world.apart.block(time);
            }
        }
        FaultKind::LoadNothing if running => server.restore(Data::Nothing),
        FaultKind::OddToken => store_odd_tokens(world, index, amount),
        FaultKind::Delete if running => world.delete_locks(index),
        FaultKind::EndRuntime if world.scenario.apart.is_some() => world.apart.end(),
        FaultKind::MemoryFull => deny(world, index, Denial::Memory, time * 2).await,
        FaultKind::RightTaken => deny(world, index, right(amount), time).await,
        FaultKind::ForgetTokens if running => server.forget_tokens(machine.clock.wall(), kept_for(world, amount)),
        // A process that is not there, or stands still, does nothing.
        FaultKind::Flush
        | FaultKind::FlushAnotherDatabase
        | FaultKind::Resynchronise
        | FaultKind::Restore
        | FaultKind::LoadNothing
        | FaultKind::Hang
        | FaultKind::Delete
        | FaultKind::EndRuntime
        | FaultKind::ForgetTokens => {}
    }
}

fn right(amount: u64) -> Denial {
    let at = usize::try_from(amount).unwrap_or_default() % RIGHTS.len();
    Denial::Right(RIGHTS[at])
}

/// For up to one and a half ttl.
fn kept_for(world: &World, amount: u64) -> Duration {
    world.scenario.ttl * u32::try_from(amount / 4 % 4).unwrap_or_default() / 2
}

/// For so long, in which nothing is said of the server's promptness.
async fn deny(world: &World, index: usize, denial: Denial, time: Duration) {
    let (server, until) = (&world.servers[index], world.at() + time);
    let command = server.commands();
    let is_under_way = {
        let denials = &mut world.judge().denials;
        let is_under_way = denials.iter().any(|(of, commands, _)| *of == index && commands.end == u64::MAX);
        denials.extend((!is_under_way).then_some((index, command..u64::MAX, denial)));
        is_under_way
    };
    if is_under_way {
        return;
    }
    server.deny(Some(denial));
    while world.at() < until && !world.is_calm() {
        world.links.iter().for_each(|links| links[index].note_disturbed());
        sleep(world.scenario.ttl / 60).await;
    }
    server.deny(None);
    world.judge().ends_denial(index, server.commands());
}

/// Further ahead than a client believes, or than an instance does.
fn store_odd_tokens(world: &World, index: usize, amount: u64) {
    world.note_odd_tokens(index);
    let by = if amount.is_multiple_of(2) { DAY - Duration::from_secs(30) } else { DAY * 2 };
    NAMES[..LOCKS].iter().for_each(|name| world.servers[index].store_token_ahead(name.as_bytes(), by));
}

/// Whether it is one of those after which a server is judged otherwise.
const fn is_accident(what: FaultKind, running: bool) -> bool {
    use FaultKind::{
        Flush, FlushAnotherDatabase, LoadNothing, Restore, Resynchronise, StandStill, StepBack, StepForward,
    };
    let happens = running || !matches!(what, Flush | FlushAnotherDatabase | LoadNothing | Resynchronise | Restore);
    happens && (loses_data(what) || matches!(what, FlushAnotherDatabase | StepForward | StepBack | StandStill))
}

/// The process ends, and another begins after so many ms.
async fn restart(world: &World, fault: Fault, (index, data): (usize, Data), after_ms: u64) {
    let server = &world.servers[index];
    server.stop();
    sleep(Duration::from_millis(after_ms)).await;
    if !server.is_up() {
        world.note_accident((index, 0), fault.what, 0);
        server.start(data);
    }
}

/// Keeps copies of the data from time to time, as servers do that write it to disk.
pub(crate) async fn save(world: Arc<World>) {
    let pause = world.scenario.ttl * 3 / 4;
    while !world.is_calm() {
        sleep(pause).await;
        world.servers.iter().for_each(Server::save);
    }
}
