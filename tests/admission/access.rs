//! The rights that a client needs, as docs/operations.md states them.

use std::time::Duration;

use redquorum::{AcquireError, Admission, Holder, Loss, Redlock, Renewal};
use redquorum_testkit::{Program, Server};

use crate::support::{LOCK, Outcome, SLACK, ms, on_every_kind, open, timed, until};

const SHORT: Duration = Duration::from_secs(2);

/// The page that an operator copies from.
const PAGE: &str = include_str!("../../docs/operations.md");

/// Without this clients work on; a loss is noticed later.
const FOR_NOTICE: &str = "+client|tracking";

/// Without this locks cannot be looked at.
const FOR_LOOKS: &str = "+getrange";

/// Without these old tokens stay.
const FOR_OLD_TOKENS: [&str; 2] = ["+zcount", "+zremrangebyrank"];

/// Without these there are no readers.
const FOR_READERS: [&str; 2] = ["+zrange", "+zrem"];

/// Without this what was on its way over a broken connection may set a key.
const FOR_BROKEN_CONNECTIONS: &str = "+client|kill";

fn not_needed(right: &str) -> bool {
    [FOR_BROKEN_CONNECTIONS, FOR_LOOKS, FOR_NOTICE].contains(&right)
        || FOR_OLD_TOKENS.contains(&right)
        || FOR_READERS.contains(&right)
}

/// The rule of the page: `user locks on ..`.
fn rule() -> Outcome<Vec<String>> {
    let line = PAGE.lines().find(|line| line.starts_with("user locks on ")).ok_or("no rule on the page")?;
    Ok(line.replace(">SECRET", ">secret").split_whitespace().map(str::to_owned).collect())
}

fn with_rights(program: &Program, rule: &[String]) -> Outcome<Server> {
    let file = format!("user default on nopass ~* &* +@all\n{}\n", rule.join(" "));
    Ok(Server::builder(program).file("users.acl", &file).config("aclfile", "users.acl").start()?)
}

fn client(server: &Server, admission: Admission) -> Outcome<Redlock> {
    client_of(server, admission, SHORT)
}

fn client_of(server: &Server, admission: Admission, ttl: Duration) -> Outcome<Redlock> {
    let address = server.address().replace("redis://", "redis://locks:secret@");
    let builder = Redlock::builder().instances([address]).ttl(ttl).max_ttl(ttl).admission(admission);
    Ok(builder.instance_timeout(ms(1_000)).connect_timeout(ms(5_000)).build()?)
}

/// Everything that a client does to a lock; what it says if it may not.
async fn everything(server: &Server, admission: Admission) -> Result<(), String> {
    let redlock = client(server, admission).map_err(|error| error.to_string())?;
    redlock.wait_connected(ms(5_000)).await.map_err(|error| error.to_string())?;
    let guard = redlock
        .lock(LOCK)
        .renew(Renewal::Off)
        .wait_at_most(SHORT + SLACK)
        .acquire()
        .await
        .map_err(|error| error.to_string())?;
    // Asked by another client: within one nobody has to ask for what it holds itself.
    let other = client(server, admission).map_err(|error| error.to_string())?;
    other.wait_connected(ms(5_000)).await.map_err(|error| error.to_string())?;
    match other.lock(LOCK).try_acquire().await {
        Err(AcquireError::Contended(_)) => {}
        Err(error) => return Err(error.to_string()),
        Ok(_) => return Err("a second holder".to_owned()),
    }
    // A waiter asks again, in another way than at first.
    match other.lock(LOCK).wait_at_most(ms(600)).acquire().await {
        Err(error) if error.to_string().contains("is held by") => {}
        Err(error) => return Err(error.to_string()),
        Ok(_) => return Err("a second holder".to_owned()),
    }
    tokio::time::sleep(ms(5)).await; // in the same millisecond there is nothing to prolong
    guard.extend().await.map_err(|error| error.to_string())?;
    guard.release().await.map_err(|error| error.to_string())?;
    // The first acquire can have come before the client knew that the quarantine was over; this one has not.
    tokio::time::sleep(ms(50)).await;
    let guard = redlock.lock(LOCK).try_acquire().await.map_err(|error| error.to_string())?;
    guard.release().await.map_err(|error| error.to_string())?;
    Ok(())
}

