//! An instance of the holder's quorum forgets its locks. Nobody else gets them before the lease
//! ends; without admission a client does.

use std::time::Duration;

use redquorum::{Admission, ExtendError};
use redquorum_testkit::{Program, Server};
use tokio::time::sleep;

use crate::stepped;
use crate::support::{
    Held, Outcome, RECORD, SLACK, Stage, ms, on_every_kind, promote, resynchronise, storm, until, with_and_without,
};

#[test]
fn an_instance_that_was_killed_and_restarted_empty_does_not_vote() -> Outcome {
    with_and_without(Program::all_required()?, |program, mode| async move {
        let held = Held::start(&program, mode).await?;
        held.stage.third().restart()?;
        held.storm().await
    })
}

#[test]
fn an_instance_that_was_flushed_does_not_vote() -> Outcome {
    with_and_without(Program::all_required()?, |program, mode| async move {
        let held = Held::start(&program, mode).await?;
        held.stage.third().command(&["FLUSHALL"])?;
        held.storm().await
    })
}

/// All of them are blank then, but they have been used.
#[test]
fn instances_that_were_all_flushed_are_not_taken_for_new_ones() -> Outcome {
    with_and_without(Program::all_required()?, |program, mode| async move {
        let held = Held::start(&program, mode).await?;
        for server in held.stage.fleet.iter() {
            server.command(&["FLUSHALL", "ASYNC"])?;
        }
        held.storm().await
    })
}

/// The replica of a failover that never got the key, and has been up for as long as the master.
#[test]
fn a_promoted_replica_that_lacks_the_key_does_not_vote() -> Outcome {
    with_and_without(Program::all_required()?, |program, mode| async move {
        let stage = Stage::start(&program, mode).await?;
        let master = Server::builder(&program).config("repl-diskless-sync-delay", "0").start()?;
        let replica = Server::start(&program)?;
        resynchronise(&replica, &master).await?;
        let held = Held::on(stage).await?;
        promote(&replica)?;
        held.stage.switch.turn_to(replica.port());
        held.storm().await
    })
}

#[test]
fn a_master_that_was_a_replica_of_an_empty_server_in_between_does_not_vote() -> Outcome {
    with_and_without(Program::all_required()?, |program, mode| async move {
        let forget = async || {
            let stage = Stage::start(&program, mode).await?;
            let empty = Server::builder(&program).config("repl-diskless-sync-delay", "0").start()?;
            let held = Held::on(stage).await?;
            resynchronise(held.stage.third(), &empty).await?;
            promote(held.stage.third())?;
            Ok((held, empty))
        };
        storm(mode, forget).await.map(drop)
    })
}

/// The old copy has the very record that clients name, and their connections survive: only what is
/// pushed, and the new replication id, tell.
#[test]
fn a_master_that_came_back_with_an_old_copy_of_itself_does_not_vote() -> Outcome {
    with_and_without(Program::all_required()?, |program, mode| async move {
        let go_back = async || {
            let stage = Stage::start(&program, mode).await?;
            let copy = Server::builder(&program).config("repl-diskless-sync-delay", "0").start()?;
            let held = Held::on(stage).await?;
            let third = held.stage.third();
            if let Some(record) = third.command(&["GET", RECORD])?.text() {
                copy.command(&["SET", RECORD, &record])?; // but not the lock
            }
            let connections = third.client()?.command(&["CLIENT", "LIST"])?;
            resynchronise(third, &copy).await?;
            promote(third)?;
            let ids = |list: Option<String>| -> Vec<String> {
                let of_clients =
                    |line: &str| Some(line.split(' ').next()?.to_owned()).filter(|_| line.contains("resp=3"));
                list.unwrap_or_default().lines().filter_map(of_clients).collect()
            };
            let now = ids(third.command(&["CLIENT", "LIST"])?.text());
            // Under guard the push makes clients look at once, and they leave when they see a replica.
            let survive = ids(connections.text()).iter().all(|id| now.contains(id));
            assert!(survive || mode == Admission::On, "replication closes no connection");
            Ok((held, copy))
        };
        storm(mode, go_back).await.map(drop)
    })
}

