//! `redquorum admission`: new servers are opened on an operator's word, and only then; records are shown and changed.

use std::process::Output;

use redquorum_testkit::Fleet;
use serde_json::Value;

use crate::support::{fleet_of, output, plain, stderr, stdout};

const RECORD: &str = "redquorum:admission";

fn admission(fleet: &Fleet, args: &[&str]) -> Output {
    output(plain(fleet, ["admission"]).args(args))
}

fn told(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), format!("{}{}", stdout(output), stderr(output)))
}

fn records(fleet: &Fleet) -> Vec<Option<String>> {
    fleet.iter().map(|server| server.command(&["GET", RECORD]).unwrap().text()).collect()
}

const WORD: [&str; 2] = ["--no-lock-was-held-within", "5s"];

#[test]
fn new_servers_vote_at_once_on_the_word_of_the_operator_who_opens_them() {
    let fleet = fleet_of(3);
    let open = |options: &[&str]| told(&admission(&fleet, &[&["open", "--quarantine", "5s"], options].concat()));
    let none = told(&admission(&fleet, &["show"]));
    assert!(none.0 == Some(1) && none.1.contains("no record"), "{none:?}");
    let (status, wordless) = open(&[]);
    assert!(status == Some(64) && wordless.contains("--no-lock-was-held-within"), "{wordless}");
    let (status, short) = open(&["--no-lock-was-held-within", "4s"]);
    assert!(status == Some(64) && short.contains("locks may last for 5s"), "{short}");
    let (status, timeless) = told(&admission(&fleet, &[&["open"][..], &WORD].concat()));
    assert!(status == Some(64) && timeless.contains("--quarantine"), "{timeless}");
    let (status, dry) = open(&[&WORD[..], &["--dry-run"]].concat());
    assert!(
        status == Some(0) && dry.contains("3 instances would vote") && dry.contains("nothing was written"),
        "{dry}"
    );
    assert_eq!(records(&fleet), [None, None, None]);

    let (status, opened) = open(&WORD);
    assert_eq!((status, opened.as_str()), (Some(0), "3 instances vote from now on, for ttls up to 5.0 s\n"));
    let run = output(&mut plain(&fleet, ["run", "-r", "a", "--try", "--max-ttl", "5s", "--", "true"]));
    assert_eq!(run.status.code(), Some(0), "{}", stderr(&run));
    let (status, again) = open(&WORD);
    assert!(
        status == Some(1) && again.contains("nothing was written") && again.contains("has an admission record"),
        "{again}"
    );
}

#[test]
fn servers_of_which_one_shows_that_it_was_used_are_not_opened() {
    let traces: [(&[&str], &str); 3] = [
        (&["ZADD", "redquorum:fence", "5", "orders:42"], "has a fencing token, of \"orders:42\""),
        (&["FLUSHDB"], "was flushed since it started"),
        (&["SHUTDOWN", "NOSAVE"], "not connected"),
    ];
    for (trace, reason) in traces {
        let fleet = fleet_of(3);
        let _ = fleet[2].command(trace); // the last one does not answer
        let (status, told) = told(&admission(&fleet, &[&["open", "--quarantine", "5s"][..], &WORD].concat()));
        assert!(status == Some(1) && told.contains(reason), "{trace:?}: {told}");
        assert_eq!(
            [&fleet[0], &fleet[1]].map(|server| server.command(&["EXISTS", RECORD]).unwrap()),
            [0, 0].map(redquorum_testkit::Reply::Int),
            "{trace:?}"
        );
    }
}

#[test]
fn records_are_shown_and_their_time_is_changed() {
    let fleet = fleet_of(3);
    assert_eq!(told(&admission(&fleet, &[&["open", "--quarantine", "5s"][..], &WORD].concat())).0, Some(0));
    let (status, shown) = told(&admission(&fleet, &["show", "--max-ttl", "5s"]));
    assert!(
        status == Some(0) && shown.matches("this one").count() == 3 && shown.matches("fits").count() == 3,
        "{shown}"
    );
    let (status, misfit) = told(&admission(&fleet, &["show", "--max-ttl", "10s"]));
    assert!(status == Some(1) && misfit.contains("does not fit") && misfit.contains("5000 ms"), "{misfit}");

    // One that was flushed since: that is not why it waits after its time was made shorter.
    let flushed = records(&fleet)[0].as_ref().unwrap().replace(" opened ", " flushed ");
    fleet[0].command(&["SET", RECORD, &flushed]).unwrap();
    let before = records(&fleet);
    let (status, dry) = told(&admission(&fleet, &["set", "--quarantine", "10s", "--dry-run"]));
    assert!(status == Some(0) && dry.contains("3 instances would allow"), "{dry}");
    assert_eq!(records(&fleet), before);
    let (status, set) = told(&admission(&fleet, &["set", "--quarantine", "10s"]));
    assert_eq!((status, set.as_str()), (Some(0), "3 instances allow, for ttls up to 10.0 s\n"));
    let json: Value = serde_json::from_str(&stdout(&admission(&fleet, &["show", "--json"]))).unwrap();
    for shown in json["instances"].as_array().unwrap() {
        assert_eq!((&shown["longest_ttl_ms"], &shown["votes_in_ms"]), (&10_000.into(), &0.into()), "{shown}");
    }
    let (status, shorter) = told(&admission(&fleet, &["set", "--quarantine", "5s"]));
    assert!(status == Some(0) && shorter.contains("wait for 10.0 s before they vote again"), "{shorter}");
    let (_, waits) = told(&admission(&fleet, &["show", "--max-ttl", "5s"]));
    assert_eq!(waits.matches(" in ").count(), 3, "{waits}");
    assert!(
        records(&fleet).iter().flatten().all(|record| record.contains(" waits ")),
        "not as after a flush: {:?}",
        records(&fleet)
    );

    fleet[1].command(&["DEL", RECORD]).unwrap();
    let before = records(&fleet);
    let (status, refused) = told(&admission(&fleet, &["set", "--quarantine", "10s"]));
    assert!(status == Some(1) && refused.contains("has no admission record"), "{refused}");
    assert_eq!(records(&fleet), before);
}