/// What only `open` needs: it looks whether a client listens.
#[test]
fn new_servers_are_opened_with_the_rights_that_the_page_names_for_it() -> Outcome {
    on_every_kind(|program| async move {
        let right = "+pubsub|channels";
        assert!(PAGE.contains(&format!("(`redquorum admission open`) `{right}`")));
        let server = with_rights(&program, &rule()?)?;
        for (has_right, word) in [(false, "permission denied"), (true, "")] {
            if has_right {
                server.command(&["ACL", "SETUSER", "locks", right])?;
            }
            let operator = client(&server, Admission::AsRecorded)?;
            operator.wait_connected(ms(5_000)).await?;
            let opened = operator.admission_records().open(SHORT).await;
            assert_eq!(opened.is_ok(), has_right, "{opened:?}");
            opened.err().into_iter().for_each(|error| assert!(error.to_string().contains(word), "{error}"));
        }
        Ok(())
    })
}

#[test]
fn the_rule_of_the_page_is_enough_and_nothing_in_it_is_too_much() -> Outcome {
    on_every_kind(|program| async move {
        let rule = rule()?;
        everything(&with_rights(&program, &rule)?, Admission::On).await?;
        let rights: Vec<&String> = rule.iter().filter(|word| word.starts_with('+')).collect();
        assert!(rights.len() > 8, "{rule:?}");
        // All of them first: to start one holds up the tries that run.
        let (mut servers, mut tries) = (Vec::new(), tokio::task::JoinSet::new());
        for right in rights {
            let less: Vec<String> = rule.iter().filter(|word| *word != right).cloned().collect();
            servers.push((right.clone(), with_rights(&program, &less)?));
        }
        for (right, server) in servers {
            tries.spawn(async move { (right, everything(&server, Admission::On).await) });
        }
        while let Some(tried) = tries.join_next().await {
            let (right, done) = tried?;
            println!("{program} without {right}: {}", done.as_ref().err().map_or("works", String::as_str));
            match done {
                Ok(()) => assert!(not_needed(&right), "{right} is not needed"),
                Err(error) => {
                    assert!(error.contains("permission denied"), "{right}: {error}");
                    // Redis does not say which command of a script it was.
                    let named = error.contains(right.trim_start_matches('+')) || error.contains("executing the script");
                    assert!(named, "{right}: {error}");
                }
            }
        }
        Ok(())
    })
}

/// The usual acquire is plain commands, and needs fewer rights than the rest of its life.
#[test]
fn a_user_that_could_not_renew_or_release_a_lock_gets_none_also_where_a_record_is() -> Outcome {
    on_every_kind(|program| async move {
        let server = with_rights(&program, &rule()?)?;
        open(std::slice::from_ref(&server), SHORT).await?;
        for right in ["evalsha", "set", "del", "pexpire", "pttl", "zadd", "zscore"] {
            for admission in [Admission::On, Admission::AsRecorded, Admission::Off] {
                server.command(&["ACL", "SETUSER", "locks", &format!("-{right}")])?;
                let redlock = client(&server, admission)?;
                redlock.wait_connected(ms(5_000)).await?;
                for _ in 0..2 {
                    let error = redlock.lock(LOCK).try_acquire().await.expect_err(right).to_string();
                    assert!(error.contains("permission denied") && error.contains(right), "{error}");
                }
                assert!(!server.keys()?.contains(&LOCK.to_owned()), "without {right} nothing is set");
                server.command(&["ACL", "SETUSER", "locks", &format!("+{right}")])?;
                let guard = redlock.lock(LOCK).wait_at_most(ms(10_000)).acquire().await?;
                assert!(guard.release().await?.was_still_held, "it is seen that {right} was granted");
            }
        }
        Ok(())
    })
}

