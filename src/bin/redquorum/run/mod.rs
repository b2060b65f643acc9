//! `redquorum run`: a command under a lock.

mod child;
mod group;
mod held;
mod limits;
mod signals;
mod supervise;
mod terminal;
mod waiting;
mod watchdog;

use std::convert::Infallible;
use std::process::ExitCode;
use std::time::Duration;

use nix::sys::signal::killpg;
use nix::unistd::getpgrp;
use redquorum::{AcquireError, ConnectError, Election, Holder, LockAll, Redlock, RwLock, Semaphore};
use tokio::time::sleep;

use crate::cli::RunArgs;
use crate::clock::since_boot;
use crate::exit::{Code, Failure};
use crate::output;
use crate::settings::Settings;
pub(crate) use child::exec_command;
use group::{Ended, collect_inherited};
use held::Held;
use limits::{Limits, check_keep};
use signals::Signals;
use supervise::{Forced, Outcome};
pub(crate) use watchdog::watch;

/// How long what may be left on the instances is deleted at the end; it expires anyway.
const SHUTDOWN: Duration = Duration::from_secs(1);

/// Connections may take this long also where the wait for the lock is shorter.
const LEAST_CONNECT: Duration = Duration::from_secs(1);

/// How often the dead that this program has inherited are collected while it waits for the lock.
const COLLECT_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) async fn run(args: RunArgs, settings: &Settings) -> Result<ExitCode, Failure> {
    let args = &RunArgs { max_hold: args.max_hold.or(settings.max_hold), ..args };
    let ttl = settings.ttl;
    let limits = Limits::new(ttl)?;
    args.keep.or(args.at_least).map_or(Ok(()), check_keep)?;
    let signals_failed = |error| Failure::new(Code::OsError, format!("no signals can be caught: {error}"));
    let mut signals = Signals::catch().map_err(signals_failed)?;
    let redlock = settings.client()?;
    let acquired = tokio::select! {
        acquired = acquire(args, settings, &redlock, ttl) => acquired,
        signal = signals.ending() => Err(ended_by(signal as i32)),
        never = keep_collecting_inherited() => match never {},
    };
    let guard = match acquired {
        Ok(guard) => guard,
        Err(failure) => {
            let _ = redlock.shutdown(SHUTDOWN).await; // what an unfinished try may have set expires otherwise
            return Err(failure);
        }
    };
    let acquired = since_boot();
    // The first that says so is enough.
    let mut seen = redlock.instances().into_iter();
    let warning = seen.find_map(|seen| Some(format!("{}: {}", seen.address, seen.other_lists.first()?)));
    warning.iter().for_each(|warning| output::say(warning));
    let outcome = supervise::supervise(args, &guard, limits, &mut signals).await;
    let of_terminal = outcome.as_ref().ok().and_then(|outcome| outcome.of_terminal);
    let result = finish(args, (guard, acquired), outcome).await;
    let _ = redlock.shutdown(SHUTDOWN).await;
    if let Some(signal) = of_terminal {
        // Without a group of its own for the command all of the job would have got it: a script, or a pipeline.
        let _ = killpg(getpgrp(), signal);
    }
    result
}

/// While there is no command yet.
async fn keep_collecting_inherited() -> Infallible {
    loop {
        collect_inherited(&[]);
        sleep(COLLECT_INTERVAL).await;
    }
}

fn ended_by(signal: i32) -> Failure {
    Failure::new(Code::Signal(signal), "")
}

async fn acquire(args: &RunArgs, settings: &Settings, redlock: &Redlock, ttl: Duration) -> Result<Held, Failure> {
    let begun = since_boot();
    connect(args, settings, redlock).await?;
    let wait = args.wait.map(|wait| wait.saturating_sub(since_boot().saturating_sub(begun)));
    let acquired = match (args.permits, &args.info) {
        _ if args.shared => read(args, redlock, ttl, wait).await?,
        (Some(permits), _) => permit(args, (redlock, permits), ttl, wait).await?,
        (None, Some(info)) => {
            let mut election = redlock.election(args.resources.concat()).ttl(ttl);
            election = args.max_hold.into_iter().fold(election, Election::max_hold);
            election = wait.into_iter().fold(election, Election::wait_at_most);
            waiting::acquire(redlock, election.campaign(info), &args.resources).await.map(Held::Lead)
        }
        (None, None) => locks(args, redlock, ttl, wait).await,
    };
    acquired.map_err(|mut error| {
        if let AcquireError::DeadlinePassed { waited, .. } = &mut error {
            *waited = since_boot().saturating_sub(begun); // for connections, too
        }
        let failure = Failure::from(error);
        let code =
            if failure.code == Code::CONTENDED { Code::Contended(args.conflict_exit_code) } else { failure.code };
        Failure { code, ..failure }
    })
}

type Acquired = Result<Held, AcquireError>;

async fn locks(args: &RunArgs, redlock: &Redlock, ttl: Duration, wait: Option<Duration>) -> Acquired {
    let mut lock = redlock.lock_all(&args.resources).ttl(ttl);
    lock = args.holder.iter().fold(lock, |lock, holder| lock.holder(Holder::from(holder.as_str())));
    lock = args.max_hold.into_iter().fold(lock, LockAll::max_hold);
    lock = wait.into_iter().fold(lock, LockAll::wait_at_most);
    let guard = match args.once {
        true => lock.try_acquire().await,
        false => waiting::acquire(redlock, lock.acquire(), &args.resources).await,
    };
    guard.map(Held::Locks)
}

