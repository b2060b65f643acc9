//! The scenarios. A new one is a new entry here; see docs/drills.md.

use super::Action::{
    Clock, ContinueClient, Cut, Drain, Fill, Flush, Heal, Kill, KillClient, Mend, Pause, PauseClient, Promote, Restart,
    RestartClient, Resume, ResumeClient, Slow, Stale, Start, Strike,
};
use super::CutKind::{Lossy, Lost, Refused, Replies, Requests};
use super::Expectation::{Available, FailsFast, KeepsHolding, RefusedWrite, Safety, WaitersGetIn};
use super::{Expectation, Scenario, Setup};
use crate::client::LockLibrary::{LastFirst, Rslock, WithAdmission, WithoutAdmission, WithoutOrder};
use crate::client::Role::{self, Careless, Holder, Rival, Shares, Waiter, Worker};
use crate::client::Share::{Candidate, Leader, Permitted, Reader, Subscriber, Tenant, Writer};
use crate::client::strike::{Blow, Moment};

/// Three clients with everything to do.
const CROWD: &[&[Role]] = &[&[Worker, Holder], &[Worker, Rival], &[Worker, Worker]];

/// Two clients whose majorities share instance 3 alone, see `PIVOT_CUTS`, and one that keeps the rest busy.
const PIVOT: &[&[Role]] = &[&[Holder], &[Rival], &[Worker]];

/// Readers and writers of one page, three for two permits, two who want to lead.
const SHARERS: &[&[Role]] = &[
    &[Shares(Reader), Shares(Permitted), Shares(Candidate)],
    &[Shares(Writer), Shares(Permitted), Shares(Candidate)],
    &[Shares(Reader), Shares(Reader), Shares(Permitted)],
];

/// As `PIVOT`: one who keeps its part of each, one who wants it, and others.
const SHARERS_OF_A_PIVOT: &[&[Role]] = &[
    &[Shares(Subscriber), Shares(Tenant), Shares(Leader)],
    &[Shares(Writer), Shares(Permitted), Shares(Candidate)],
    &[Shares(Reader), Shares(Reader), Shares(Permitted)],
];

/// Four processes with four tasks each, all of which want the same lock.
const LINE: &[&[Role]] = &[FOUR, FOUR, FOUR, FOUR];

const FOUR: &[Role] = &[Waiter; 4];

/// The holder has 1, 2 and 3, the rival 3, 4 and 5.
const PIVOT_CUTS: &[super::Action] = &[Cut(&[1], &[4, 5], Refused), Cut(&[2], &[1, 2], Refused)];

/// Each fault comes alone, with a time without faults after it. In the last but one the lock is forgotten under a
/// holder that hangs.
const WAITERS_STEPS: &[(f64, super::Action)] = &[
    (3.0, Strike(2, Blow::Kill, Moment::Waiting)),
    (5.5, RestartClient(2)),
    (7.5, Strike(3, Blow::Hang, Moment::Waiting)),
    (10.0, ContinueClient(3)),
    (12.0, Strike(1, Blow::Kill, Moment::Holding)),
    (15.5, RestartClient(1)),
    (17.5, Strike(4, Blow::Hang, Moment::Holding)),
    (21.0, ContinueClient(4)),
    (23.0, Strike(1, Blow::Kill, Moment::Named)),
    (25.5, RestartClient(1)),
    (27.5, Strike(3, Blow::Hang, Moment::Named)),
    (30.0, ContinueClient(3)),
    (32.0, Kill(&[1, 2])),
    (34.0, Start(&[1, 2])),
    (36.0, Pause(&[3, 4])),
    (38.0, Resume(&[3, 4])),
    (40.0, Cut(&[1, 2], &[4, 5], Replies)),
    (42.0, Mend(&[1, 2])),
    (44.0, Strike(2, Blow::Hang, Moment::Holding)),
    (44.2, Flush(&[1, 2, 3])),
    (47.5, ContinueClient(2)),
    (49.5, Restart(&[3, 4, 5])),
    (52.0, Heal),
];

const BASE: Scenario = Scenario {
    name: "",
    about: "",
    clients: CROWD,
    setup: Setup::Plain,
    prepare: &[],
    steps: &[],
    seconds: 10.0,
    violated_by: &[],
    beside: &[],
    shows: Safety,
    quick: false,
};

const fn crowd(
    name: &'static str,
    about: &'static str,
    shows: Expectation,
    seconds: f64,
    steps: &'static [(f64, super::Action)],
) -> Scenario {
    Scenario { name, about, shows, seconds, steps, ..BASE }
}