/// Counter-example: locks were given to it until the connection broke, as at its beginning all rights were there.
#[test]
fn a_user_that_has_lost_a_right_gets_no_lock_once_a_request_has_met_that() -> Outcome {
    on_every_kind(|program| async move {
        let server = with_rights(&program, &rule()?)?;
        open(std::slice::from_ref(&server), SHORT).await?;
        let redlock = client(&server, Admission::On)?;
        redlock.wait_connected(ms(5_000)).await?;
        let held = redlock.lock("orders:1").try_acquire().await?;
        server.command(&["ACL", "SETUSER", "locks", "-pexpire"])?;
        assert!(matches!(tokio::time::timeout(ms(5_000), held.lost()).await?, Loss::Expired { .. }));
        let error = redlock.lock(LOCK).try_acquire().await.expect_err("no lock").to_string();
        assert!(error.contains("may not run pexpire"), "{error}");
        server.command(&["ACL", "SETUSER", "locks", "+pexpire"])?;
        drop(redlock.lock(LOCK).wait_at_most(ms(10_000)).acquire().await?);
        Ok(())
    })
}

/// Counter-example: the question was answered by NOSCRIPT, which denies nothing, and the locks of the user were never renewed.
#[test]
fn a_user_without_the_rights_gets_no_lock_after_the_server_has_lost_its_scripts() -> Outcome {
    on_every_kind(|program| async move {
        let server = with_rights(&program, &rule()?)?;
        open(std::slice::from_ref(&server), SHORT).await?;
        server.command(&["ACL", "SETUSER", "locks", "-pexpire"])?;
        for admission in [Admission::On, Admission::AsRecorded] {
            let redlock = client(&server, admission)?;
            redlock.wait_connected(ms(5_000)).await?;
            server.command(&["SCRIPT", "FLUSH"])?;
            for _ in 0..50 {
                let error = redlock.lock(LOCK).try_acquire().await.expect_err("no lock").to_string();
                assert!(error.contains("may not run pexpire"), "{error}");
                tokio::time::sleep(ms(50)).await;
            }
        }
        Ok(())
    })
}

#[test]
fn a_user_that_could_not_let_a_reader_leave_gets_locks_and_no_readers() -> Outcome {
    on_every_kind(|program| async move {
        for right in FOR_READERS {
            let less: Vec<String> = rule()?.into_iter().filter(|word| word != right).collect();
            let server = with_rights(&program, &less)?;
            open(std::slice::from_ref(&server), SHORT).await?;
            let redlock = client(&server, Admission::On)?;
            redlock.wait_connected(ms(5_000)).await?;
            let error = redlock.rw_lock(LOCK).try_read().await.expect_err(right).to_string();
            assert!(error.contains(&format!("may not run {}", &right[1..])), "{error}");
            assert!(redlock.rw_lock(LOCK).try_write().await?.release().await?.was_still_held);
        }
        Ok(())
    })
}

#[test]
fn without_info_the_error_says_what_to_grant_or_to_turn_off_and_off_works() -> Outcome {
    on_every_kind(|program| async move {
        let rule: Vec<String> = rule()?.into_iter().filter(|word| word != "+info").collect();
        let server = with_rights(&program, &rule)?;
        let error = everything(&server, Admission::On).await.err().unwrap_or_default();
        assert!(error.contains("INFO") && error.contains("Admission::Off"), "{error}");
        everything(&server, Admission::Off).await?;
        Ok(())
    })
}

