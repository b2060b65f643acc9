//! One word for one thing: names that were given up do not come back.

use crate::source::File;

/// What a thing was called, and what it is called now. A name that begins small is found in any case.
const FORMER: &[(&str, &str)] = &[
    // The API.
    ("AdmissionView", "AdmissionStatus"),
    ("Footing", "Redundancy"),
    ("Incumbent", "CurrentHolder"),
    ("InstanceView", "InstanceStatus"),
    ("NoTurn", "QueueTimeout"),
    ("NotTaken", "NotPolled"),
    ("Ran", "RunOutput"),
    ("ReadyMade", "InstanceFactory"),
    ("TermsError", "TtlError"),
    // Instances and their connections.
    ("Admitting", "AdmissionHandshake"),
    ("Dial", "ConnectOptions"),
    ("Frames", "ReplyLimit"),
    ("Guarded", "SharedAdmission"),
    ("Hint", "Invalidation"),
    ("Knowledge", "LastKnown"),
    ("Lane", "SendQueue"),
    ("Pacer", "TimerWakeups"),
    ("Peers", "PeerConnections"),
    ("Reach", "ConnectionState"),
    ("Roster", "ProcessRegistry"),
    ("Seldom", "LogLimit"),
    ("Sight", "KeyState"),
    ("portions", "commands"),
    // The protocol.
    ("Aim", "RequestKind"),
    ("Attendance", "KeyPresence"),
    ("Defeat", "RoundFailure"),
    ("ExtendRefused", "ExtendRejected"),
    ("RenewalPlan", "RenewalSchedule"),
    ("Standing", "AdmissionState"),
    ("WhoseClock", "JumpedClock"),
    // The runtime.
    ("AtEnd", "OnDrop"),
    ("Flight", "RoundInFlight"),
    ("LettingGo", "LeaseRelease"),
    ("NotExtended", "ExtendFailure"),
    ("Wish", "AcquireParams"),
    ("cleaner", "BackgroundReleaser, release task"),
    ("cleanup", "background release"),
    ("clean-up", "background release"),
    ("debt", "pending release"),
    ("debts", "pending releases"),
    ("keeper", "KeepAlive, keep-alive task"),
    ("owed", "pending"),
    ("owes", "has pending"),
    ("straggler", "outstanding call"),
    ("stragglers", "outstanding calls"),
    ("unpaid", "not confirmed"),
];

pub(crate) fn check(file: &File) -> Vec<String> {
    let mut problems = Vec::new();
    for (at, line) in file.text.lines().enumerate() {
        for word in line.split(|c: char| !c.is_alphanumeric() && c != '-' && c != '_') {
            if let Some((former, now)) = FORMER.iter().find(|(former, _)| is_same(former, word)) {
                problems.push(file.problem(at + 1, &format!("{former} is called {now} now")));
            }
        }
    }
    problems
}

fn is_same(former: &str, word: &str) -> bool {
    let in_any_case = former.starts_with(|c: char| c.is_lowercase());
    word == former || in_any_case && word.eq_ignore_ascii_case(former)
}

#[test]
fn a_name_that_was_given_up_is_found() {
    let problems = |text| check(&File::new("src/a.rs", text)).len();
    assert_eq!(problems("fn f(flight: Flight) {} // Stragglers, and what is owed"), 3);
    assert_eq!(problems("fn f(in_flight: RoundInFlight) {} // a flight, an InstanceStatus"), 0);
}