const fn pivot(
    name: &'static str,
    about: &'static str,
    steps: &'static [(f64, super::Action)],
    quick: bool,
) -> Scenario {
    let violated_by = &[WithoutAdmission, Rslock];
    Scenario { name, about, steps, violated_by, quick, clients: PIVOT, prepare: PIVOT_CUTS, seconds: 9.0, ..BASE }
}

const fn quick(scenario: Scenario) -> Scenario {
    Scenario { quick: true, ..scenario }
}

pub(crate) const SCENARIOS: &[Scenario] = &[
    quick(crowd(
        "kill-minority",
        "two of five are killed, and started again empty",
        Available,
        10.0,
        &[(2.0, Kill(&[1, 2])), (6.0, Start(&[1, 2]))],
    )),
    quick(crowd(
        "kill-majority",
        "three of five are killed, and started again empty",
        FailsFast,
        11.0,
        &[(2.0, Kill(&[1, 2, 3])), (6.0, Start(&[1, 2, 3]))],
    )),
    crowd("pause-minority", "two of five hang", Available, 9.0, &[(2.0, Pause(&[1, 2])), (6.0, Resume(&[1, 2]))]),
    quick(crowd(
        "pause-majority",
        "three of five hang for two ttls",
        FailsFast,
        10.0,
        &[(2.0, Pause(&[3, 4, 5])), (6.0, Resume(&[3, 4, 5]))],
    )),
    pivot(
        "restart-pivot",
        "the one instance that two majorities share is restarted empty under a held lock, out of the holder's sight",
        &[(2.0, Cut(&[1], &[3], Refused)), (2.0, Restart(&[3])), (5.5, Mend(&[1]))],
        true,
    ),
    Scenario {
        clients: &[&[Holder], &[Rival], &[Worker, Worker]],
        ..crowd(
            "rolling-restart",
            "all five are restarted empty, one by one, under one renewed lease",
            KeepsHolding,
            22.0,
            &[
                (1.5, Restart(&[1])),
                (5.5, Restart(&[2])),
                (9.5, Restart(&[3])),
                (13.5, Restart(&[4])),
                (17.5, Restart(&[5])),
                (20.5, Heal),
            ],
        )
    },
    Scenario {
        setup: Setup::Replica,
        prepare: &[PIVOT_CUTS[0], PIVOT_CUTS[1], Stale],
        ..pivot(
            "stale-replica",
            "the shared master is killed, its stale replica promoted at the same address",
            &[(2.0, Kill(&[3])), (2.1, Promote(&[2, 3])), (5.5, Promote(&[1]))],
            false,
        )
    },
    Scenario {
        setup: Setup::Replica,
        violated_by: &[WithAdmission, WithoutAdmission, Rslock],
        ..pivot(
            "split-brain",
            "one address leads to the old master for one client and to the promoted replica for the other: a majority is not enough",
            &[(2.0, Promote(&[2])), (7.5, Heal)],
            false,
        )
    },
    Scenario {
        setup: Setup::ReplicaSuperquorum,
        prepare: &[Cut(&[1], &[5], Refused), Cut(&[2], &[1, 2], Refused)],
        violated_by: &[],
        shows: KeepsHolding,
        ..pivot(
            "split-brain-superquorum",
            "the same, and four votes are needed",
            &[(2.0, Promote(&[2])), (7.5, Heal)],
            false,
        )
    },
    pivot(
        "flush-pivot",
        "FLUSHALL on the shared instance, out of the holder's sight",
        &[(2.0, Cut(&[1], &[3], Refused)), (2.0, Flush(&[3])), (5.5, Mend(&[1]))],
        true,
    ),
    Scenario {
        clients: &[&[Worker, Holder], &[Worker, Rival], &[Worker, Worker]],
        violated_by: &[Rslock],
        ..crowd("flush-all", "FLUSHALL on all five", Safety, 9.0, &[(2.0, Flush(&[1, 2, 3, 4, 5])), (5.0, Heal)])
    },
    pivot(
        "clock-forward",
        "the clock of the shared instance jumps forward by a minute, out of the holder's sight",
        &[(2.0, Cut(&[1], &[3], Refused)), (2.0, Clock(&[3], 60)), (5.5, Mend(&[1]))],
        true,
    ),
    crowd(
        "clock-backward",
        "the clocks of two jump back by a minute",
        Available,
        9.0,
        &[(2.0, Clock(&[1, 2], -60)), (5.5, Clock(&[1, 2], 0))],
    ),
    Scenario {
        setup: Setup::Proxies,
        ..crowd(
            "slow-links",
            "the links to three of five take 40 ms each way",
            Available,
            10.0,
            &[(2.0, Slow(&[1, 2, 3], 40)), (7.0, Slow(&[1, 2, 3], 0))],
        )
    },
    crowd(
        "lossy-links",
        "one packet of five to and from three of five is lost",
        Safety,
        11.0,
        &[(2.0, Cut(&[1, 2, 3], &[1, 2, 3], Lossy)), (7.0, Mend(&[1, 2, 3]))],
    ),
    crowd(
        "cut-replies",
        "two clients get no answer from three of five, which still act",
        Safety,
        11.0,
        &[(2.0, Cut(&[1, 2], &[1, 2, 3], Replies)), (6.0, Mend(&[1, 2]))],
    ),
    crowd(
        "cut-requests",
        "nothing that one client sends reaches four of five",
        Safety,
        10.0,
        &[(2.0, Cut(&[1], &[1, 2, 3, 4], Requests)), (6.0, Mend(&[1]))],
    ),
    crowd(
        "cut-islands",
        "each client is cut from two other instances",
        Available,
        10.0,
        &[
            (2.0, Cut(&[1], &[1, 2], Lost)),
            (2.0, Cut(&[2], &[3, 4], Lost)),
            (2.0, Cut(&[3], &[5, 1], Lost)),
            (6.0, Mend(&[1, 2, 3])),
        ],
    ),
    crowd(
        "memory-full",
        "two of five reach maxmemory and refuse writes",
        Available,
        9.0,
        &[(2.0, Fill(&[1, 2])), (6.0, Drain(&[1, 2]))],
    ),
    Scenario {
        setup: Setup::WrongAccess,
        ..crowd(
            "wrong-access",
            "one instance wants a password, another is spoken to in TLS, which it has not",
            Available,
            6.0,
            &[(2.0, Heal), (5.0, Heal)],
        )
    },
    Scenario {
        clients: &[&[Careless], &[Rival], &[Worker, Worker]],
        violated_by: &[Rslock],
        ..quick(crowd(
            "client-paused",
            "the holder hangs past its lease, and then writes",
            RefusedWrite,
            10.0,
            &[(2.0, PauseClient(1)), (6.0, ResumeClient(1))],
        ))
    },
    Scenario {
        clients: &[&[Holder], &[Rival], &[Worker, Worker]],
        ..crowd("client-killed", "the holder is killed", Available, 8.0, &[(2.0, KillClient(1)), (4.5, Heal)])
    },
    Scenario {
        clients: SHARERS,
        ..crowd(
            "shared-minority",
            "readers, a writer, permits and leaders, while two of five are killed, a client hangs and another is killed",
            Available,
            15.0,
            &[
                (2.0, Kill(&[1, 2])),
                (4.0, PauseClient(1)),
                (7.0, ResumeClient(1)),
                (8.0, Start(&[1, 2])),
                (9.5, RestartClient(2)),
                (11.0, Heal),
            ],
        )
    },
    Scenario {
        clients: SHARERS_OF_A_PIVOT,
        violated_by: &[WithoutAdmission],
        seconds: 18.0,
        ..pivot(
            "shared-pivot",
            "the instance that two majorities share forgets a reader, a permit and a leader, out of their sight: by a restart and two flushes",
            &[
                (2.0, Cut(&[1], &[3], Refused)),
                (2.0, Restart(&[3])),
                (5.0, Mend(&[1])),
                (5.0, Cut(&[1], &[4, 5], Refused)),
                (8.0, Cut(&[1], &[3], Refused)),
                (8.0, Flush(&[3])),
                (11.0, Mend(&[1])),
                (11.0, Cut(&[1], &[4, 5], Refused)),
                (14.0, Cut(&[1], &[3], Refused)),
                (14.0, Flush(&[3])),
                (16.5, Mend(&[1])),
            ],
            true,
        )
    },
    Scenario {
        clients: LINE,
        violated_by: &[WithoutAdmission, Rslock, LastFirst],
        beside: &[WithoutOrder],
        ..crowd(
            "waiters",
            "16 tasks in four processes wait for one lock, while some of them and some instances die or hang",
            WaitersGetIn,
            58.0,
            WAITERS_STEPS,
        )
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scenario_has_its_own_name_and_its_steps_in_order() {
        for (index, scenario) in SCENARIOS.iter().enumerate() {
            assert!(SCENARIOS.iter().skip(index + 1).all(|other| other.name != scenario.name), "{}", scenario.name);
            let times: Vec<f64> = scenario.steps.iter().map(|(at, _)| *at).collect();
            assert!(times.is_sorted() && !times.is_empty(), "{}", scenario.name);
            assert!(times.iter().all(|at| *at < scenario.seconds), "{}", scenario.name);
        }
    }
}