async fn read(args: &RunArgs, redlock: &Redlock, ttl: Duration, wait: Option<Duration>) -> Result<Acquired, Failure> {
    let [resource] = args.resources.as_slice() else {
        return Err(Failure::new(Code::Usage, "--shared goes with one resource"));
    };
    let mut lock = redlock.rw_lock(resource).ttl(ttl);
    lock = args.holder.iter().fold(lock, |lock, holder| lock.holder(Holder::from(holder.as_str())));
    lock = args.max_hold.into_iter().fold(lock, RwLock::max_hold);
    lock = wait.into_iter().fold(lock, RwLock::wait_at_most);
    let guard = match args.once {
        true => lock.try_read().await,
        false => waiting::acquire(redlock, lock.read(), &args.resources).await,
    };
    Ok(guard.map(Held::Read))
}

async fn permit(
    args: &RunArgs,
    (redlock, permits): (&Redlock, u32),
    ttl: Duration,
    wait: Option<Duration>,
) -> Result<Acquired, Failure> {
    let [resource] = args.resources.as_slice() else {
        return Err(Failure::new(Code::Usage, "--permits goes with one resource"));
    };
    let mut semaphore = redlock.semaphore(resource, permits).ttl(ttl);
    semaphore = args.max_hold.into_iter().fold(semaphore, Semaphore::max_hold);
    semaphore = wait.into_iter().fold(semaphore, Semaphore::wait_at_most);
    let names: Vec<String> = (0..permits).map(|index| format!("{resource}#{index}")).collect();
    let permit = match args.once {
        true => semaphore.try_acquire().await,
        false => waiting::acquire(redlock, semaphore.acquire(), &names).await,
    };
    Ok(permit.map(Held::Permit))
}

/// Waits for a quorum as long as the lock may be waited for. With `--try` an error comes as soon as none can be had.
async fn connect(args: &RunArgs, settings: &Settings, redlock: &Redlock) -> Result<(), ConnectError> {
    if args.once {
        return settings.connect(redlock, settings.connect_timeout).await;
    }
    let limit = args.wait.map_or(Duration::MAX, |wait| wait.max(LEAST_CONNECT));
    waiting::acquire(redlock, redlock.wait_connected(limit), &args.resources).await
}

/// Releases the lock that is held since `acquired`, or leaves it as a mark, and says how it ended.
async fn finish(
    args: &RunArgs,
    (guard, acquired): (Held, Duration),
    outcome: Result<Outcome, Failure>,
) -> Result<ExitCode, Failure> {
    let Outcome { ended, forced, left, .. } = match outcome {
        Ok(outcome) => outcome,
        Err(failure) => {
            let _ = guard.release().await; // nothing runs under it
            return Err(failure);
        }
    };
    let resources = guard.names();
    let why = match &forced {
        Some(forced) => forced.why(&guard).await,
        None => String::new(),
    };
    if let Some(left) = left {
        drop(guard);
        let why = if why.is_empty() { why } else { format!(": {why}") };
        let message = format!("the lock on {resources} was lost{why}; {left} cannot be ended and may still run");
        return Err(Failure::new(Code::Outlived, message));
    }
    let in_words = ended.in_words();
    match forced {
        None => {}
        Some(Forced::Lost(_) | Forced::NotRenewed) => {
            drop(guard);
            let message = format!("the lock on {resources} was lost: {why}; the command {in_words}");
            return Err(Failure::new(Code::Lost, message));
        }
        Some(Forced::Unwatched(_)) => {
            let _ = guard.release().await; // nothing runs under it any more
            return Err(Failure::new(Code::OsError, format!("{why}; the command {in_words}")));
        }
    }
    let left = |time: Duration| time.saturating_sub(since_boot().saturating_sub(acquired));
    // What could not be run here may be run elsewhere.
    let was_run = !matches!(ended, Ended::Status(126 | 127));
    let at_least = args.at_least.map(left).filter(|left| was_run && !left.is_zero());
    let was_held = match args.keep.filter(|_| ended == Ended::Status(0)).or(at_least) {
        Some(time) => {
            guard.keep_for(time).await.map_err(|error| format!("the lock on {resources} is not kept: {error}"))
        }
        None => match guard.release().await {
            Ok(released) if released.was_still_held => Ok(()),
            Ok(_) => Err(format!("the lock on {resources} was lost before the command ended")),
            Err(error) => {
                // The lock was held to the end; the next one waits for the ttl at most.
                output::say(&format!("the release of {resources} is {error}"));
                Ok(())
            }
        },
    };
    was_held.map_err(|message| Failure::new(Code::LostAtTheEnd, message))?;
    match ended {
        Ended::Status(status) => Ok(ExitCode::from(status)),
        Ended::Signal(signal) => Err(ended_by(signal)),
        Ended::Unseen => Err(Failure::new(Code::OsError, format!("the command {in_words}"))),
    }
}
