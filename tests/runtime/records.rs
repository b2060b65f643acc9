//! What operators do with admission records (P15, P29): nothing is written beside a trace of use, or on some instances only; and no time is
//! shortened at once.

use std::time::Duration;

use redquorum::operator::{AdmissionRecords, RecordsError, Written};
use redquorum::testing::{Cluster, Data, Hang, TestInstance};
use redquorum::{AcquireError, Admission, AdmissionStatus, Builder, ExtendError, Guard, Redlock, Renewal};
use tokio::time::{sleep, timeout};

use crate::support::{held, ms, secs, settle};

const RECORD: &str = "redquorum:admission";

/// Instances that are new.
fn new_cluster() -> Cluster {
    let cluster = Cluster::new(3);
    cluster.instances().for_each(|instance| assert!(instance.remove(RECORD)));
    cluster
}

fn builder(cluster: &Cluster, max_ttl: Duration, quarantine: Duration) -> Builder {
    cluster.builder().ttl(max_ttl).max_ttl(max_ttl).quarantine(quarantine).renew(Renewal::Off)
}

/// What an operator has whose clients are to have this time.
async fn operator(cluster: &Cluster, quarantine: Duration) -> AdmissionRecords {
    let builder = builder(cluster, quarantine, quarantine).admission(Admission::AsRecorded);
    let redlock = builder.build().unwrap();
    settle().await; // a few may not be there
    redlock.admission_records()
}

fn records(cluster: &Cluster) -> Vec<Option<String>> {
    let record = |instance: &TestInstance| Some(String::from_utf8(instance.value(RECORD)?).unwrap());
    cluster.instances().map(record).collect()
}

/// The words of each record.
fn words(cluster: &Cluster) -> Vec<Vec<String>> {
    records(cluster).into_iter().map(|it| it.unwrap().split(' ').map(str::to_owned).collect()).collect()
}

