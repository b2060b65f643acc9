//! The table of `docs/admission-price.md`.

use crate::measured::Measured;
use crate::page::table;

pub(crate) fn table_of(measured: &Measured) -> String {
    let rows = measured.subjects().into_iter().map(|(event, max_ttl)| {
        let of = |metric| measured.median(event, max_ttl, metric).unwrap_or(f64::NAN);
        let seconds = |metric| format!("{:.1}", of(metric));
        vec![
            event.to_owned(),
            max_ttl.to_owned(),
            seconds("vote missing"),
            seconds("all vote again"),
            seconds("no quorum"),
            format!("{} of {}", of("failed"), of("tries")),
            seconds("longest gap"),
        ]
    });
    let head = [
        "event",
        "`max_ttl`",
        "an instance does not vote, s",
        "all vote again after, s",
        "no quorum, s",
        "tries that failed",
        "longest time without a lock, s",
    ];
    table(&head, &rows.collect::<Vec<_>>())
}
