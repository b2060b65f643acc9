//! The tables of `docs/comparison.md`.

use crate::measured::{Measured, shown};
use crate::page::table;

/// Readers and permits beside those of other crates.
pub(crate) fn shared(measured: &Measured) -> String {
    let subjects = ["redquorum", "distributed-lock-redis", "distkit"];
    let lines = [
        ("12 readers, 4 writers, 8 s: writes", "overlap", "writes", READERS),
        ("reads", "overlap", "reads", READERS),
        ("a reader beside a writer, times", "overlap", "reader beside writer", READERS),
        ("64 readers, a writer every 50 ms: its wait p50, ms", "writer", "wait p50, ms", READERS),
        ("p99, ms", "writer", "p99", READERS),
        ("3 permits, 16 clients: wait p50, ms", "semaphore", "wait p50, ms", PERMITS),
        ("p99, ms", "semaphore", "p99", PERMITS),
    ];
    let rows = lines.map(|(what, workload, metric, called)| {
        let cells = called.map(|subject| shown(measured.median(workload, subject, metric)));
        [what.to_owned()].into_iter().chain(cells).collect::<Vec<_>>()
    });
    table(&[&[""], &subjects[..]].concat(), &rows)
}

/// As they are called in the results.
const READERS: [&str; 3] = ["redquorum rw_lock", "distributed-lock-redis", "distkit, 1 server"];
const PERMITS: [&str; 3] = ["redquorum semaphore", "distributed-lock-redis, 1 server", ""];

/// When the next leads.
pub(crate) fn leaders(measured: &Measured) -> String {
    let rows = ["Resigns", "Killed", "Hung", "CutOff"].map(|event| {
        let of = |metric| shown(measured.median("election", event, metric));
        let told = match event {
            "Resigns" => "resigns",
            "Killed" => "is killed",
            "Hung" => "hangs",
            _ => "is cut off",
        };
        [told.to_owned(), of("until the next leads p50, ms"), of("max"), of("until it is observed max")]
    });
    table(
        &["the leader", "until the next leads p50, ms", "max, ms", "until it is observed max, ms"],
        &rows.map(Vec::from),
    )
}

/// Many who wait for one lock.
pub(crate) fn waiting(measured: &Measured) -> String {
    let metrics = ["hand-off mean", "wait p50", "wait p99", "sections/s", "commands"];
    let mut rows = Vec::new();
    for (workload, many) in [("16 tasks", "tasks"), ("16 processes", "processes")] {
        for (subject, called) in [("redquorum", "`redquorum`"), ("rslock", "rslock"), ("rslock 5 ms", "5 ms")] {
            let of = |metric| measured.median(workload, subject, metric);
            let share = of("tasks").map_or("–".to_owned(), |share| format!("{share:.2}"));
            let figures = metrics.map(|metric| shown(of(metric))).into_iter().chain([share]);
            rows.push([many.to_owned(), called.to_owned()].into_iter().chain(figures).collect::<Vec<_>>());
        }
    }
    let head = [
        "",
        "",
        "gap, µs",
        "wait p50, ms",
        "p99, ms",
        "sections a second",
        "commands per section",
        "most in / least in",
    ];
    table(&head, &rows)
}

/// Other systems.
pub(crate) fn others(measured: &Measured) -> String {
    let metrics = ["pair p50", "pair p99", "pairs/s", "sections/s"];
    let rows = measured.subjects().into_iter().map(|(workload, subject)| {
        let figures = metrics.map(|metric| shown(measured.median(workload, subject, metric)));
        [subject.to_owned()].into_iter().chain(figures).chain([stored(subject).to_owned()]).collect()
    });
    let head = [
        "",
        "one user, pair p50, µs",
        "p99, µs",
        "16 users, pairs a second",
        "8 users want one lock, sections a second",
        "on disk when it is given",
    ];
    table(&head, &rows.collect::<Vec<Vec<String>>>())
}

/// What is on a disk when a lock is given.
fn stored(system: &str) -> &'static str {
    match system.split([' ', ',']).next() {
        Some("`redquorum`") => "nothing: an instance that forgets does not vote for `max_ttl`",
        Some("etcd" | "ZooKeeper") => "the log of two of three servers (fsync)",
        Some("a") => "nothing: a restart ends the lock, and the connection with it",
        _ => "nothing: a restart forgets the lock",
    }
}