/// Only connections of before know that it stepped: they put it into quarantine, for fresh ones too.
#[test]
fn an_instance_whose_clock_jumped_past_the_ttl_does_not_vote() -> Outcome {
    with_and_without(stepped::programs()?, |program, mode| async move {
        let (clock, stage) = stepped::stage(&program, mode).await?;
        let held = Held::on(stage).await?;
        clock.step("+3600")?;
        if mode == Admission::On {
            sleep(ms(1_000)).await; // a heartbeat of the holder or the other
        }
        held.storm().await?;
        if mode == Admission::On {
            assert!(held.holder.instances()[2].clock_steps >= 1);
        }
        Ok(())
    })
}

/// How long to try where nobody else must get the lock, and where a client must.
const fn patience(mode: Admission) -> Duration {
    match mode {
        Admission::Off => ms(1_500),
        _ => ms(500),
    }
}

#[test]
fn a_step_is_seen_by_the_first_grant_after_it() -> Outcome {
    with_and_without(stepped::programs()?, |program, mode| async move {
        let (clock, stage) = stepped::stage(&program, mode).await?;
        let held = Held::on(stage).await?;
        clock.step("+3600")?;
        // Not one try only: a server goes by the clock that it read last, for up to a tenth of a second.
        let second = held.other.lock(crate::support::LOCK).wait_at_most(patience(mode)).acquire().await;
        assert!(held.guard.is_valid());
        assert_eq!(second.is_ok(), mode == Admission::Off, "{second:?}");
        Ok(())
    })
}

/// Nobody who is connected saw it step: the client that comes back compares with what it knew.
#[test]
fn a_step_while_the_client_was_cut_off_is_seen_when_it_is_back() -> Outcome {
    with_and_without(stepped::programs()?, |program, mode| async move {
        let (clock, stage) = stepped::stage(&program, mode).await?;
        let (holder, other) = (stage.client().await?, stage.client().await?);
        let guard = stage.hold_bare_majority(&holder).await?;
        stage.switch.turn_to(1); // nobody listens there
        sleep(ms(100)).await;
        clock.step("+3600")?;
        sleep(ms(100)).await;
        stage.switch.turn_to(stage.third().port());
        let back = || holder.instances()[2].connected && other.instances()[2].connected;
        assert!(until(SLACK, back).await);
        let second = other.lock(crate::support::LOCK).wait_at_most(patience(mode)).acquire().await;
        assert!(guard.is_valid(), "the machine was too slow for this test");
        assert_eq!(second.is_ok(), mode == Admission::Off, "{second:?}");
        if mode == Admission::On {
            let views = holder.instances();
            assert!(views[2].clock_steps == 1, "{views:?}");
        }
        Ok(())
    })
}

#[test]
fn a_clock_that_was_set_back_lengthens_no_quarantine() -> Outcome {
    with_and_without(stepped::programs()?, |program, mode| async move {
        let (clock, stage) = stepped::stage(&program, mode).await?;
        let client = stage.client().await?;
        clock.step("-3600")?;
        sleep(ms(50)).await;
        drop(client.lock("another").try_acquire().await); // a client that asks finds out
        sleep(ms(200)).await;
        crate::support::all_vote(&client).await
    })
}

/// A lease that is kept alive on an instance restarted from disk is younger than the process.
/// Counter-example: restart from disk, extend, FLUSHALL, admission `max_ttl` after the start. So an
/// extend counts nothing there (P10), and the quarantine counts from the flush (P15).
#[test]
fn a_key_that_came_back_from_disk_is_no_vote_and_a_flush_of_it_is_no_way_in() -> Outcome {
    on_every_kind(|program| async move {
        let durable = |_, builder: redquorum_testkit::ServerBuilder| {
            builder.config("appendonly", "yes").config("appendfsync", "always")
        };
        let stage = Stage::start_with(&program, Admission::On, durable).await?;
        let holder = stage.client().await?;
        let guard = stage.hold_bare_majority(&holder).await?;
        let connections = holder.instances()[2].counts.connections;
        stage.third().restart()?;
        let third = || holder.instances().remove(2);
        let back = || third().connected && third().counts.connections > connections;
        assert!(until(SLACK, back).await, "{:?}", third());
        for server in &stage.fleet[3..] {
            server.command(&["SET", crate::support::LOCK, "somebody"])?; // no repair there
        }
        let extended = guard.extend().await;
        assert!(matches!(extended, Err(ExtendError::Unconfirmed { .. })), "{extended:?}");
        for server in &stage.fleet[3..] {
            server.command(&["DEL", crate::support::LOCK])?;
        }
        stage.third().command(&["FLUSHALL"])?;
        stage.storm(&guard, &[&holder]).await
    })
}