/// What cannot be looked at is not released: to say that it was not there any more would be wrong, and to send no release
/// again would leave it until its ttl.
#[test]
fn a_release_that_may_not_look_is_no_release() -> Outcome {
    on_every_kind(|program| async move {
        let server = with_rights(&program, &rule()?)?;
        let redlock = client(&server, Admission::Off)?;
        redlock.wait_connected(ms(5_000)).await?;
        for holder in [None, Some(Holder::from("me"))] {
            let mut lock = redlock.lock(LOCK).renew(Renewal::Off);
            if let Some(holder) = holder {
                lock = lock.holder(holder);
            }
            let guard = lock.try_acquire().await?;
            server.command(&["ACL", "SETUSER", "locks", "-get"])?;
            let released = guard.release().await;
            let error = released.err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains("permission denied"), "{error:?}");
            assert_eq!(redlock.stats().pending_releases, 1);
            server.command(&["ACL", "SETUSER", "locks", "+get"])?;
            assert!(until(ms(5_000), || server.keys().is_ok_and(|keys| !keys.contains(&LOCK.to_owned()))).await);
        }
        Ok(())
    })
}

/// What the page adds for clients that wait in order.
fn rights_for_order() -> Outcome<Vec<String>> {
    let line =
        PAGE.lines().find_map(|line| line.strip_prefix("ACL SETUSER locks ")).ok_or("no such line on the page")?;
    Ok(line.split_whitespace().map(str::to_owned).collect())
}

/// A pause that tells a client that was woken from a client that asked again.
const LONG_PAUSE: Duration = ms(6_000);

/// How long after the release a waiting client has the lock.
async fn until_the_next_has_it(server: &Server) -> Outcome<Duration> {
    let address = server.address().replace("redis://", "redis://locks:secret@");
    let builder = Redlock::builder().instances([address]).admission(Admission::Off).instance_timeout(ms(1_000));
    let builder = builder.retry_delay(LONG_PAUSE, LONG_PAUSE);
    let (one, other) = (builder.clone().connect().await?, builder.connect().await?);
    let guard = one.lock(LOCK).try_acquire().await?;
    let waits = tokio::spawn(async move { other.lock(LOCK).acquire().await.map(drop) });
    tokio::time::sleep(ms(1_000)).await; // it has asked by then
    guard.release().await?;
    let (ended, took) = timed(waits).await;
    ended??;
    Ok(took)
}

#[test]
fn with_the_rights_for_order_a_waiting_client_is_woken_and_without_any_of_them_it_asks_again() -> Outcome {
    on_every_kind(|program| async move {
        let (rule, more) = (rule()?, rights_for_order()?);
        let all = [&rule[..], &more[..]].concat();
        let mut tries = tokio::task::JoinSet::new();
        for right in more.iter().filter(|word| *word != "resetchannels").map(Some).chain([None]) {
            let less: Vec<String> = all.iter().filter(|word| Some(*word) != right).cloned().collect();
            let (right, program) = (right.cloned(), program.clone());
            tries.spawn(async move {
                let server = with_rights(&program, &less).map_err(|error| error.to_string())?;
                let took = until_the_next_has_it(&server).await.map_err(|error| error.to_string())?;
                Ok::<_, String>((right, took))
            });
        }
        while let Some(tried) = tries.join_next().await {
            let (without, took) = tried??;
            println!("{program} without {without:?}: {took:?}");
            assert_eq!(took < LONG_PAUSE / 2, without.is_none(), "without {without:?} it took {took:?}");
        }
        Ok(())
    })
}

/// How long a lock that was kept for a while and then deleted is not known to be lost.
async fn until_a_loss_is_known(server: &Server) -> Outcome<Duration> {
    open(std::slice::from_ref(server), TIMED).await?;
    let redlock = client_of(server, Admission::On, TIMED)?;
    redlock.wait_connected(ms(5_000)).await?;
    until_its_loss_is_known(&redlock, server).await
}

