//! An instance in quarantine grants nothing new, and keeps what it has (P10, P14).

use redquorum::{Admission, AdmissionStatus, Guard, Redlock, Renewal};
use redquorum_testkit::{Program, Server};
use tokio::time::sleep;

use crate::stepped;
use crate::support::{
    Held, LOCK, Outcome, Stage, TTL, all_vote, ms, on_every_kind, side_by_side, until, with_and_without,
};

/// FLUSHDB of database 1; locks are in database 0.
pub(crate) fn flush_another_database(server: &Server) -> Outcome {
    server.command(&["EVAL", "redis.call('SELECT', 1) return redis.call('FLUSHDB')", "0"])?;
    Ok(())
}

async fn renewed(redlock: &Redlock) -> Outcome<Vec<Guard>> {
    let mut guards = Vec::new();
    for lock in 0..10 {
        guards.push(redlock.lock(format!("renewed:{lock}")).renew(Renewal::Auto).try_acquire().await?);
    }
    Ok(guards)
}

fn in_quarantine(redlock: &Redlock) -> usize {
    let waits = |admission: &AdmissionStatus| matches!(admission, AdmissionStatus::Quarantine(_));
    redlock.instances().iter().filter(|status| waits(&status.admission)).count()
}

fn all_valid(guards: &[Guard], after: &str) {
    let valid = guards.iter().filter(|guard| guard.is_valid()).count();
    assert_eq!(valid, guards.len(), "leases ended after {after}");
}

#[test]
fn flushes_of_another_database_end_no_lease_and_keep_new_locks_waiting() -> Outcome {
    on_every_kind(|program| async move {
        let stage = Stage::start(&program, Admission::On).await?;
        let (client, other) = (stage.client().await?, stage.client().await?);
        let guards = renewed(&client).await?;
        for server in &stage.fleet[..3] {
            flush_another_database(server)?;
        }
        assert!(until(ms(3_000), || in_quarantine(&client) == 3 && in_quarantine(&other) == 3).await);
        let error = other.lock(LOCK).try_acquire().await.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains("in quarantine, a database of it was flushed"), "{error}");
        sleep(TTL - ms(500)).await; // what is not renewed has ended by the end of the quarantine
        for server in stage.fleet.iter() {
            flush_another_database(server)?;
            sleep(TTL / 4).await;
            all_valid(&guards, "a flush on one after the other");
        }
        // Again on all of them, before those of before vote again.
        stage.fleet.iter().try_for_each(flush_another_database)?;
        sleep(TTL / 2).await;
        assert_eq!(in_quarantine(&client), 5);
        all_valid(&guards, "flushes on all at once");
        all_vote(&client).await?;
        all_vote(&other).await?;
        all_valid(&guards, "the quarantine");
        other.lock(LOCK).try_acquire().await?.release().await?;
        assert!(other.lock("renewed:0").try_acquire().await.is_err());
        Ok(())
    })
}

#[test]
fn a_step_of_the_clock_of_one_instance_after_the_other_ends_no_lease() -> Outcome {
    side_by_side(stepped::programs()?, |program| async move {
        let (clocks, stage) = stepped::stage_of_steps(&program).await?;
        let client = stage.client().await?;
        let guards = renewed(&client).await?;
        for clock in &clocks {
            clock.step("+1")?;
            sleep(TTL / 4).await;
            all_valid(&guards, "a step of a clock");
        }
        assert!(until(ms(1_000), || in_quarantine(&client) >= 3).await, "{:?}", client.instances());
        sleep(TTL).await;
        all_valid(&guards, "all steps");
        assert!(client.instances().iter().all(|status| status.clock_steps >= 1), "{:?}", client.instances());
        Ok(())
    })
}

/// An extend by the quarantined one of a bare majority, and then it forgets: the wait begins anew.
#[test]
fn an_instance_that_forgets_in_quarantine_what_it_kept_does_not_vote() -> Outcome {
    with_and_without(Program::all_required()?, |program, mode| async move {
        let held = Held::start(&program, mode).await?;
        let third = held.stage.third();
        flush_another_database(third)?;
        if mode == Admission::On {
            assert!(until(ms(1_000), || in_quarantine(&held.holder) == 1 && in_quarantine(&held.other) == 1).await);
        }
        sleep(TTL / 2).await;
        for server in &held.stage.fleet[3..] {
            server.command(&["SET", LOCK, "somebody"])?; // no repair there
        }
        held.guard.extend().await?;
        for server in &held.stage.fleet[3..] {
            server.command(&["DEL", LOCK])?;
        }
        third.command(&["FLUSHALL"])?;
        held.storm().await
    })
}