fn number(word: &str) -> u64 {
    word.parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn new_instances_wait_unless_they_are_opened() {
    for opened in [false, true] {
        let cluster = new_cluster();
        if opened {
            operator(&cluster, secs(10)).await.open(secs(10)).await.unwrap();
        }
        let redlock = cluster.builder().connect().await.unwrap();
        settle().await;
        let acquired = redlock.lock("a").try_acquire().await;
        match opened {
            true => assert!(acquired.is_ok(), "{acquired:?}"),
            false => assert!(matches!(acquired, Err(AcquireError::InQuarantine { .. })), "{acquired:?}"),
        }
    }
}

/// What shows of the third instance that it was used, and a word of the refusal.
const TRACES: [(&str, &str); 5] = [
    ("record", "has an admission record: x"),
    ("token", "has a fencing token, of \"a\""),
    ("listener", "has a client that listens: redquorum:wake:"),
    ("flush", "was flushed"),
    ("gone", "not connected"),
];

async fn leave_trace(cluster: &Cluster, trace: &str) -> Option<Redlock> {
    let third = cluster.instance(2);
    match trace {
        "record" => third.set(RECORD, "x"),
        "token" => third.set_token_score("a", 5.0),
        "flush" => third.flush(),
        "gone" => third.stop(),
        _ => {
            let listens = cluster.builder().admission(Admission::Off).connect().await.unwrap();
            settle().await;
            return Some(listens);
        }
    }
    None
}

#[tokio::test(start_paused = true)]
async fn instances_of_which_one_shows_a_trace_of_use_are_not_opened() {
    for (trace, word) in TRACES {
        let cluster = new_cluster();
        let _others = leave_trace(&cluster, trace).await;
        let before = records(&cluster);
        let operator = operator(&cluster, secs(10)).await;
        for operator in [operator.clone().dry_run(), operator] {
            let refused = operator.open(secs(10)).await.unwrap_err();
            let Err(RecordsError::Refused(refusals)) = Err::<(), _>(refused.clone()) else {
                unreachable!("{trace}: {refused:?}")
            };
            assert_eq!(refusals.len(), if trace == "listener" { 3 } else { 1 }, "{trace}: {refusals:?}");
            let third = refusals.last().unwrap();
            assert!(third.address == "memory:2" && third.reason.contains(word), "{trace}: {third:?}");
            assert!(refused.to_string().starts_with("nothing was written: memory:"), "{refused}");
        }
        assert_eq!(records(&cluster), before, "{trace}: nothing was written anywhere");
    }
}

#[tokio::test(start_paused = true)]
async fn a_word_that_covers_less_than_a_lock_may_last_opens_nothing_and_neither_does_a_dry_run() {
    let cluster = new_cluster();
    let operator = operator(&cluster, secs(30)).await;
    let short = operator.open(secs(29)).await;
    assert_eq!(short, Err(RecordsError::ShortWord { word: secs(29), longest_ttl: secs(30) }));
    operator.clone().dry_run().open(secs(30)).await.unwrap();
    assert_eq!(records(&cluster), [None, None, None]);
    operator.open(secs(30)).await.unwrap();
    assert!(words(&cluster).iter().all(|words| words[2] == "30000" && words[3] == "opened"), "{:?}", words(&cluster));
    let again = operator.open(secs(30)).await;
    assert!(matches!(again, Err(RecordsError::Refused(refusals)) if refusals.len() == 3), "not twice");
}

#[tokio::test(start_paused = true)]
async fn a_longer_time_is_all_that_changes_and_clients_that_fit_go_on() {
    let cluster = Cluster::new(3);
    let between = builder(&cluster, secs(10), secs(30)).connect().await.unwrap();
    let former = words(&cluster);
    assert!(former.iter().all(|words| words[2] == "30000"), "what the first client waits for: {former:?}");
    let operator = operator(&cluster, secs(60)).await;
    operator.clone().dry_run().set().await.unwrap();
    assert_eq!(words(&cluster), former);
    operator.set().await.unwrap();
    for (former, latter) in former.iter().zip(words(&cluster)) {
        let order = (number(&former[4]) + 1).to_string();
        assert_eq!(
            [&latter[0], &latter[1], &latter[2], &latter[3], &latter[4]],
            [&former[0], &former[1], "60000", &former[3], &order]
        );
    }
    settle().await;
    let refused = between.lock("a").try_acquire().await.unwrap_err().to_string();
    assert!(refused.contains("60000 ms") && refused.contains("30000 ms"), "{refused}");
    let latter = builder(&cluster, secs(60), secs(60)).connect().await.unwrap();
    drop(held(&latter, "a").await);
}

/// Counter-example: it got another order, so that the next request of each client was refused once.
#[tokio::test(start_paused = true)]
async fn a_record_that_has_the_time_stays_as_it_is() {
    let cluster = Cluster::new(3);
    let redlock = builder(&cluster, secs(10), secs(30)).connect().await.unwrap();
    let former = records(&cluster);
    operator(&cluster, secs(30)).await.set().await.unwrap();
    assert_eq!(records(&cluster), former);
    drop(held(&redlock, "a").await);
}

/// Those that were granted under the longer time may live on, and clients need not wait for that any more.
#[tokio::test(start_paused = true)]
async fn an_instance_whose_time_is_shortened_waits_for_the_former_one() {
    let cluster = Cluster::new(3);
    let redlock = builder(&cluster, secs(10), secs(30)).connect().await.unwrap();
    let now_ms = cluster.instance(0).wall_us() / 1_000;
    operator(&cluster, secs(10)).await.set().await.unwrap();
    for words in words(&cluster) {
        assert_eq!(words[2], "10000");
        assert!(number(&words[1]) >= now_ms + 30_000, "{words:?} at {now_ms}");
        assert!(number(&words[4]) >= now_ms, "a quarantine begins: {words:?} at {now_ms}");
    }
    settle().await;
    let refused = redlock.lock("a").try_acquire().await;
    let Err(AcquireError::InQuarantine { remaining: Some(left), .. }) = refused else { unreachable!("{refused:?}") };
    assert!(left > secs(29) && left <= secs(30), "{left:?}");
    sleep(secs(31)).await;
    drop(held(&redlock, "a").await);
}

#[tokio::test(start_paused = true)]
async fn a_record_of_another_process_is_not_changed_nor_any_beside_it() {
    for (happens, word) in [("restart", "another process"), ("loss", "no admission record"), ("gone", "not connected")]
    {
        let cluster = Cluster::new(3);
        drop(builder(&cluster, secs(10), secs(10)).connect().await.unwrap());
        let third = cluster.instance(2);
        match happens {
            "restart" => third.start(Data::Present),
            "loss" => assert!(third.remove(RECORD)),
            _ => third.stop(),
        }
        let before = records(&cluster);
        let operator = operator(&cluster, secs(30)).await;
        for operator in [operator.clone().dry_run(), operator] {
            let refused = operator.set().await;
            let Err(RecordsError::Refused(refusals)) = refused else { unreachable!("{happens}: {refused:?}") };
            assert_eq!((refusals.len(), refusals[0].address.as_str()), (1, "memory:2"), "{happens}");
            assert!(refusals[0].reason.contains(word), "{happens}: {refusals:?}");
        }
        assert_eq!(records(&cluster), before, "{happens}");
    }
}

/// One instance has written, another has and its answer is lost, on the third another client was faster. A timeout is no refusal (P5):
/// the error said that another client wrote on both.
#[tokio::test(start_paused = true)]
async fn what_was_written_what_was_not_and_what_is_not_known_is_told_apart() {
    for (opens, breaks) in [(true, false), (true, true), (false, false), (false, true)] {
        let cluster = if opens { new_cluster() } else { Cluster::new(3) };
        if !opens {
            drop(operator(&cluster, secs(30)).await); // a record that has the time stays as it is
        }
        let operator = operator(&cluster, secs(60)).await;
        let before = records(&cluster);
        for late in [1, 2] {
            cluster.instance(late).slow_down(ms(10), ms(10));
        }
        let written =
            tokio::spawn(async move { if opens { operator.open(secs(60)).await } else { operator.set().await } });
        let is_written = async {
            while records(&cluster)[0] == before[0] {
                sleep(ms(1)).await;
            }
        };
        timeout(secs(5), is_written).await.expect("the first writes");
        // Which process runs is asked first where there is no record.
        sleep(ms(if opens { 24 } else { 4 })).await;
        assert_eq!(records(&cluster)[1..], before[1..], "only the first has written by now");
        cluster.instance(2).set(RECORD, "another's");
        if !breaks {
            cluster.instance(1).hang(Hang::RepliesLost);
        }
        sleep(ms(10)).await;
        assert_ne!(records(&cluster)[1], before[1], "it was carried out");
        if breaks {
            cluster.instance(1).cut_off();
        }
        let error = written.await.unwrap().unwrap_err();
        let (Written { written, refused, unknown, .. }, advice) = match &error {
            RecordsError::HalfOpened(written) if opens => (written, "admission open -i ADDRESS"),
            RecordsError::HalfSet(written) if !opens => (written, "set it again"),
            other => unreachable!("{other:?}"),
        };
        assert_eq!(written, &["memory:0"]);
        assert!(unknown.len() == 1 && unknown[0].address == "memory:1", "{unknown:?}");
        let reason = if breaks { "the connection broke" } else { "no answer within" };
        assert!(unknown[0].reason.contains(reason), "{unknown:?}");
        assert!(refused.len() == 1 && refused[0].address == "memory:2", "{refused:?}");
        let told = error.to_string();
        for words in
            ["written on memory:0; not written: memory:2: it has", "not known whether written: memory:1: ", advice]
        {
            assert!(told.contains(words), "{words}: {told}");
        }
    }
}

/// Nobody could ever wait for it.
#[tokio::test(start_paused = true)]
async fn a_time_that_no_client_can_ask_for_is_not_waited_for() {
    let cluster = Cluster::new(3);
    drop(cluster.builder().connect().await.unwrap());
    let record = records(&cluster).swap_remove(0).unwrap();
    cluster.instance(0).set(RECORD, record.replace(" 10000 ", " 999999999999 "));
    let refused = operator(&cluster, secs(10)).await.set().await;
    assert!(
        matches!(&refused, Err(RecordsError::Refused(refusals)) if refusals[0].reason.contains("restart the instance")),
        "{refused:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_client_that_asks_for_more_than_the_records_allow_or_waits_for_less_gets_no_votes() {
    let cluster = Cluster::new(3);
    let usual = builder(&cluster, secs(10), secs(10)).connect().await.unwrap();
    for (max_ttl, quarantine) in [(secs(20), secs(20)), (secs(5), secs(5))] {
        let redlock = builder(&cluster, max_ttl, quarantine).build().unwrap();
        settle().await;
        let refused = redlock.lock("a").try_acquire().await.unwrap_err().to_string();
        let ours = format!("{} ms", quarantine.as_millis());
        assert!(refused.contains("10000 ms") && refused.contains(&ours), "{refused}");
        assert!(refused.contains("redquorum admission set --quarantine"), "{refused}");
        assert!(redlock.instances().iter().all(|known| known.admission == AdmissionStatus::Refused));
    }
    drop(held(&usual, "a").await);
}

/// It gets no votes, and writes records all the same.
#[tokio::test(start_paused = true)]
async fn who_replaces_a_record_waits_for_what_that_allows_however_short_the_own_quarantine_is() {
    let cluster = Cluster::new(1);
    drop(builder(&cluster, secs(10), secs(10)).connect().await.unwrap());
    cluster.instance(0).start(Data::Present);
    let left_behind = builder(&cluster, secs(2), secs(2)).build().unwrap();
    let now_ms = cluster.instance(0).wall_us() / 1_000;
    let refused = left_behind.lock("a").try_acquire().await;
    assert!(refused.is_err());
    settle().await;
    let words = words(&cluster).swap_remove(0);
    assert_eq!(words[2], "10000", "{words:?}");
    assert!(number(&words[1]) >= now_ms + 10_000, "{words:?} at {now_ms}");
}

#[tokio::test(start_paused = true)]
async fn extends_are_votes_too() {
    let cluster = Cluster::new(3);
    let redlock = builder(&cluster, secs(10), secs(10)).connect().await.unwrap();
    let guard: Guard = held(&redlock, "a").await;
    operator(&cluster, secs(30)).await.set().await.unwrap();
    sleep(ms(100)).await;
    let extended = guard.extend().await;
    assert!(matches!(extended, Err(ExtendError::Unconfirmed { .. })), "{extended:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_shown_is_what_there_is() {
    let cluster = Cluster::new(4);
    drop(builder(&cluster, secs(10), secs(10)).connect().await.unwrap());
    settle().await;
    cluster.instance(1).start(Data::Present);
    cluster.instance(2).remove(RECORD);
    cluster.instance(3).stop();
    let shown = operator(&cluster, secs(5)).await.show().await;
    let [usual, other, none, gone] = shown.as_slice() else { unreachable!("{shown:?}") };
    assert_eq!((usual.votes_in, usual.longest_ttl), (Some(Duration::ZERO), Some(secs(10))));
    assert!(usual.is_of_this_process && usual.misfit.is_some(), "{usual:?}");
    assert!(!other.is_of_this_process && other.record.is_some() && other.votes_in.is_none(), "{other:?}");
    assert!(none.record.is_none() && none.unknown.is_none(), "{none:?}");
    assert!(gone.record.is_none() && gone.unknown.is_some(), "{gone:?}");
}