async fn until_its_loss_is_known(redlock: &Redlock, server: &Server) -> Outcome<Duration> {
    let guard = redlock.lock(LOCK).wait_at_most(TIMED + SLACK).acquire().await?;
    let kept = tokio::time::timeout(TIMED * 3 / 2, guard.lost()).await;
    assert!(kept.is_err() && guard.is_valid(), "not kept by renewals: {kept:?}");
    let renewed = until(TIMED, || guard.remaining() > TIMED * 19 / 20).await;
    assert!(renewed);
    server.command(&["DEL", LOCK])?;
    let (loss, took) = timed(tokio::time::timeout(TIMED, guard.lost())).await;
    assert!(matches!(loss?, Loss::Gone { .. }));
    Ok(took)
}

/// The ttl of locks whose loss is timed: a machine that is busy for a moment does not make one that is pushed look like
/// one that a renewal found.
const TIMED: Duration = Duration::from_secs(6);

/// A third of the ttl after the last renewal, less what went by since then.
const NEXT_RENEWAL: Duration = ms(1_000);

#[test]
fn without_tracking_locks_are_kept_and_a_loss_is_known_by_the_next_renewal() -> Outcome {
    on_every_kind(|program| async move {
        let rule = rule()?;
        assert!(until_a_loss_is_known(&with_rights(&program, &rule)?).await? < NEXT_RENEWAL, "the rule suffices");
        let less: Vec<String> = rule.iter().filter(|word| *word != FOR_NOTICE).cloned().collect();
        let took = until_a_loss_is_known(&with_rights(&program, &less)?).await?;
        assert!(took >= NEXT_RENEWAL, "without it it is known after {took:?}: the test does not bite");
        Ok(())
    })
}

/// A value that is too long is passed over.
#[test]
fn a_loss_is_known_at_once_also_after_a_huge_value() -> Outcome {
    on_every_kind(|program| async move {
        for without in [None, Some(FOR_LOOKS)] {
            let less: Vec<String> = rule()?.into_iter().filter(|word| Some(word.as_str()) != without).collect();
            let server = with_rights(&program, &less)?;
            open(std::slice::from_ref(&server), TIMED).await?;
            let redlock = client_of(&server, Admission::On, TIMED)?;
            redlock.wait_connected(ms(5_000)).await?;
            let guard = redlock.lock("orders:huge").wait_at_most(TIMED + SLACK).acquire().await?;
            server.command(&["SET", "orders:huge", &"x".repeat(1 << 20)])?;
            let loss = tokio::time::timeout(2 * TIMED, guard.lost()).await?;
            assert!(matches!(loss, Loss::TakenOver { .. }), "{loss:?}");
            let took = until_its_loss_is_known(&redlock, &server).await?;
            assert!(took < NEXT_RENEWAL, "without {without:?} it took {took:?}");
        }
        Ok(())
    })
}

#[test]
fn semaphores_and_elections_need_no_other_rights() -> Outcome {
    on_every_kind(|program| async move {
        let server = with_rights(&program, &rule()?)?;
        let (one, other) = (client(&server, Admission::On)?, client(&server, Admission::On)?);
        one.wait_connected(ms(5_000)).await?;
        other.wait_connected(ms(5_000)).await?;
        let first = one.semaphore(LOCK, 2).wait_at_most(SHORT + SLACK).acquire().await?;
        let second = other.semaphore(LOCK, 2).wait_at_most(SHORT).acquire().await?;
        assert_ne!(first.index(), second.index());
        let refused = one.semaphore(LOCK, 2).wait_at_most(ms(300)).acquire().await;
        assert!(refused.is_err_and(|error| error.is_contended()));
        let mut leaders = other.election(LOCK).observe()?;
        let leadership = one.election(LOCK).campaign("me").await?;
        assert_eq!(leaders.next().await.token, leadership.fencing_token());
        assert!(other.election(LOCK).leader().await?.is_some());
        Ok(())
    })
}
