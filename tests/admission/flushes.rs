//! What is flushed, and what comes back after it: into the same process, over the same connections.

use redquorum::{Admission, AdmissionStatus, Redlock, Renewal};
use redquorum_testkit::{Program, Server};
use tokio::time::sleep;

use crate::kept::flush_another_database;
use crate::support::{Held, LOCK, Outcome, RECORD, Stage, TTL, all_vote, ms, on_every_kind, until, with_and_without};

/// Throws everything away and sets the record again, as if an old copy of the data had been loaded.
const FLUSH_AND_RESTORE: &str = "redis.call('FLUSHALL') redis.call('SET', KEYS[1], ARGV[1]) return 1";

fn restore(server: &Server, record: &str) -> Outcome {
    server.command(&["EVAL", FLUSH_AND_RESTORE, "1", RECORD, record])?;
    Ok(())
}

fn record(server: &Server) -> Outcome<String> {
    Ok(server.command(&["GET", RECORD])?.text().ok_or("no record")?)
}

/// It names the process, and its instant has long passed.
#[test]
fn an_older_record_of_the_same_process_that_comes_back_does_not_let_it_vote() -> Outcome {
    with_and_without(Program::all_required()?, |program, mode| async move {
        let stage = Stage::start(&program, mode).await?;
        let before = stage.client().await?;
        let old = if mode == Admission::On { record(stage.third())? } else { "any".to_owned() };
        stage.third().command(&["FLUSHALL"])?;
        if mode == Admission::On {
            assert!(until(ms(3_000), || record(stage.third()).is_ok_and(|new| new != old)).await);
            all_vote(&before).await?; // as soon as it is read; then a quarantine
            sleep(TTL).await;
            all_vote(&before).await?;
        }
        let held = Held::on(stage).await?;
        restore(held.stage.third(), &old)?;
        held.storm().await
    })
}

/// Not older than what clients know, but the locks of since then are not in it.
#[test]
fn the_newest_record_that_comes_back_after_a_flush_does_not_let_the_process_vote() -> Outcome {
    with_and_without(Program::all_required()?, |program, mode| async move {
        let held = Held::start(&program, mode).await?;
        let newest = if mode == Admission::On { record(held.stage.third())? } else { "any".to_owned() };
        restore(held.stage.third(), &newest)?;
        held.storm().await
    })
}

/// Clients are told of any flush, and not of which database it was.
#[test]
fn a_flush_of_another_database_is_a_quarantine_that_status_and_errors_explain() -> Outcome {
    on_every_kind(|program| async move {
        let stage = Stage::start(&program, Admission::On).await?;
        let (client, other) = (stage.client().await?, stage.client().await?);
        let waits = |redlock: &Redlock, at: usize| {
            let status = &redlock.instances()[at];
            matches!(status.admission, AdmissionStatus::Quarantine(_)) && status.flushed_ago.is_some()
        };
        let mut guards = Vec::new();
        for lock in 0..15 {
            guards.push(client.lock(format!("orders:{lock}")).renew(Renewal::Auto).try_acquire().await?);
        }
        for at in [0, 1] {
            flush_another_database(&stage.fleet[at])?;
            for redlock in [&client, &other] {
                assert!(until(ms(3_000), || waits(redlock, at)).await, "{:?}", redlock.instances()[at]);
            }
        }
        assert!(guards.iter().all(|guard| guard.is_valid()), "a minority was flushed, and leases ended");
        client.lock(LOCK).try_acquire().await?.release().await?;

        flush_another_database(&stage.fleet[2])?;
        assert!(until(ms(3_000), || waits(&other, 2)).await, "{:?}", other.instances()[2]);
        let error = other.lock(LOCK).try_acquire().await.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains("in quarantine, a database of it was flushed"), "{error}");
        other.lock(LOCK).wait_at_most(TTL * 3).acquire().await?.release().await?;
        Ok(())
    })
}
