//! `redquorum admission`: new servers are opened on an operator's word, and only then; records are shown and changed.

use std::process::Output;

use redquorum_testkit::Fleet;
use serde_json::Value;

use crate::support::{Dir, bare, fleet_of, output, plain, stderr, stdout};

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
    assert_eq!((status, set.as_str()), (Some(0), "3 instances allow ttls up to 10.0 s\n"));
    let json: Value = serde_json::from_str(&stdout(&admission(&fleet, &["show", "--json"]))).unwrap();
    for shown in json["instances"].as_array().unwrap() {
        assert_eq!((&shown["longest_ttl_ms"], &shown["votes_in_ms"]), (&10_000.into(), &0.into()), "{shown}");
    }
    let before = records(&fleet);
    let (status, refused) = told(&admission(&fleet, &["set", "--quarantine", "5s"]));
    assert!(
        status == Some(64) && refused.contains("3 instances allow more, and would not vote for 10.0 s"),
        "{refused}"
    );
    assert_eq!(records(&fleet), before);
    let (status, shorter) = told(&admission(&fleet, &["set", "--quarantine", "5s", "--all-at-once"]));
    assert!(status == Some(0) && shorter.contains("waits for 10.0 s before it votes again"), "{shorter}");
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

/// Counter-example: 78, for `quorum = 2` of one instance, and for `tls_ca` without an address for TLS.
#[test]
fn the_words_of_the_runbook_work_with_the_settings_of_the_page() {
    let (fleet, dir) = (fleet_of(3), Dir::new());
    let address = |at: usize| format!("127.0.0.1:{}", fleet[at].port());
    fleet
        .iter()
        .for_each(|it| drop(it.command(&["ACL", "SETUSER", "locks", "on", ">s", "~*", "&*", "+@all"]).unwrap()));
    let (page, runbook) = (include_str!("../../docs/cli.md"), include_str!("../../docs/operations.md"));
    let (_, rest) = page.split_once("```toml\n").unwrap();
    let (mut settings, _) = rest.split_once("```").map(|(settings, rest)| (settings.to_owned(), rest)).unwrap();
    for (at, of_page) in ["10.0.0.1", "10.0.0.2", "10.0.0.3:6380"].into_iter().enumerate() {
        assert!(settings.contains(of_page), "{settings}");
        settings = settings.replace(of_page, &address(at));
    }
    std::fs::write(dir.file("settings.toml"), settings).unwrap();
    std::fs::write(dir.file("redis.password"), "s\n").unwrap();
    let run = |words: &str| {
        let file = dir.file("settings.toml");
        let mut command = bare(words.split(' ').filter(|word| *word != "redquorum"));
        told(&output(command.arg("--config").arg(file).env("REDQUORUM_INSTANCE_TIMEOUT", "1s")))
    };
    let open = format!("redquorum admission open --no-lock-was-held-within 10s -i {} -i {}", address(0), address(1));
    assert_eq!(run(&open), (Some(0), "2 instances vote from now on, for ttls up to 10.0 s\n".to_owned()));
    for (time, adds) in [("30s", ""), ("10s", "redquorum: what allowed more waits for 30.0 s before it votes again\n")]
    {
        let of_runbook = format!("redquorum admission set --quarantine {time}");
        assert!(runbook.contains(&of_runbook), "{of_runbook}");
        let (status, text) = run(&format!("{of_runbook} -i {}", address(0)));
        assert_eq!((status, text), (Some(0), format!("1 instance allows ttls up to {}.0 s\n{adds}", &time[..2])));
    }
    assert!(runbook.contains("redquorum admission set --quarantine 10s -i ADDRESS"));
    let times = [0, 1].map(|at| records(&fleet)[at].clone().unwrap().split(' ').nth(2).unwrap().to_owned());
    assert_eq!(times, ["10000", "10000"], "of the second nothing was changed");
}

/// Counter-example: the password was in the address of the list, and an option has none.
#[test]
fn an_option_that_names_an_instance_of_the_list_means_it_with_its_password() {
    let fleet = fleet_of(2);
    fleet.iter().for_each(|it| drop(it.command(&["CONFIG", "SET", "requirepass", "s"]).unwrap()));
    let list = fleet.addresses().join(" ").replace("redis://", "redis://:s@");
    let named = format!("127.0.0.1:{}", fleet[1].port());
    let mut command = plain(&fleet, ["admission", "open", "--quarantine", "5s", "-i", &named]);
    let (status, opened) = told(&output(command.args(WORD).env("REDQUORUM_INSTANCES", list)));
    assert_eq!((status, opened.as_str()), (Some(0), "1 instance votes from now on, for ttls up to 5.0 s\n"));
}

#[test]
fn the_help_leads_no_more_than_one_instance_at_a_time_into_a_quarantine() {
    let help = stdout(&output(&mut bare(["admission", "set", "--help"])));
    let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("run this for one instance after the other, with -i"), "{help}");
}
